//! A sandbox's own namespace with its link, for one use.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use sandboxo_zone_protocol::{NetworkPolicy, SandboxId};
use serde::{Deserialize, Serialize};

use super::{
    Handover, Inner, Network, NetworkError, handover, making, namespace, nft, plan::Plan, rules,
};

/// What must be written down to find it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    number: u32,
    address: Ipv4Addr,
    namespace: String,
}

impl LeaseRecord {
    pub(super) fn new(plan: &Plan, number: u32) -> Self {
        let address = plan.guest(number).addr();
        Self { number, address, namespace: plan.namespace(number) }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }
}

/// Dropped without [`Lease::release`] it stays, as a sandbox does that outlives its zone; the
/// next sweep that doesn't name it removes it.
pub struct Lease {
    network: Network,
    record: LeaseRecord,
    path: PathBuf,
    rules: tokio::sync::Mutex<Rules>,
    sandbox: OnceLock<SandboxId>,
}

/// What is in force.
enum Rules {
    /// The open policy, as it was admitted.
    Fresh,
    Known(NetworkPolicy),
    /// As an earlier process, or a change that failed, left them.
    Unknown,
}

impl Network {
    pub(super) fn fresh_lease(&self, number: u32) -> Lease {
        self.lease_of(number, Rules::Fresh)
    }

    pub(super) fn adopted_lease(&self, number: u32) -> Lease {
        self.lease_of(number, Rules::Unknown)
    }

    fn lease_of(&self, number: u32, rules: Rules) -> Lease {
        let record = LeaseRecord::new(&self.inner.plan, number);
        let path = namespace::path(&record.namespace);
        Lease { network: self.clone(), record, path, rules: rules.into(), sandbox: OnceLock::new() }
    }
}

impl Lease {
    pub fn record(&self) -> &LeaseRecord {
        &self.record
    }

    pub fn netns_path(&self) -> &Path {
        &self.path
    }

    pub fn nameservers(&self) -> Vec<IpAddr> {
        vec![IpAddr::V4(self.network.inner.plan.forwarder())]
    }

    /// Whose secrets its rules may name: nobody's before.
    pub fn belongs_to(&self, sandbox: SandboxId) {
        self.sandbox.get_or_init(|| sandbox);
    }

    /// Replaces all rules at once; established connections that are now refused end. Costs
    /// nothing where it changes nothing, and the open policy is what a fresh lease has.
    pub async fn apply(&self, policy: &NetworkPolicy) -> Result<(), NetworkError> {
        let Inner { plan, rules: worker, .. } = &*self.network.inner;
        let mut rules = self.rules.lock().await;
        let batch = match &*rules {
            Rules::Fresh if *policy == NetworkPolicy::OPEN => return Ok(()),
            Rules::Known(known) if known == policy => return Ok(()),
            Rules::Fresh => rules::first_policy(plan, self.record.number, policy),
            Rules::Known(_) | Rules::Unknown => rules::policy(plan, self.record.number, policy),
        };
        // Also where the caller goes away before the answer.
        *rules = Rules::Unknown;
        // First, so that the kernel leads nobody to a proxy that does not know them.
        self.network.inner.guests.rule(self.record.address, self.sandbox.get().copied(), policy);
        worker.run(move || nft::apply(&batch)).await??;
        *rules = Rules::Known(policy.clone());
        Ok(())
    }

    /// Of an adopted one: what the kernel keeps is in force, and what only the proxy knows is told
    /// it again.
    pub(crate) async fn recall(&self, policy: &NetworkPolicy) -> Result<(), NetworkError> {
        if policy.is_attended() || self.network.inner.guests.is_awaited(self.record.address) {
            self.apply(policy).await?;
        }
        Ok(())
    }

    /// From here on the sandbox's own network stack speaks for the address. Once.
    pub(crate) async fn hand_over(&self) -> Result<Handover, NetworkError> {
        let (plan, number) = (self.network.inner.plan.clone(), self.record.number);
        let handed = tokio::task::spawn_blocking(move || handover::take(&plan, number)).await;
        handed
            .unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)))
            .map_err(making(&self.record.namespace))
    }

    /// Returns when it is gone, together with all that leave at the same time. What could not be
    /// removed is tried again later. Nothing may run in it any more.
    pub async fn release(self) {
        self.network.inner.state.lock().book.leave(self.record.number);
        self.network.remove_leaving().await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.network.inner.state.lock().book.dropped(self.record.number);
    }
}
