//! The last hour of one sandbox's measurements. A longer history is not control's.

use std::{collections::VecDeque, ops::RangeInclusive, time::Duration};

use sandboxo_model::rules;
use sandboxo_zone_protocol::{Measured, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Oldest first.
    kept: VecDeque<Measured>,
    tried_at: Option<Timestamp>,
}

const PERIOD: Duration = Duration::from_secs(5);
const HOUR: usize = 3600 / 5;

impl Samples {
    /// At once for a new sandbox, then every five seconds. Counts as tried.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.tried_at.is_none_or(|tried| rules::after(tried, PERIOD) <= now);
        if due {
            self.tried_at = Some(now);
        }
        due
    }

    pub(crate) fn push(&mut self, sample: Measured) {
        if self.kept.len() >= HOUR {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }

    pub(crate) fn within(&self, range: &RangeInclusive<Timestamp>) -> Vec<Measured> {
        self.kept.iter().filter(|sample| range.contains(&sample.at)).copied().collect()
    }

    pub(crate) fn last(&self) -> Option<Measured> {
        self.kept.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_hour_is_kept_and_filtered() {
        let mut samples = Samples::default();
        let mut taken = 0;
        for second in 0..4000 {
            if samples.is_due(at(second)) {
                taken += 1;
                samples.push(Measured {
                    at: at(second),
                    cpu_used_percent: 0.0,
                    memory_used_bytes: 0,
                    memory_total_bytes: 0,
                    memory_cache_bytes: 0,
                    disk_used_bytes: 0,
                    disk_total_bytes: 0,
                });
            }
        }
        assert_eq!(taken, 800);
        assert_eq!(samples.within(&(at(0)..=at(9000))).len(), 720);
        let some: Vec<_> =
            samples.within(&(at(1000)..=at(1010))).iter().map(|sample| sample.at).collect();
        assert_eq!(some, [at(1000), at(1005), at(1010)]);
        assert_eq!(samples.last().map(|sample| sample.at), Some(at(3995)));
    }
}
