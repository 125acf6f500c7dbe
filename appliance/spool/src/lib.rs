//! What may be lost: log lines and measurements of sandboxes, bounded by size and age.
//!
//! Nothing here decides anything. Writing never waits, a crash loses the last moments, and a
//! spool that is damaged is put aside for a new one. What must not be lost is in `store`.
#![forbid(unsafe_code)]

mod disk;
mod keep;
mod row;
mod spool;

pub use keep::Bounds;
pub use spool::{Spool, SpoolError};

use sandboxo_zone_protocol::{SandboxId, TeamId};

/// Whose it is. Another team finds nothing under its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub team: TeamId,
    pub sandbox: SandboxId,
}
