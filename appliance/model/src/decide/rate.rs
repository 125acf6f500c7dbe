//! How often a team may ask for one thing.

use std::{num::NonZeroU32, time::Duration};

use sandboxo_zone_protocol::Timestamp;

use crate::rules;

/// What a budget holds at most, in time: a second's worth may be spent at once.
const FULL: Duration = Duration::from_secs(1);

/// What one request gets of its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub allowed: bool,
    /// Requests that would be allowed right after this one.
    pub remaining: u32,
    /// Until the budget is full again.
    pub full_in: Duration,
    /// Until one more is allowed; nothing if this one was.
    pub retry_in: Duration,
}

/// `full_at` is when the budget will be full if nobody asks. It comes back as it is from then on.
pub fn ask(
    per_second: NonZeroU32,
    full_at: Option<Timestamp>,
    now: Timestamp,
) -> (Timestamp, Turn) {
    let one = FULL / per_second.get();
    // A clock that was set back makes nobody wait for longer than an empty budget does.
    let spent = full_at.map_or(Duration::ZERO, |at| {
        Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO).min(FULL)
    });
    let allowed = spent + one <= FULL;
    let full_in = if allowed { spent + one } else { spent };
    let left = FULL.saturating_sub(full_in).as_nanos() / one.as_nanos().max(1);
    let turn = Turn {
        allowed,
        remaining: u32::try_from(left).unwrap_or(u32::MAX),
        full_in,
        retry_in: if allowed { Duration::ZERO } else { (spent + one).saturating_sub(FULL) },
    };
    (rules::after(now, full_in), turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn a_seconds_worth_at_once_and_then_at_the_rate() {
        let rate = NonZeroU32::new(4).unwrap();
        let mut full_at = None;
        for (now, allowed, remaining, full_in, retry_in) in [
            (0, true, 3, 250, 0),
            (0, true, 2, 500, 0),
            (0, true, 1, 750, 0),
            (0, true, 0, 1000, 0),
            (0, false, 0, 1000, 250),
            (100, false, 0, 900, 150),
            (250, true, 0, 1000, 0),
            (1000, true, 2, 500, 0),
            // An hour back: as if the budget were empty, and no longer than that.
            (-3_600_000, false, 0, 1000, 250),
            (-3_599_750, true, 0, 1000, 0),
        ] {
            let (next, turn) = ask(rate, full_at, at(now));
            full_at = Some(next);
            let expected = Turn {
                allowed,
                remaining,
                full_in: Duration::from_millis(full_in),
                retry_in: Duration::from_millis(retry_in),
            };
            assert_eq!(turn, expected, "at {now} ms");
        }
    }
}
