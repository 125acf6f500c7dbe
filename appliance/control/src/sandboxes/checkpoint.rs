//! A checkpoint of one for others to start from: of a running one a new one, which it goes on
//! from, and of a paused one its own.

use std::sync::Arc;

use sandboxo_model::{Phase, SandboxRecord, Standing};
use sandboxo_zone_protocol::{CheckpointId, Kept, SandboxId};
use tokio::time::timeout;

use crate::{
    Sandboxes, Scope,
    checkpoints::Hold,
    driver::{Unpaused, ask},
    index::Live,
};

/// It is there as long as this is, whatever becomes of the sandbox.
pub(crate) struct Taken {
    /// Of the sandbox as it was.
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) checkpoint: CheckpointId,
    pub(crate) kept: Kept,
    pub(crate) hold: Hold,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    /// The zone is at it for too long.
    #[error("the sandbox is busy")]
    Busy,
    #[error("the disk has no room for what is to be kept")]
    DiskFull,
    #[error("the sandbox does not answer, and goes on")]
    AgentUnresponsive,
    #[error("the sandbox has a file of a volume open that is deleted: '{0}'")]
    DeletedFileOpen(String),
    #[error("the sandbox ended of it")]
    Ended,
    #[error("the sandbox's state was not saved in time")]
    TimedOut,
    /// Logged where it happened. It goes on.
    #[error("the sandbox's state was not saved")]
    Failed,
    #[error("no zone is available")]
    ZoneUnavailable,
}

impl Sandboxes {
    pub(crate) async fn checkpoint(
        &self,
        scope: Scope,
        id: SandboxId,
        kept: Kept,
    ) -> Result<Taken, CheckpointError> {
        // It may be on its way to a pause, or back.
        let budget = self.context.config.pause_budget + self.context.config.create_budget;
        let taken = timeout(budget, async {
            loop {
                let (live, record) = self.known(scope, id).ok_or(CheckpointError::NotFound(id))?;
                match (&record.phase, record.standing(self.context.now())) {
                    (Phase::Paused { checkpoint, kept: has, .. }, _) => {
                        let hold = self.context.checkpoints.hold(*checkpoint);
                        // What it has done with by now may be gone.
                        if live.record().phase == record.phase {
                            let kept = kept.max(*has);
                            let checkpoint = *checkpoint;
                            return Ok(Taken { record, checkpoint, kept, hold });
                        }
                    }
                    (Phase::Running { .. }, Standing::Usable { .. }) => {
                        if let Some(taken) = self.of_running(&live, record, kept).await? {
                            return Ok(taken);
                        }
                    }
                    _ => self.settled(id).await,
                }
            }
        });
        taken.await.unwrap_or_else(|_elapsed| {
            self.context.checkpoints.has_leftovers();
            Err(CheckpointError::TimedOut)
        })
    }

    /// `None`: it runs no longer.
    async fn of_running(
        &self,
        live: &Live,
        record: Arc<SandboxRecord>,
        kept: Kept,
    ) -> Result<Option<Taken>, CheckpointError> {
        let (context, id) = (&self.context, live.id);
        let refusal = match ask(context, id, || context.zone.snapshot(id, kept)).await {
            // It could not go on, so that is its pause now: taken as any once it is recorded as such.
            Ok(made) if made.is_pause => return self.moved(live, &record).await,
            Ok(made) => {
                let hold = context.checkpoints.hold(made.id);
                return Ok(Some(Taken { record, checkpoint: made.id, kept: made.kept, hold }));
            }
            Err(refusal) => refusal,
        };
        Err(match refusal {
            Unpaused::NotFound | Unpaused::AlreadyPaused => return self.moved(live, &record).await,
            Unpaused::Busy => CheckpointError::Busy,
            Unpaused::DiskFull => CheckpointError::DiskFull,
            Unpaused::AgentUnresponsive => CheckpointError::AgentUnresponsive,
            Unpaused::DeletedFileOpen(path) => CheckpointError::DeletedFileOpen(path),
            Unpaused::Ended => CheckpointError::Ended,
            Unpaused::TimedOut => {
                context.checkpoints.has_leftovers();
                CheckpointError::TimedOut
            }
            Unpaused::Failed => CheckpointError::Failed,
            Unpaused::ZoneUnavailable => {
                context.checkpoints.has_leftovers();
                CheckpointError::ZoneUnavailable
            }
        })
    }

    /// What has become of it is told soon, if not yet.
    async fn moved(
        &self,
        live: &Live,
        record: &SandboxRecord,
    ) -> Result<Option<Taken>, CheckpointError> {
        let moved = live.until(|now| now.phase.kind() != record.phase.kind());
        if timeout(self.context.config.zone_budget, moved).await.is_err() {
            self.context.nudge_zone.notify_one();
            return Err(CheckpointError::Failed);
        }
        Ok(None)
    }
}
