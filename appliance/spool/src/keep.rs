//! What has to go. Pure: bounds and what is held in, how many of the oldest out.

use std::time::Duration;

use sandboxo_zone_protocol::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of rows with their keys; the files take somewhat more.
    pub bytes: u64,
    pub age: Duration,
}

/// A row as the order of time knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aged {
    pub(crate) at: Timestamp,
    pub(crate) bytes: u64,
}

/// Room that is made beyond the bound, so that a full spool does not evict with every row.
const SLACK: u64 = 16;

/// `oldest` first.
pub(crate) fn going(
    bounds: &Bounds,
    now: Timestamp,
    held: u64,
    oldest: impl IntoIterator<Item = Aged>,
) -> usize {
    let before = now.checked_sub(bounds.age).unwrap_or(Timestamp::MIN);
    let aim = if held > bounds.bytes { bounds.bytes - bounds.bytes / SLACK } else { bounds.bytes };
    let mut left = held;
    oldest
        .into_iter()
        .take_while(|row| {
            let goes = row.at < before || left > aim;
            left = left.saturating_sub(row.bytes);
            goes
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let bounds = Bounds { bytes: 1600, age: Duration::from_secs(100) };
        let at = |second| Timestamp::from_second(second).unwrap();
        for (why, rows, more, expected) in [
            ("nothing is there", &[][..], 0, 0),
            ("all is young and fits", &[(900, 800), (950, 800)], 0, 0),
            ("as old as may be", &[(900, 1)], 0, 0),
            ("too old", &[(898, 1), (899, 1), (900, 1)], 0, 2),
            ("too much, with some slack", &[(990, 90), (991, 60), (992, 50), (993, 9)], 1491, 3),
            ("one that is larger than all", &[(999, 2000)], 0, 1),
            ("too old and too much", &[(1, 10), (990, 1000), (995, 1000)], 0, 2),
        ] {
            let rows = rows.iter().map(|(second, bytes)| Aged { at: at(*second), bytes: *bytes });
            let held = rows.clone().map(|row| row.bytes).sum::<u64>() + more;
            assert_eq!(going(&bounds, at(1000), held, rows), expected, "{why}");
        }
    }
}
