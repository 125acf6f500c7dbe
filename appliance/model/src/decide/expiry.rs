//! Whose time is over.

use std::time::Duration;

use sandboxo_zone_protocol::{SandboxId, Timestamp};

use crate::{Phase, SandboxRecord, rules};

/// The zone ends its sandboxes itself. Control steps in after this long.
pub const GRACE: Duration = Duration::from_secs(2);

/// Running past their time by more than the grace, in the order of their ids.
pub fn overdue<'a>(
    records: impl IntoIterator<Item = &'a SandboxRecord>,
    now: Timestamp,
) -> Vec<SandboxId> {
    let mut overdue: Vec<_> = records
        .into_iter()
        .filter(|record| match record.phase {
            Phase::Running { expires_at, .. } => rules::after(expires_at, GRACE) <= now,
            Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. } => false,
        })
        .map(|record| record.id)
        .collect();
    overdue.sort_unstable();
    overdue
}
