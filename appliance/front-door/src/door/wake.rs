//! A request for a sandbox that is paused. The driver has one resume for all that wait; here each
//! of them waits for a bounded time, and no more than fit into the lot.

use std::{sync::Arc, time::Duration};

use sandboxo_control::{Lookup, ResumeError};
use sandboxo_model::SandboxRecord;
use sandboxo_zone_protocol::SandboxId;
use tokio::time::{Instant, sleep, timeout};

use super::FrontDoor;
use crate::{refusal::Failure, target::Surface};

/// How long a request waits at most, by its way in.
const AGENT_ENV_WAITS: Duration = Duration::from_mins(1);
const E2B_WAITS: Duration = Duration::from_secs(90);
/// From the first failure that may pass by itself: so long another try begins.
const TRY_FOR: Duration = Duration::from_secs(15);
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl FrontDoor {
    pub(super) async fn awake(
        &self,
        id: SandboxId,
        surface: Surface,
        lookup: Lookup,
    ) -> Result<Arc<SandboxRecord>, Failure> {
        if let Some(decided) = at_once(lookup, surface) {
            return decided;
        }
        let Ok(_place) = self.lot.try_acquire() else { return Err(Failure::LotFull) };
        let waits = match surface {
            Surface::AgentEnv => AGENT_ENV_WAITS,
            Surface::E2bHeader | Surface::E2bHost => E2B_WAITS,
        };
        timeout(waits, self.wait(id, surface)).await.unwrap_or(Err(Failure::ResumeTimeout))
    }

    async fn wait(&self, id: SandboxId, surface: Surface) -> Result<Arc<SandboxRecord>, Failure> {
        let sandboxes = &self.control.sandboxes;
        let mut failing_since = None;
        loop {
            let lookup = sandboxes.lookup(id);
            let wakes = match &lookup {
                Lookup::Paused(record) | Lookup::Resuming(record) => record.auto_resume,
                Lookup::Ready(_) | Lookup::Pausing(_) | Lookup::NotFound => false,
            };
            if let Some(decided) = at_once(lookup, surface) {
                return decided;
            }
            if !wakes {
                sandboxes.settled(id).await;
                continue;
            }
            let Err(error) = sandboxes.wake(id).await else { continue };
            let failure = failure(id, &error);
            if failure != Failure::ResumeLater {
                return Err(failure);
            }
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= TRY_FOR {
                return Err(failure);
            }
            sleep(TRY_AGAIN).await;
        }
    }
}

/// `None`: it is worth waiting.
fn at_once(lookup: Lookup, surface: Surface) -> Option<Result<Arc<SandboxRecord>, Failure>> {
    let moving = match surface {
        Surface::AgentEnv => None,
        Surface::E2bHeader | Surface::E2bHost => Some(Err(Failure::Moving)),
    };
    match lookup {
        Lookup::Ready(record) => Some(Ok(record)),
        Lookup::Paused(record) => (!record.auto_resume).then_some(Err(Failure::Paused)),
        Lookup::Pausing(_) => moving,
        Lookup::Resuming(record) => moving.filter(|_| !record.auto_resume),
        Lookup::NotFound => Some(Err(Failure::NoSandbox)),
    }
}

fn failure(id: SandboxId, error: &ResumeError) -> Failure {
    match error {
        ResumeError::NotFound(_) | ResumeError::Killed | ResumeError::CheckpointLost => {
            Failure::NoSandbox
        }
        ResumeError::Busy
        | ResumeError::LimitReached { .. }
        | ResumeError::DiskFull
        | ResumeError::TimedOut
        | ResumeError::ZoneUnavailable => Failure::ResumeLater,
        ResumeError::Invalid(_)
        | ResumeError::AlreadyRunning(_)
        | ResumeError::CheckpointUnusable(_)
        | ResumeError::VolumeFileGone(_)
        | ResumeError::Failed
        | ResumeError::Store(_) => {
            tracing::error!(
                sandbox.id = %id,
                error = error as &dyn std::error::Error,
                "a sandbox was not woken"
            );
            Failure::NotResumed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each failure of a resume is to a request; the statuses are `refusal`'s.
    #[test]
    fn what_may_pass_by_itself_is_tried_again() {
        let id: SandboxId = "sbx_loc_0123456789abcdefghjk".parse().unwrap();
        let limit = ResumeError::LimitReached { what: "sandboxes".into(), limit: 1 };
        for (error, expected) in [
            (ResumeError::NotFound(id), Failure::NoSandbox),
            (ResumeError::CheckpointLost, Failure::NoSandbox),
            (ResumeError::Busy, Failure::ResumeLater),
            (limit, Failure::ResumeLater),
            (ResumeError::ZoneUnavailable, Failure::ResumeLater),
            (ResumeError::Failed, Failure::NotResumed),
            (ResumeError::CheckpointUnusable("why".into()), Failure::NotResumed),
        ] {
            assert_eq!(failure(id, &error), expected, "{error}");
        }
    }
}
