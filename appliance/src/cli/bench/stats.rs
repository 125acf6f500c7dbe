//! Numbers of a list of samples.

use serde::Serialize;

/// Milliseconds; the samples in the order they were taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Stats {
    pub(crate) n: usize,
    pub(crate) median_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) samples_ms: Vec<f64>,
}

impl Stats {
    /// `None` of no samples.
    pub(crate) fn of(samples_ms: Vec<f64>) -> Option<Self> {
        let mut sorted = samples_ms.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            n: sorted.len(),
            median_ms: median(&sorted)?,
            p95_ms: rank(&sorted, 95)?,
            p99_ms: rank(&sorted, 99)?,
            min_ms: *sorted.first()?,
            max_ms: *sorted.last()?,
            samples_ms,
        })
    }
}

/// Of an even number of samples, the middle of the middle two.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
}

/// The smallest sample that at least so many percent are not above.
fn rank(sorted: &[f64], percent: usize) -> Option<f64> {
    let at = (sorted.len() * percent).div_ceil(100);
    sorted.get(at.checked_sub(1)?).copied()
}

/// To a hundredth: what lies below is noise.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (samples, median, p95, p99) in [
            (vec![5.0], 5.0, 5.0, 5.0),
            (vec![4.0, 2.0], 3.0, 4.0, 4.0),
            (vec![3.0, 1.0, 2.0], 2.0, 3.0, 3.0),
            ((1..=100).map(f64::from).collect(), 50.5, 95.0, 99.0),
            ((1..=200).rev().map(f64::from).collect(), 100.5, 190.0, 198.0),
        ] {
            let stats = Stats::of(samples.clone()).unwrap();
            assert_eq!((stats.median_ms, stats.p95_ms, stats.p99_ms), (median, p95, p99));
            assert_eq!(stats.samples_ms, samples, "raw samples keep their order");
        }
        assert_eq!(Stats::of(Vec::new()), None);
    }
}
