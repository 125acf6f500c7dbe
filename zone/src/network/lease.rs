//! A sandbox's own namespace with its link, for one use.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::NetworkPolicy;
use serde::{Deserialize, Serialize};

use super::{Network, NetworkError, namespace, nft, plan::Plan, rules};

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

    pub(super) fn number(&self) -> u32 {
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
}

impl Network {
    pub(super) fn lease_of(&self, number: u32) -> Lease {
        let record = LeaseRecord::new(&self.inner.plan, number);
        let path = namespace::path(&record.namespace);
        Lease { network: self.clone(), record, path }
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

    /// Replaces all rules at once; established connections that are now refused end. A fresh
    /// lease has the open policy already.
    pub async fn apply(&self, policy: &NetworkPolicy) -> Result<(), NetworkError> {
        let inner = &self.network.inner;
        let batch = rules::policy(&inner.plan, self.record.number, policy);
        Ok(inner.rules.run(move || nft::apply(&batch)).await??)
    }

    /// Returns at once; the removal goes on in the background. Nothing may run in it any more.
    pub async fn release(self) {
        self.network.inner.state.lock().book.leave(self.record.number);
        self.network.inner.work.notify_one();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.network.inner.state.lock().book.dropped(self.record.number);
    }
}
