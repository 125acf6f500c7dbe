//! Sandboxes whose time is over and that can't be paused yet: one rule for the zone, which pauses
//! them itself, and for control, which asks for it when the zone does not.

use std::time::Duration;

use crate::Kept;

/// Between two tries.
pub const PAUSE_AGAIN: Duration = Duration::from_secs(5);

/// After so long its memory is given up, rather than that it goes on for ever.
const MEMORY_GIVEN_UP_AFTER: Duration = Duration::from_mins(2);

/// How long ago pauses were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    pub first: Duration,
    pub last: Duration,
}

/// What to try now; `None`: nothing yet.
pub fn pause_overdue(wanted: Kept, refused: Option<Refused>) -> Option<Kept> {
    match refused {
        Some(Refused { last, .. }) if last < PAUSE_AGAIN => None,
        Some(Refused { first, .. }) if first > MEMORY_GIVEN_UP_AFTER => Some(Kept::Files),
        Some(_) | None => Some(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_tried_again_and_at_last_without_memory() {
        use Kept::{Files, Memory};
        for (wanted, refused, expected) in [
            (Memory, None, Some(Memory)),
            (Memory, Some((4, 4)), None),
            (Memory, Some((5, 5)), Some(Memory)),
            (Memory, Some((120, 5)), Some(Memory)),
            (Memory, Some((121, 5)), Some(Files)),
            (Memory, Some((121, 1)), None),
            (Files, Some((10, 5)), Some(Files)),
        ] {
            let seconds = Duration::from_secs;
            let ago =
                refused.map(|(first, last)| Refused { first: seconds(first), last: seconds(last) });
            assert_eq!(pause_overdue(wanted, ago), expected, "{wanted:?} {refused:?}");
        }
    }
}
