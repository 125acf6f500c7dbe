//! The sandboxes whose connections are looked at, by their addresses.
//!
//! A sandbox that is not listed is none of the proxy's business: its rules are the kernel's alone.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use parking_lot::Mutex;
use sandboxo_zone_protocol::{EgressProxy, HostName, NetworkPolicy, SandboxId, SetHeader, Vault};
use tokio::sync::{Semaphore, watch};

use crate::{
    given::Given,
    judge::{Verdict, judge},
};

/// Connections of one sandbox at a time.
const OF_ONE: usize = 256;

/// A cheap clone.
#[derive(Clone, Default)]
pub struct Guests {
    list: Arc<Mutex<HashMap<Ipv4Addr, Arc<Guest>>>>,
    vault: Arc<Mutex<Option<Arc<dyn Vault>>>>,
}

pub(crate) struct Guest {
    rules: watch::Sender<Standing>,
    given: Mutex<Given>,
    pub(crate) room: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// It has rules, and nobody has told them yet: nothing is allowed until then.
    Unknown,
    Ruled {
        policy: Arc<NetworkPolicy>,
        /// Whose secrets they may name.
        sandbox: Option<SandboxId>,
    },
    Gone,
}

impl Guests {
    /// Whom secrets are asked for from now on.
    pub fn use_vault(&self, vault: Arc<dyn Vault>) {
        *self.vault.lock() = Some(vault);
    }

    pub(crate) fn vault(&self) -> Option<Arc<dyn Vault>> {
        self.vault.lock().clone()
    }

    /// One of an earlier process, whose rules are not known yet.
    pub fn await_rules(&self, guest: Ipv4Addr) {
        self.list.lock().insert(guest, Arc::new(Guest::new(Standing::Unknown)));
    }

    pub fn is_awaited(&self, guest: Ipv4Addr) -> bool {
        let found = self.find(guest);
        found.is_some_and(|it| matches!(*it.rules.borrow(), Standing::Unknown))
    }

    /// From now on. Connections that the policy refuses are cut.
    pub fn rule(&self, guest: Ipv4Addr, sandbox: Option<SandboxId>, policy: &NetworkPolicy) {
        let mut list = self.list.lock();
        let standing = Standing::Ruled { policy: Arc::new(policy.clone()), sandbox };
        match list.get(&guest) {
            Some(known) => drop(known.rules.send_replace(standing)),
            None if policy.is_attended() => {
                list.insert(guest, Arc::new(Guest::new(standing)));
            }
            None => {}
        }
    }

    /// Its connections are cut.
    pub fn forget(&self, guest: Ipv4Addr) {
        if let Some(guest) = self.list.lock().remove(&guest) {
            guest.rules.send_replace(Standing::Gone);
        }
    }

    pub(crate) fn find(&self, guest: Ipv4Addr) -> Option<Arc<Guest>> {
        self.list.lock().get(&guest).cloned()
    }

    pub(crate) fn find_by(&self, address: IpAddr) -> Option<Arc<Guest>> {
        match address {
            IpAddr::V4(address) => self.find(address),
            IpAddr::V6(_) => None,
        }
    }
}

impl Guest {
    fn new(standing: Standing) -> Self {
        Self {
            rules: watch::Sender::new(standing),
            given: Mutex::default(),
            room: Arc::new(Semaphore::new(OF_ONE)),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.rules.borrow().clone()
    }

    /// By the rules of this moment.
    pub(crate) fn judge(&self, address: Ipv4Addr, name: Option<&HostName>) -> Verdict {
        match &*self.rules.borrow() {
            Standing::Ruled { policy, .. } => judge(policy, address, name),
            Standing::Unknown | Standing::Gone => Verdict::Refused,
        }
    }

    /// Whether requests to any host are given headers.
    pub(crate) fn sets_headers(&self) -> bool {
        matches!(&*self.rules.borrow(), Standing::Ruled { policy, .. } if !policy.headers.is_empty())
    }

    /// What requests to that host are given. `None`: they are passed on as they are.
    pub(crate) fn headers(&self, name: &HostName) -> Option<Vec<SetHeader>> {
        match &*self.rules.borrow() {
            Standing::Ruled { policy, .. } => policy.headers.get(name).cloned(),
            Standing::Unknown | Standing::Gone => None,
        }
    }

    /// By whom its connections leave.
    pub(crate) fn proxy(&self) -> Option<EgressProxy> {
        match &*self.rules.borrow() {
            Standing::Ruled { policy, .. } => policy.proxy.clone(),
            Standing::Unknown | Standing::Gone => None,
        }
    }

    pub(crate) fn leaves_by(&self, proxy: Option<&EgressProxy>) -> bool {
        match &*self.rules.borrow() {
            Standing::Ruled { policy, .. } => policy.proxy.as_ref() == proxy,
            Standing::Unknown | Standing::Gone => false,
        }
    }

    /// Whose secrets its rules may name.
    pub(crate) fn sandbox(&self) -> Option<SandboxId> {
        match &*self.rules.borrow() {
            Standing::Ruled { sandbox, .. } => *sandbox,
            Standing::Unknown | Standing::Gone => None,
        }
    }

    /// Resolves when `refused` says so of the rules of that moment.
    pub(crate) async fn until(&self, mut refused: impl FnMut(&Self) -> bool) {
        let mut changes = self.rules.subscribe();
        while !refused(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn note(&self, name: &HostName, addresses: &[Ipv4Addr]) {
        self.given.lock().note(name, addresses);
    }

    pub(crate) fn was_told(&self, address: Ipv4Addr, name: &HostName) -> bool {
        self.given.lock().is_of(address, name)
    }

    pub(crate) fn was_told_of(&self, address: Ipv4Addr) -> bool {
        self.given.lock().knows(address)
    }
}
