//! When one sandbox is measured, and what was measured last. The history is the spool's.

use std::time::Duration;

use sandboxo_model::rules;
use sandboxo_zone_protocol::{Measured, Timestamp};

#[derive(Debug, Default)]
pub(crate) struct Samples {
    last: Option<Measured>,
    tried_at: Option<Timestamp>,
}

const PERIOD: Duration = Duration::from_secs(5);

impl Samples {
    /// At once for a new sandbox, then every five seconds. Counts as tried.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        // A clock that was set back would otherwise keep it waiting until it has caught up.
        let due =
            self.tried_at.is_none_or(|tried| now < tried || rules::after(tried, PERIOD) <= now);
        if due {
            self.tried_at = Some(now);
        }
        due
    }

    pub(crate) fn push(&mut self, sample: Measured) {
        self.last = Some(sample);
    }

    pub(crate) fn last(&self) -> Option<Measured> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_due_at_once_and_every_five_seconds() {
        let mut samples = Samples::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let due: Vec<_> = (0..12).filter(|second| samples.is_due(at(*second))).collect();
        assert_eq!(due, [0, 5, 10]);
        let due: Vec<_> = (-3600..-3590).filter(|second| samples.is_due(at(*second))).collect();
        assert_eq!(due, [-3600, -3595], "the clock was set back");
    }
}
