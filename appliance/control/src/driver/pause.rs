//! Pausing: asked by a client or because time is over, or told by the zone. One pause at a time;
//! whoever asks while it is under way waits for the same end.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{
    Phase, PhaseKind, SandboxRecord, Standing, decide::expiry::Refusals, lifecycle::Event,
};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Checkpoint, EndReason, Kept, PauseError, SandboxId};
use tokio::time::{sleep, timeout};

use super::{
    Driver, Flight,
    message::{self, Message, Reply},
};
use crate::context::Context;

#[derive(Default)]
pub(super) struct Pausing {
    pub(super) flight: Flight<Result<Checkpoint, Unpaused>>,
    waiting: Vec<Reply<PauseOutcome>>,
    /// Of the last one.
    refusal: Option<Unpaused>,
}

pub(crate) type PauseOutcome = Result<Arc<SandboxRecord>, Unpaused>;

/// Why not, for each of those that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unpaused {
    NotFound,
    AlreadyPaused,
    Busy,
    DiskFull,
    AgentUnresponsive,
    DeletedFileOpen(String),
    /// The sandbox ended of it.
    Ended,
    TimedOut,
    Failed,
    ZoneUnavailable,
}

/// A zone that is away for longer is away.
const UNAVAILABLE: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];
/// It starts, or pauses it by itself.
const BUSY: Duration = Duration::from_millis(250);

impl Driver {
    pub(super) async fn pause_asked(&mut self, kept: Kept, reply: Reply<PauseOutcome>) {
        let record = self.live.record();
        let running = record.standing(self.context.now()) != Standing::Gone;
        match record.phase {
            Phase::Running { .. } if running => match self.begin_pause(kept).await {
                Ok(()) => self.pausing.waiting.push(reply),
                Err(error) => message::answer(reply, Err(error)),
            },
            Phase::Pausing { .. } => self.pausing.waiting.push(reply),
            Phase::Resuming { .. } if self.has_room() => {
                self.deferred.push_back(Message::Pause { kept, reply });
            }
            Phase::Resuming { .. } => message::answer(reply, Ok(Err(Unpaused::Busy))),
            Phase::Paused { .. } => message::answer(reply, Ok(Err(Unpaused::AlreadyPaused))),
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => message::answer(reply, Ok(Err(Unpaused::NotFound))),
        }
    }

    /// Written down, then asked of the zone.
    pub(super) async fn begin_pause(&mut self, kept: Kept) -> Result<(), StoreError> {
        let asked = Event::PauseAsked { at: self.context.now(), kept };
        if self.intent(asked).await?.is_some() {
            self.ask_for_pause(kept);
        }
        Ok(())
    }

    pub(super) fn ask_for_pause(&mut self, kept: Kept) {
        let (context, live) = (Arc::clone(&self.context), Arc::clone(&self.live));
        self.pausing.refusal = None;
        self.pausing.flight = Some(Box::pin(async move {
            ask(&context, live.id, || context.zone.pause(live.id, kept)).await
        }));
    }

    pub(super) async fn pause_answered(&mut self, answer: Result<Checkpoint, Unpaused>) {
        self.pausing.flight = None;
        let at = self.context.now();
        match answer {
            Ok(checkpoint) => {
                self.zone_paused(checkpoint).await;
                if self.live.record().phase.kind() == PhaseKind::Pausing {
                    // Of a pause long ago: it has ended since.
                    self.context.nudge_zone.notify_one();
                }
            }
            Err(Unpaused::Ended) => {
                self.fact(Event::Ended { at, reason: EndReason::CheckpointFailed }).await;
            }
            // It has ended, or is paused already: its hello tells which.
            Err(Unpaused::NotFound) => self.context.nudge_zone.notify_one(),
            Err(refusal) => {
                self.pausing.refusal = Some(refusal.clone());
                let record = self.live.record();
                let overdue = matches!(
                    record.phase,
                    Phase::Pausing { expires_at, .. } if expires_at <= at
                );
                if overdue && refusal != Unpaused::ZoneUnavailable {
                    let first = self.refusals.map_or(at, |refusals| refusals.first);
                    self.refusals = Some(Refusals { first, last: at });
                }
                self.fact(Event::PauseRefused).await;
            }
        }
    }

    /// Whether it was asked for or not.
    pub(super) async fn zone_paused(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { id, kept, at, .. } = checkpoint;
        // Others start only from what is recorded as its pause already.
        let of_others = self.live.record().phase.checkpoint() != Some(id)
            && self.context.keeps(id, Some(self.live.id));
        if self.left.contains(&id) || of_others {
            return;
        }
        self.fact(Event::Paused { at, checkpoint: id, kept }).await;
        let record = self.live.record();
        if record.phase.checkpoint() != Some(id) {
            self.stale.push(id);
        }
        if record.phase.kind() == PhaseKind::Paused {
            self.refusals = None;
            self.delivery = None;
            self.pausing.flight = None;
        }
    }

    pub(super) fn answer_pausers(&mut self) {
        let record = self.live.record();
        let outcome = match record.phase {
            Phase::Pausing { .. } => return,
            Phase::Paused { .. } | Phase::Resuming { .. } => Ok(record),
            Phase::Running { .. } => Err(self.pausing.refusal.clone().unwrap_or(Unpaused::Failed)),
            Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. } => {
                Err(Unpaused::Ended)
            }
        };
        for reply in self.pausing.waiting.drain(..) {
            message::answer(reply, Ok(outcome.clone()));
        }
    }
}

/// `once`: a pause or a snapshot. Repeats it where that may help, as long as there is time.
pub(crate) async fn ask<F: Future<Output = Result<Checkpoint, PauseError>>>(
    context: &Context,
    id: SandboxId,
    once: impl Fn() -> F,
) -> Result<Checkpoint, Unpaused> {
    let budget = context.config.pause_budget;
    let asked = timeout(budget, async {
        let mut unavailable = UNAVAILABLE.into_iter();
        loop {
            let error = match once().await {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(error) => error,
            };
            let pause = match error {
                PauseError::Busy => Some(BUSY),
                PauseError::Unavailable => unavailable.next(),
                PauseError::NotFound
                | PauseError::DiskFull { .. }
                | PauseError::AgentUnresponsive
                | PauseError::DeletedFileOpen(_)
                | PauseError::Ended
                | PauseError::Internal(_) => None,
            };
            let Some(pause) = pause else {
                tracing::warn!(
                    sandbox.id = %id,
                    error = &error as &dyn std::error::Error,
                    "the zone made no checkpoint of a sandbox"
                );
                return Err(error.into());
            };
            sleep(pause).await;
        }
    });
    asked.await.unwrap_or_else(|_elapsed| {
        tracing::error!(sandbox.id = %id, ?budget, "the zone made no checkpoint in time");
        Err(Unpaused::TimedOut)
    })
}

impl From<PauseError> for Unpaused {
    fn from(error: PauseError) -> Self {
        match error {
            PauseError::NotFound => Self::NotFound,
            PauseError::Busy => Self::Busy,
            PauseError::DiskFull { .. } => Self::DiskFull,
            PauseError::AgentUnresponsive => Self::AgentUnresponsive,
            PauseError::DeletedFileOpen(path) => Self::DeletedFileOpen(path),
            PauseError::Ended => Self::Ended,
            PauseError::Unavailable => Self::ZoneUnavailable,
            PauseError::Internal(_) => Self::Failed,
        }
    }
}
