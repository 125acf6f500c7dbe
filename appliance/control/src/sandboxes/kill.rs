//! Ending one.

use sandboxo_model::{KillCause, Phase, SandboxRecord};
use sandboxo_zone_protocol::SandboxId;
use tokio::time::timeout;

use crate::{
    KillError, Sandboxes, Scope,
    driver::{Message, SendError, send},
};

impl Sandboxes {
    /// Returns once it is gone. Whoever asks while it is being killed waits for the same end.
    pub async fn kill(&self, scope: impl Into<Scope>, id: SandboxId) -> Result<(), KillError> {
        let scope = scope.into();
        let live = self.context.index.get(id).ok_or(KillError::NotFound(id))?;
        let record = live.record();
        let expired = matches!(record.phase, Phase::Running { .. })
            && record.usable_until(self.context.now()).is_none();
        if expired || !scope.includes(record.team) {
            return Err(KillError::NotFound(id));
        }
        match send(&live, |reply| Message::Kill { cause: KillCause::Asked, reply }).await {
            Ok(()) => {}
            Err(SendError::Busy) => return Err(KillError::Busy),
            Err(SendError::Store(error)) => return Err(KillError::Store(error)),
            // It ended meanwhile, unless the process is stopping.
            Err(SendError::Gone) if is_dead(&live.record()) => return Ok(()),
            Err(SendError::Gone) => return Err(KillError::ZoneUnavailable),
        }
        // A little longer than the driver's own try.
        let budget = self.context.config.zone_budget;
        match timeout(budget, live.until(is_dead)).await {
            Ok(Some(_dead)) => Ok(()),
            Ok(None) | Err(_) => Err(KillError::ZoneUnavailable),
        }
    }
}

fn is_dead(record: &SandboxRecord) -> bool {
    matches!(record.phase, Phase::Dead { .. })
}
