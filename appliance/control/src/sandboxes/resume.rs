//! Resuming one: because it was asked for, because somebody connects, or because of traffic.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{Invalid, SandboxRecord, StartFailure, rules};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::SandboxId;
use tokio::time::timeout;

use crate::{
    Sandboxes, Scope,
    driver::{By, Message, SendError, Unresumed, Wish, send},
};

#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("sandbox '{}' is already running", .0.label())]
    AlreadyRunning(SandboxId),
    #[error("too many requests wait for this sandbox")]
    Busy,
    #[error("the limit of {limit} {what} is reached")]
    LimitReached { what: String, limit: u64 },
    #[error("the disk is full")]
    DiskFull,
    /// Nothing can bring it back.
    #[error("what the sandbox would go on from is lost")]
    CheckpointLost,
    #[error("the sandbox can't go on here: {0}")]
    CheckpointUnusable(String),
    /// It is paused as before, and goes on once a file of this name is there.
    #[error("the sandbox had '{0}' open in a volume, and it is gone")]
    VolumeFileGone(String),
    #[error("the sandbox was killed while it was resumed")]
    Killed,
    /// It is paused as before.
    #[error("the sandbox was not resumed in time")]
    TimedOut,
    /// Logged where it happened. It is paused as before.
    #[error("the sandbox was not resumed")]
    Failed,
    #[error("no zone is available")]
    ZoneUnavailable,
    #[error("record the resume")]
    Store(#[source] StoreError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connected {
    /// It ran, and lives longer now if that was asked for.
    Running(Arc<SandboxRecord>),
    Resumed(Arc<SandboxRecord>),
}

/// Whoever has woken it by traffic has this long to go on.
const AWAKE_AT_LEAST: Duration = Duration::from_mins(5);

impl Sandboxes {
    /// Of a paused one. `auto_pause`: whether it is paused, and not killed, when the timeout is
    /// over; `None` leaves that as it was.
    pub async fn resume(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
        reboot: bool,
        auto_pause: Option<bool>,
    ) -> Result<Arc<SandboxRecord>, ResumeError> {
        rules::timeout(timeout)?;
        let wish = Wish { by: By::Resume, timeout, reboot, auto_pause };
        match self.wish(scope.into(), id, wish).await? {
            Connected::Running(record) | Connected::Resumed(record) => Ok(record),
        }
    }

    /// Of one that runs or is paused; a running one's time is never shortened.
    pub async fn connect(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
        reboot: bool,
    ) -> Result<Connected, ResumeError> {
        rules::timeout(timeout)?;
        let wish = Wish { by: By::Connect, timeout, reboot, auto_pause: None };
        self.wish(scope.into(), id, wish).await
    }

    /// For traffic to it. Its memory is always wanted.
    pub async fn wake(&self, id: SandboxId) -> Result<(), ResumeError> {
        let (_, record) = self.known(Scope::Operator, id).ok_or(ResumeError::NotFound(id))?;
        let timeout = record.timeout.max(AWAKE_AT_LEAST);
        let wish = Wish { by: By::Traffic, timeout, reboot: false, auto_pause: None };
        self.wish(Scope::Operator, id, wish).await.map(drop)
    }

    async fn wish(
        &self,
        scope: Scope,
        id: SandboxId,
        wish: Wish,
    ) -> Result<Connected, ResumeError> {
        let (live, _) = self.known(scope, id).ok_or(ResumeError::NotFound(id))?;
        // It may have to wait for a pause first.
        let budget = self.context.config.pause_budget + self.context.config.create_budget;
        match timeout(budget, send(&live, |reply| Message::Resume { wish, reply })).await {
            Ok(Ok(Ok(woken))) if woken.resumed => Ok(Connected::Resumed(woken.record)),
            Ok(Ok(Ok(woken))) => Ok(Connected::Running(woken.record)),
            Ok(Ok(Err(refusal))) => Err(error(id, refusal)),
            Ok(Err(SendError::Busy)) => Err(ResumeError::Busy),
            Ok(Err(SendError::Gone)) => Err(ResumeError::NotFound(id)),
            Ok(Err(SendError::Store(error))) => Err(error.into()),
            Err(_elapsed) => Err(ResumeError::ZoneUnavailable),
        }
    }
}

fn error(id: SandboxId, refusal: Unresumed) -> ResumeError {
    match refusal {
        Unresumed::NotFound => ResumeError::NotFound(id),
        Unresumed::AlreadyRunning => ResumeError::AlreadyRunning(id),
        Unresumed::Busy => ResumeError::Busy,
        Unresumed::Killed => ResumeError::Killed,
        Unresumed::CheckpointLost | Unresumed::Failed(StartFailure::CheckpointLost) => {
            ResumeError::CheckpointLost
        }
        Unresumed::Failed(StartFailure::CheckpointUnusable(why)) => {
            ResumeError::CheckpointUnusable(why)
        }
        Unresumed::Failed(StartFailure::LimitReached { what, limit }) => {
            ResumeError::LimitReached { what: what.into_owned(), limit }
        }
        Unresumed::Failed(StartFailure::DiskFull) => ResumeError::DiskFull,
        Unresumed::Failed(StartFailure::VolumeFileGone(path)) => ResumeError::VolumeFileGone(path),
        Unresumed::Failed(StartFailure::TimedOut) => ResumeError::TimedOut,
        Unresumed::Failed(StartFailure::Unavailable) => ResumeError::ZoneUnavailable,
        Unresumed::Failed(
            StartFailure::ImageNotFound
            | StartFailure::VolumeLost
            | StartFailure::NotMounted(_)
            | StartFailure::Runtime,
        ) => ResumeError::Failed,
    }
}

impl From<StoreError> for ResumeError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}
