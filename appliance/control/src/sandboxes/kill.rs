//! Ending one.

use sandboxo_model::{KillCause, Phase, SandboxRecord, Standing};
use sandboxo_zone_protocol::SandboxId;
use tokio::time::timeout;

use crate::{
    KillError, Sandboxes, Scope,
    driver::{Message, SendError, send},
    notices::{BRIEFLY, gather},
};

impl Sandboxes {
    /// Returns once it is gone, and recorded so. Whoever asks while it is being killed waits for the same end.
    pub async fn kill(&self, scope: impl Into<Scope>, id: SandboxId) -> Result<(), KillError> {
        let scope = scope.into();
        let live = self.context.index.get(id).ok_or(KillError::NotFound(id))?;
        let record = live.record();
        let gone = match record.phase {
            Phase::Starting { .. } | Phase::Killing { .. } => false,
            Phase::Running { .. }
            | Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Resuming { .. }
            | Phase::Dead { .. } => record.standing(self.context.now()) == Standing::Gone,
        };
        if gone || !scope.includes(record.team) {
            return Err(KillError::NotFound(id));
        }
        gather(&self.context, &live, BRIEFLY).await;
        match send(&live, |reply| Message::Kill { cause: KillCause::Asked, reply }).await {
            Ok(()) => {}
            Err(SendError::Busy) => return Err(KillError::Busy),
            Err(SendError::Store(error)) => return Err(KillError::Store(error)),
            // It ended meanwhile, unless the process is stopping.
            Err(SendError::Gone) if is_dead(&live.record()) => return Ok(()),
            Err(SendError::Gone) => return Err(KillError::ZoneUnavailable),
        }
        // The driver ends once the end is on disk: what is asked next, such as deleting the
        // template, sees it.
        let budget = self.context.config.zone_budget;
        let ended = timeout(budget, live.mailbox.closed()).await.is_ok();
        if ended && is_dead(&live.record()) { Ok(()) } else { Err(KillError::ZoneUnavailable) }
    }
}

fn is_dead(record: &SandboxRecord) -> bool {
    matches!(record.phase, Phase::Dead { .. })
}
