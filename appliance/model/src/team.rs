//! Who owns records.

use sandboxo_zone_protocol::{TeamId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamRecord {
    pub id: TeamId,
    /// Unique, and the first part of `team/template` names.
    pub name: String,
    pub created_at: Timestamp,
}

impl TeamRecord {
    /// The team of the first key.
    pub const DEFAULT: &str = "default";
}
