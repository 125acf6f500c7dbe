//! Measurements.

use std::{collections::BTreeMap, ops::RangeInclusive};

use sandboxo_zone_protocol::{SandboxId, Timestamp};

use crate::{Metrics, Sandboxes, Scope};

impl Sandboxes {
    /// Oldest first. `None`: no such sandbox.
    pub fn metrics(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        range: &RangeInclusive<Timestamp>,
    ) -> Option<Metrics> {
        let (live, record) = self.usable(scope.into(), id)?;
        let samples = live.samples.lock().within(range);
        Some(Metrics { vcpus: record.spec.resources.vcpus, samples })
    }

    /// The last sample of each that has one.
    pub fn latest_metrics(
        &self,
        scope: impl Into<Scope>,
        ids: &[SandboxId],
    ) -> BTreeMap<SandboxId, Metrics> {
        let scope = scope.into();
        let latest = |id: &SandboxId| {
            let (live, record) = self.usable(scope, *id)?;
            let sample = live.samples.lock().last()?;
            Some((*id, Metrics { vcpus: record.spec.resources.vcpus, samples: vec![sample] }))
        };
        ids.iter().filter_map(latest).collect()
    }
}
