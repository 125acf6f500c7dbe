//! What every part of control is given.

use std::{future::Future, sync::Arc};

use parking_lot::RwLock;
use sandboxo_spool::Spool;
use sandboxo_store::{Store, StoreError};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{Clock, Random, Timestamp, Zone, ZoneCode};
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::{
    ControlConfig, accounts::Accounts, builds::Uploads, checkpoints::Checkpoints,
    identity::Keyring, index::Index, starts::Starts,
};

pub(crate) struct Context {
    pub(crate) config: ControlConfig,
    pub(crate) store: Store,
    pub(crate) spool: Spool,
    pub(crate) zone: Arc<dyn Zone>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) tasks: Tasks,
    pub(crate) index: Index,
    pub(crate) accounts: Accounts,
    pub(crate) starts: Starts,
    pub(crate) checkpoints: Checkpoints,
    /// Written after it is kept.
    pub(crate) keyring: RwLock<Arc<Keyring>>,
    pub(crate) uploads: Uploads,
    /// Seats of resumes that nobody waits for any more.
    pub(crate) for_nobody: Arc<Semaphore>,
    /// In every id that is made here.
    pub(crate) zone_code: ZoneCode,
    /// Compare records and zone again.
    pub(crate) nudge_zone: Notify,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs to its end whether or not the caller stays: what is written is also published.
    pub(crate) async fn to_the_end<T, E>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        drop(self.tasks.spawn(name, |_stop| async move {
            if reply.send(work.await).is_err() { /* the caller has left */ }
        }));
        answer.await.unwrap_or_else(|_stopping| Err(StoreError::Closed.into()))
    }
}
