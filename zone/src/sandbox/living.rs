//! One that runs: what is measured and changed of it.

use std::{sync::Arc, time::Duration};

use sandboxo_zone_protocol::{EndReason, Measured, NetworkPolicy, Timestamp, ZoneError};
use tokio::time::Instant;

use super::{Freezer, internal};
use crate::{bringup::Connected, cgroup::GroupUsage, disk, slot::ClaimRecord};

pub(super) struct Living {
    pub(super) freezer: Arc<Freezer>,
    pub(super) connected: Connected,
    pub(super) claim: ClaimRecord,
    /// When processor time was read last, and what it was.
    pub(super) cpu: Option<(Instant, GroupUsage)>,
}

impl Living {
    pub(super) fn time_left(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.claim.deadline.duration_since(now)).unwrap_or(Duration::ZERO)
    }

    pub(super) fn cause_of_death(&self) -> EndReason {
        let holdings = &self.connected.holdings;
        match holdings.group.oom_kills() {
            Ok(0) | Err(_) => {
                tracing::warn!(sandbox.id = %self.claim.id, said = holdings.said(), "it crashed");
                EndReason::Crashed
            }
            Ok(_) => EndReason::OutOfMemory,
        }
    }

    /// In bytes, at most.
    pub(super) fn to_be_saved(&self, without_memory: bool) -> std::io::Result<u64> {
        let holdings = &self.connected.holdings;
        let disk_mib = holdings.slot.shape.resources.disk_mib;
        let files = disk::usage(&holdings.paths.mount, disk_mib)?.used;
        let memory = if without_memory { 0 } else { holdings.group.usage()?.memory_bytes };
        Ok(files + memory)
    }

    pub(super) fn write_claim(&mut self) -> Result<(), ZoneError> {
        let claim = self.claim.clone();
        self.connected.holdings.record(|slot| slot.claim = Some(claim)).map_err(internal)
    }

    /// A sandbox without a network keeps the rules and has nothing to apply them to.
    pub(super) async fn set_network(&mut self, policy: NetworkPolicy) -> Result<(), ZoneError> {
        if let Some(lease) = &self.connected.holdings.lease {
            lease.apply(&policy).await.map_err(internal)?;
        }
        self.claim.network = NetworkPolicy { mode: self.claim.network.mode, ..policy };
        self.write_claim()
    }

    pub(super) fn measure(&mut self, at: Timestamp) -> Result<Measured, ZoneError> {
        let holdings = &self.connected.holdings;
        let resources = holdings.slot.shape.resources;
        let usage = holdings.group.usage().map_err(internal)?;
        let disk = disk::usage(&holdings.paths.mount, resources.disk_mib).map_err(internal)?;
        let now = Instant::now();
        let before = self.cpu.replace((now, usage));
        let total = u64::from(resources.memory_mib) << 20;
        Ok(Measured {
            at,
            cpu_used_percent: before.map_or(0.0, |(then, before)| {
                percent(usage.cpu.saturating_sub(before.cpu), now - then, resources.vcpus)
            }),
            memory_used_bytes: usage.memory_bytes.min(total),
            memory_total_bytes: total,
            memory_cache_bytes: usage.cache_bytes,
            disk_used_bytes: disk.used,
            disk_total_bytes: disk.total,
        })
    }
}

/// Of all its processors: 100 is everything it may use.
fn percent(used: Duration, passed: Duration, vcpus: u32) -> f32 {
    let vcpus = f32::from(u16::try_from(vcpus).unwrap_or(u16::MAX).max(1));
    let most = passed.as_secs_f32() * vcpus;
    if most > 0.0 { used.as_secs_f32() / most * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processors_at_full_speed_are_100_percent() {
        let second = Duration::from_secs(1);
        assert!((percent(second, second, 1) - 100.0).abs() < 0.01);
        assert!((percent(second, second, 4) - 25.0).abs() < 0.01);
        assert!(percent(second, Duration::ZERO, 1).abs() < 0.01);
    }
}
