//! Asking the zone to run a sandbox, until it has or time is over.

use std::{sync::Arc, time::Duration};

use sandboxo_model::StartFailure;
use sandboxo_zone_protocol::{CreateError, SandboxSpec, Started, Zone};
use tokio::time::{sleep, timeout};

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

pub(super) async fn deliver(zone: Arc<dyn Zone>, spec: SandboxSpec, budget: Duration) -> Delivered {
    let id = spec.id;
    match timeout(budget, ask(zone, spec)).await {
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
            CreateError::LimitReached { what, limit } => {
                return Delivered::Refused(StartFailure::LimitReached { what: what.into(), limit });
            }
            CreateError::DiskFull => StartFailure::DiskFull,
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
