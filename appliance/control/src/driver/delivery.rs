//! Asking the zone to run a sandbox, until it has or time is over.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{SandboxRecord, StartFailure};
use sandboxo_zone_protocol::{CreateError, SandboxSpec, Started, Zone};
use tokio::time::{Instant, sleep, timeout};

use crate::context::Context;

#[derive(Debug)]
pub(crate) enum Delivered {
    Started(Started),
    /// Nothing is left behind.
    Refused(StartFailure),
    Killed,
    /// The zone may run it, or may yet.
    Unknown(StartFailure),
}

/// A zone that is away for longer than these pauses is away: callers want to hear it soon.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// Of a create's time, how much may pass before its turn; the rest is for the start.
const WAIT_SHARE: u32 = 2;
const OF: u32 = 3;

pub(super) async fn deliver(
    context: Arc<Context>,
    record: Arc<SandboxRecord>,
    budget: Duration,
) -> Delivered {
    let (id, starts) = (record.id, &context.starts);
    let begun = Instant::now();
    let turn = timeout(budget * WAIT_SHARE / OF, starts.turn(record.team)).await;
    let Ok(Some(_turn)) = turn else {
        let limit = starts.at_once() as u64;
        tracing::warn!(sandbox.id = %id, limit, "its turn to start did not come in time");
        let what = "starts at once".into();
        return Delivered::Refused(StartFailure::LimitReached { what, limit });
    };
    let left = budget.saturating_sub(begun.elapsed());
    match timeout(left, ask(Arc::clone(&context.zone), record.to_deliver())).await {
        Ok(delivered) => delivered,
        Err(_elapsed) => {
            tracing::error!(sandbox.id = %id, ?budget, "the zone did not answer a create in time");
            Delivered::Unknown(StartFailure::TimedOut)
        }
    }
}

async fn ask(zone: Arc<dyn Zone>, spec: SandboxSpec) -> Delivered {
    let mut pauses = PAUSES.into_iter();
    loop {
        let error = match zone.create(spec.clone()).await {
            Ok(started) => return Delivered::Started(started),
            Err(error) => error,
        };
        let failure = match error {
            CreateError::Killed => return Delivered::Killed,
            // The answer may have been lost; a repeat of a running one is a success.
            CreateError::Unavailable => match pauses.next() {
                Some(pause) => {
                    sleep(pause).await;
                    continue;
                }
                None => return Delivered::Unknown(StartFailure::Unavailable),
            },
            CreateError::ImageNotFound(_) => StartFailure::ImageNotFound,
            CreateError::CheckpointNotFound(_) => StartFailure::CheckpointLost,
            CreateError::CheckpointUnusable(ref why) => {
                StartFailure::CheckpointUnusable(why.clone())
            }
            CreateError::LimitReached { what, limit } => {
                return Delivered::Refused(StartFailure::LimitReached { what: what.into(), limit });
            }
            CreateError::DiskFull => StartFailure::DiskFull,
            CreateError::VolumeNotFound(_) => StartFailure::VolumeLost,
            CreateError::NotMounted(ref why) => StartFailure::NotMounted(why.clone()),
            CreateError::VolumeFileGone(ref path) => StartFailure::VolumeFileGone(path.clone()),
            CreateError::TimedOut(_) => StartFailure::TimedOut,
            CreateError::Runtime(_) => StartFailure::Runtime,
        };
        tracing::error!(
            sandbox.id = %spec.id,
            error = &error as &dyn std::error::Error,
            "the zone could not start a sandbox"
        );
        return Delivered::Refused(failure);
    }
}
