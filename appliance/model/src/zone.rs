//! A zone, as the appliance remembers it.

use sandboxo_zone_protocol::{Region, ZoneCode, ZoneName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRecord {
    pub name: ZoneName,
    /// Fixed once recorded: ids of its sandboxes carry it.
    pub region: Region,
    pub code: ZoneCode,
    /// The one last seen. A new one means that nothing can have lived on.
    pub boot_id: Option<String>,
}
