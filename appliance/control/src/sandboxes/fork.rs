//! Copies of one: a checkpoint of it, and a start for each copy. The checkpoint goes with the last
//! of them; where the process dies before, reconcile finds that no record wants it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use sandboxo_model::{Fork, Invalid, SandboxRecord, origin, rules};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Kept, SandboxId};

use super::checkpoint::Taken;
use crate::{CheckpointError, CreateError, Sandboxes, Scope, tokens};

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the appliance is stopping")]
    Stopping(#[from] StoreError),
}

impl Sandboxes {
    /// Returns once each copy runs, or will not. The original goes on, and a paused one stays so.
    /// Dropping the future stops nothing.
    pub async fn fork(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        count: usize,
        lifetime: Duration,
    ) -> Result<Vec<Result<Arc<SandboxRecord>, CreateError>>, ForkError> {
        let scope = scope.into();
        rules::copies(count)?;
        rules::first_timeout(lifetime)?;
        let this = self.clone();
        let work = async move {
            let taken = this.checkpoint(scope, id, Kept::Memory).await?;
            let copies = join_all((0..count).map(|_| this.copy(&taken, lifetime))).await;
            let Taken { checkpoint, hold, .. } = taken;
            drop(hold);
            this.context.discard_later(checkpoint, None);
            Ok::<_, ForkError>(copies)
        };
        self.context.to_the_end("fork", work).await
    }

    async fn copy(
        &self,
        Taken { record, checkpoint, kept, .. }: &Taken,
        lifetime: Duration,
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        let context = &self.context;
        let region = context.zone.info().region;
        let copy = record.fork(Fork {
            id: SandboxId::random(region, context.zone_code, &*context.random),
            origin: origin(*checkpoint, *kept),
            agent_token: tokens::token(&*context.random),
            traffic_token: tokens::token(&*context.random),
            timeout: lifetime,
            now: context.now(),
            budget: context.config.create_budget,
        });
        self.bear(copy, Some(context.checkpoints.hold(*checkpoint))).await
    }
}
