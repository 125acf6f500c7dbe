//! The live sandboxes in memory: what get, list and lookup see, and where their drivers are
//! reached. The only map of them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, RwLock};
use sandboxo_model::SandboxRecord;
use sandboxo_zone_protocol::SandboxId;
use tokio::sync::{mpsc, watch};

use crate::{driver::Message, samples::Samples};

/// One sandbox that is not dead. Its driver publishes the record and removes the entry.
pub(crate) struct Live {
    pub(crate) id: SandboxId,
    record: watch::Sender<Arc<SandboxRecord>>,
    pub(crate) mailbox: mpsc::Sender<Message>,
    pub(crate) samples: Mutex<Samples>,
}

#[derive(Default)]
pub(crate) struct Index {
    live: RwLock<HashMap<SandboxId, Arc<Live>>>,
}

impl Live {
    pub(crate) fn new(record: Arc<SandboxRecord>, mailbox: mpsc::Sender<Message>) -> Arc<Self> {
        Arc::new(Self {
            id: record.id,
            record: watch::Sender::new(record),
            mailbox,
            samples: Mutex::default(),
        })
    }

    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        Arc::clone(&self.record.borrow())
    }

    /// Waits for a record that is as the closure says; `None` when the driver has ended without.
    pub(crate) async fn until(
        &self,
        mut reached: impl FnMut(&SandboxRecord) -> bool,
    ) -> Option<Arc<SandboxRecord>> {
        let mut records = self.record.subscribe();
        tokio::select! {
            biased;
            found = records.wait_for(|record| reached(record)) => {
                found.ok().map(|record| Arc::clone(&record))
            }
            () = self.mailbox.closed() => None,
        }
    }

    pub(crate) fn publish(&self, record: Arc<SandboxRecord>) {
        self.record.send_replace(record);
    }
}

impl Index {
    pub(crate) fn insert(&self, live: Arc<Live>) {
        self.live.write().insert(live.id, live);
    }

    /// Only the entry itself, not one that has taken its place.
    pub(crate) fn remove(&self, live: &Arc<Live>) {
        let mut map = self.live.write();
        if map.get(&live.id).is_some_and(|found| Arc::ptr_eq(found, live)) {
            map.remove(&live.id);
        }
    }

    pub(crate) fn get(&self, id: SandboxId) -> Option<Arc<Live>> {
        self.live.read().get(&id).map(Arc::clone)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.live.read().values().map(Arc::clone).collect()
    }

    pub(crate) fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.live.read().values().map(|live| live.record()).collect()
    }
}
