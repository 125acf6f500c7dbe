//! Whose time is over.

use std::time::Duration;

use sandboxo_zone_protocol::{Refused, SandboxId, Timestamp};

use crate::{Phase, SandboxRecord, rules};

/// The zone ends its sandboxes itself. Control steps in after this long.
pub const GRACE: Duration = Duration::from_secs(2);

/// Pauses of one whose time is over, which the zone has refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusals {
    pub first: Timestamp,
    pub last: Timestamp,
}

impl Refusals {
    /// A clock that was set back says that it was just now.
    pub fn ago(self, now: Timestamp) -> Refused {
        let since = |then| Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO);
        Refused { first: since(self.first), last: since(self.last) }
    }
}

/// Running past their time by more than the grace, in the order of their ids.
pub fn overdue<'a>(
    records: impl IntoIterator<Item = &'a SandboxRecord>,
    now: Timestamp,
) -> Vec<SandboxId> {
    let mut overdue: Vec<_> = records
        .into_iter()
        .filter(|record| match record.phase {
            Phase::Running { expires_at, .. } => rules::after(expires_at, GRACE) <= now,
            Phase::Starting { .. }
            | Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Resuming { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => false,
        })
        .map(|record| record.id)
        .collect();
    overdue.sort_unstable();
    overdue
}

/// Until then, but never more than was planned: the clock may have been set back since.
pub fn left(until: Timestamp, now: Timestamp, planned: Duration) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO).min(planned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KillCause, sample};

    #[test]
    fn what_is_left_is_neither_negative_nor_more_than_was_planned() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let planned = Duration::from_secs(30);
        for (why, now, expected) in [
            ("at the beginning", 1000, 30),
            ("on the way", 1010, 20),
            ("over", 1030, 0),
            ("an hour late", 4630, 0),
            ("the clock was set back", -2600, 30),
        ] {
            assert_eq!(left(at(1030), at(now), planned).as_secs(), expected, "{why}");
        }
    }

    #[test]
    fn only_running_ones_past_their_time_and_the_grace() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let id = |n: u8| format!("sbx_loc_{n:020}").parse::<SandboxId>().unwrap();
        let running = |n, second| {
            let phase = Phase::Running { started_at: at(1), expires_at: at(second) };
            sample::record(id(n), at(1000), phase)
        };
        let killing = Phase::Killing {
            asked_at: at(1),
            cause: KillCause::Expired,
            started_at: None,
            checkpoint: None,
        };
        let records = [
            running(5, 98),
            running(4, 97),
            running(3, 99),
            running(2, 200),
            sample::record(id(1), at(1), Phase::Starting { give_up_at: at(1) }),
            sample::record(id(0), at(1), killing),
        ];
        assert_eq!(overdue(&records, at(100)), [id(4), id(5)]);
    }
}
