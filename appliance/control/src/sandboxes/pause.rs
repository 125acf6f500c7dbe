//! Pausing one.

use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Kept, SandboxId};
use tokio::time::timeout;

use crate::{
    Sandboxes, Scope,
    driver::{Message, SendError, Unpaused, send},
};

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("sandbox '{}' is already paused", .0.label())]
    AlreadyPaused(SandboxId),
    /// Too many requests wait, or the zone is at it for too long.
    #[error("the sandbox is busy")]
    Busy,
    #[error("the disk has no room for what a pause keeps")]
    DiskFull,
    #[error("the sandbox does not answer, and goes on")]
    AgentUnresponsive,
    #[error("the sandbox has a file of a volume open that is deleted: '{0}'")]
    DeletedFileOpen(String),
    #[error("the sandbox ended while it was paused")]
    Ended,
    /// It may be paused yet.
    #[error("the sandbox was not paused in time")]
    TimedOut,
    /// Logged where it happened. It goes on.
    #[error("the sandbox was not paused")]
    Failed,
    #[error("no zone is available")]
    ZoneUnavailable,
    #[error("record the pause")]
    Store(#[source] StoreError),
}

impl Sandboxes {
    /// Returns once it is paused, and recorded so. Whoever asks while it is being paused waits for
    /// the same end; dropping the future does not stop it.
    pub async fn pause(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        kept: Kept,
    ) -> Result<(), PauseError> {
        let (live, _) = self.known(scope.into(), id).ok_or(PauseError::NotFound(id))?;
        // It may have to wait for a resume first.
        let budget = self.context.config.pause_budget + self.context.config.create_budget;
        let asked = timeout(budget, send(&live, |reply| Message::Pause { kept, reply }));
        let refusal = match asked.await {
            Ok(Ok(Ok(_paused))) => return Ok(()),
            Ok(Ok(Err(refusal))) => refusal,
            Ok(Err(SendError::Busy)) => Unpaused::Busy,
            Ok(Err(SendError::Gone)) => Unpaused::NotFound,
            Ok(Err(SendError::Store(error))) => return Err(error.into()),
            Err(_elapsed) => Unpaused::TimedOut,
        };
        Err(match refusal {
            Unpaused::NotFound => PauseError::NotFound(id),
            Unpaused::AlreadyPaused => PauseError::AlreadyPaused(id),
            Unpaused::Busy => PauseError::Busy,
            Unpaused::DiskFull => PauseError::DiskFull,
            Unpaused::AgentUnresponsive => PauseError::AgentUnresponsive,
            Unpaused::DeletedFileOpen(path) => PauseError::DeletedFileOpen(path),
            Unpaused::Ended => PauseError::Ended,
            Unpaused::TimedOut => PauseError::TimedOut,
            Unpaused::Failed => PauseError::Failed,
            Unpaused::ZoneUnavailable => PauseError::ZoneUnavailable,
        })
    }
}

impl From<StoreError> for PauseError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}
