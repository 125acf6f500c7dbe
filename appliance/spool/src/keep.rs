//! What has to go. Pure: bounds and what is held in, how much and whose out.

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

/// The part of the bound that is each one's own: nobody is cut below it for another's sake.
const OWN: u64 = 64;

/// What has to go from those that hold most, before anybody's oldest does: they are cut to one
/// height. So one that says very much pushes out its own words, and not what the others have said.
pub(crate) fn cuts<K>(
    bounds: &Bounds,
    held: u64,
    holders: impl IntoIterator<Item = (K, u64)>,
) -> Vec<(K, u64)> {
    if held <= bounds.bytes {
        return Vec::new();
    }
    let needed = held - (bounds.bytes - bounds.bytes / SLACK);
    let own = bounds.bytes / OWN;
    let mut tall: Vec<_> = holders.into_iter().filter(|(_, bytes)| *bytes > own).collect();
    tall.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let (mut height, mut sum) = (own, 0);
    for (count, (bytes, next)) in tall
        .iter()
        .map(|(_, bytes)| *bytes)
        .zip(tall.iter().skip(1).map(|(_, bytes)| *bytes).chain([own]))
        .enumerate()
    {
        let count = count as u64 + 1;
        sum += bytes;
        if sum - next * count >= needed {
            height = (sum - needed) / count;
            break;
        }
    }
    let cut = tall.into_iter().filter(|(_, bytes)| *bytes > height);
    cut.map(|(key, bytes)| (key, bytes - height)).collect()
}

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
    fn who_holds_most_goes_back_first() {
        let bounds = Bounds { bytes: 1600, age: Duration::ZERO };
        for (why, holders, expected) in [
            ("nobody", &[][..], &[][..]),
            ("all fits", &[1500, 100], &[]),
            ("one has too much", &[1601, 10], &[(0, 111)]),
            ("the small ones keep theirs", &[10, 2000, 20, 30], &[(1, 560)]),
            ("two have too much", &[1000, 900, 100], &[(0, 300), (1, 200)]),
            ("the second only just", &[1600, 100, 99], &[(0, 299)]),
        ] {
            let held = holders.iter().sum::<u64>();
            let cuts = cuts(&bounds, held, holders.iter().copied().enumerate());
            assert_eq!(cuts, expected, "{why}");
            let left = held - cuts.iter().map(|(_, bytes)| bytes).sum::<u64>();
            assert!(left <= bounds.bytes, "{why}: {left}");
        }
        // So many that hold little: the oldest rows go, whoever's they are.
        let many = cuts(&bounds, 70 * 26, (0..70).map(|holder| (holder, 26)));
        assert!(many.iter().all(|(_, bytes)| *bytes == 1), "{many:?}");
    }

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
