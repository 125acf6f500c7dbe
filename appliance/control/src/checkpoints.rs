//! Which checkpoints have to stay, whoever else has done with them: one may be what a paused
//! sandbox goes on from, a snapshot, and what copies start from, all at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use sandboxo_zone_protocol::{CheckpointId, SandboxId, ZoneError};
use tokio::time::timeout;

use crate::context::Context;

#[derive(Default)]
pub(crate) struct Checkpoints {
    held: Arc<Mutex<BTreeMap<CheckpointId, usize>>>,
    /// The zone may have some that nothing will start from. Reconcile finds them.
    leftover: AtomicBool,
}

/// Not discarded while this lives: for what no record says yet.
pub(crate) struct Hold {
    checkpoint: CheckpointId,
    held: Arc<Mutex<BTreeMap<CheckpointId, usize>>>,
}

impl Checkpoints {
    pub(crate) fn hold(&self, checkpoint: CheckpointId) -> Hold {
        *self.held.lock().entry(checkpoint).or_default() += 1;
        Hold { checkpoint, held: Arc::clone(&self.held) }
    }

    pub(crate) fn has_leftovers(&self) {
        self.leftover.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_leftover(&self) -> bool {
        self.leftover.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.checkpoint) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.checkpoint);
            }
        }
    }
}

impl Context {
    /// Something starts from it, or may. `but`: a sandbox that has done with it.
    pub(crate) fn keeps(&self, checkpoint: CheckpointId, but: Option<SandboxId>) -> bool {
        self.checkpoints.held.lock().contains_key(&checkpoint)
            || self.accounts.has_checkpoint(checkpoint)
            || (self.index.records().iter())
                .any(|record| Some(record.id) != but && record.wants(checkpoint))
    }

    /// Unless something starts from it. What is not discarded now is found by reconcile.
    pub(crate) async fn discard(&self, checkpoint: CheckpointId, but: Option<SandboxId>) {
        if self.keeps(checkpoint, but) {
            self.checkpoints.has_leftovers();
            return;
        }
        let told = timeout(self.config.zone_budget, self.zone.discard(checkpoint));
        if let Err(error) = told.await.unwrap_or(Err(ZoneError::Unavailable)) {
            self.checkpoints.has_leftovers();
            tracing::debug!(
                checkpoint.id = %checkpoint,
                error = &error as &dyn std::error::Error,
                "a checkpoint is not discarded yet"
            );
        }
    }

    pub(crate) fn discard_later(
        self: &Arc<Self>,
        checkpoint: CheckpointId,
        but: Option<SandboxId>,
    ) {
        let context = Arc::clone(self);
        drop(self.tasks.spawn("discard", |_stop| async move {
            context.discard(checkpoint, but).await;
        }));
    }
}
