//! Resuming: a start from what the pause has kept. One at a time; whoever asks while it is under
//! way waits for the same end, and nobody's leaving ends it.
//!
//! Where the zone's answer does not come, it may run all the same: then it is killed before it
//! counts as paused again.

use std::{sync::Arc, task::Poll, time::Duration};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    Phase, PhaseKind, SandboxRecord, Standing, StartFailure, decide::expiry, lifecycle::Event,
    rules,
};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{EndReason, ExecutionId, Kept, OnDeadline, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Delivered, Driver, Flight, MAX_DEFERRED, delivery, end,
    message::{self, Message, Reply},
};

#[derive(Default)]
pub(super) struct Resuming {
    /// Until the zone runs it no longer, whatever it has made of the resume.
    pub(super) withdrawal: Flight<()>,
    /// The zone has told of an end.
    pub(super) ended_early: bool,
    pub(super) waiting: Vec<Waiting>,
    failure: Option<StartFailure>,
    /// Everyone has left.
    seat: Option<OwnedSemaphorePermit>,
}

pub(super) struct Waiting {
    by: By,
    /// What it was promised when it asked.
    until: Timestamp,
    reply: Reply<ResumeOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) by: By,
    /// How long it is to live from now, at least.
    pub(crate) timeout: Duration,
    /// Only its files are wanted.
    pub(crate) reboot: bool,
    /// What is to happen after that; `None`: what did.
    pub(crate) auto_pause: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// It must be paused.
    Resume,
    /// It may be running, and lives longer then.
    Connect,
    /// It may be running, and that is all.
    Traffic,
}

pub(crate) type ResumeOutcome = Result<Woken, Unresumed>;

#[derive(Debug, Clone)]
pub(crate) struct Woken {
    pub(crate) record: Arc<SandboxRecord>,
    /// It was paused.
    pub(crate) resumed: bool,
}

/// Why not, for each of those that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unresumed {
    NotFound,
    AlreadyRunning,
    Busy,
    CheckpointLost,
    Killed,
    Failed(StartFailure),
}

impl Driver {
    pub(super) fn has_room(&self) -> bool {
        self.deferred.len() < MAX_DEFERRED
    }

    pub(super) async fn resume_asked(&mut self, wish: Wish, reply: Reply<ResumeOutcome>) {
        if wish.by == By::Traffic && reply.is_closed() {
            // Nothing is begun for nobody.
            return;
        }
        if self.live.record().standing(self.context.now()) == Standing::Asleep {
            // One whose pause is due is paused first.
            self.expire().await;
        }
        let record = self.live.record();
        let standing = record.standing(self.context.now());
        match (&record.phase, standing) {
            (Phase::Running { .. }, Standing::Usable { .. } | Standing::Asleep) => {
                let answer = self.already_running(wish).await;
                message::answer(reply, answer);
            }
            (Phase::Resuming { .. }, _) if !self.in_withdrawal() => {
                self.wait_for_it(wish, reply);
            }
            (Phase::Paused { .. }, _) if !self.in_withdrawal() => {
                match self.begin_resume(wish).await {
                    Ok(()) => self.wait_for_it(wish, reply),
                    Err(error) => message::answer(reply, Err(error)),
                }
            }
            (Phase::Pausing { .. } | Phase::Paused { .. } | Phase::Resuming { .. }, _)
                if self.has_room() =>
            {
                self.deferred.push_back(Message::Resume { wish, reply });
            }
            (Phase::Pausing { .. } | Phase::Paused { .. } | Phase::Resuming { .. }, _) => {
                message::answer(reply, Ok(Err(Unresumed::Busy)));
            }
            (
                Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Killing { .. }
                | Phase::Dead { .. },
                _,
            ) => message::answer(reply, Ok(Err(Unresumed::NotFound))),
        }
    }

    fn wait_for_it(&mut self, wish: Wish, reply: Reply<ResumeOutcome>) {
        let until = rules::after(self.context.now(), wish.timeout);
        self.resuming.waiting.push(Waiting { by: wish.by, until, reply });
    }

    fn in_withdrawal(&self) -> bool {
        self.resuming.withdrawal.is_some()
    }

    async fn already_running(&mut self, wish: Wish) -> Result<ResumeOutcome, StoreError> {
        match wish.by {
            By::Resume => return Ok(Err(Unresumed::AlreadyRunning)),
            By::Connect => {
                self.live_until(rules::after(self.context.now(), wish.timeout)).await?;
            }
            By::Traffic => {}
        }
        Ok(Ok(Woken { record: self.live.record(), resumed: false }))
    }

    /// At least.
    async fn live_until(&mut self, asked: Timestamp) -> Result<(), StoreError> {
        if let Phase::Running { expires_at, .. } = self.live.record().phase
            && expires_at < asked
        {
            self.set_expiry(asked).await?;
        }
        Ok(())
    }

    /// Written down, then asked of the zone.
    async fn begin_resume(&mut self, wish: Wish) -> Result<(), StoreError> {
        let before = self.live.record();
        let now = self.context.now();
        let asked = Event::ResumeAsked {
            reboot: wish.reboot,
            expires_at: rules::after(now, wish.timeout),
            give_up_at: rules::after(now, self.context.config.create_budget),
        };
        let Ok(phase) = before.phase.clone().apply(asked) else { return Ok(()) };
        let mut record = SandboxRecord { phase, ..(*before).clone() };
        record.spec.on_deadline = match (wish.auto_pause, record.spec.on_deadline) {
            (None, stays) | (Some(true), stays @ OnDeadline::Pause(_)) => stays,
            (Some(true), OnDeadline::Kill) => OnDeadline::Pause(Kept::Memory),
            (Some(false), _) => OnDeadline::Kill,
        };
        if let Some(identity) = &mut record.identity {
            identity.execution = ExecutionId::random(&*self.context.random);
        }
        self.record(&before, record).await?;
        self.resuming.failure = None;
        self.resuming.ended_early = false;
        self.rules_in_force = true;
        self.deliver();
        Ok(())
    }

    pub(super) fn deliver(&mut self) {
        let record = self.live.record();
        let give_up_at = match record.phase {
            Phase::Starting { give_up_at } | Phase::Resuming { give_up_at, .. } => give_up_at,
            Phase::Running { .. }
            | Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => return,
        };
        let planned = self.context.config.create_budget;
        let budget = expiry::left(give_up_at, self.context.now(), planned);
        let context = Arc::clone(&self.context);
        self.delivery = Some(Box::pin(delivery::deliver(context, record, budget)));
    }

    pub(super) async fn delivered(&mut self, delivered: Delivered) {
        self.delivery = None;
        crashpoint(Point::CreateDelivered);
        let at = self.context.now();
        let record = self.live.record();
        let resuming = record.phase.kind() == PhaseKind::Resuming;
        let event = match delivered {
            Delivered::Started(started) => {
                if resuming && self.resuming.ended_early {
                    self.context.nudge_zone.notify_one();
                }
                Event::Started { at: started.at, expires_at: record.to_deliver().deadline }
            }
            Delivered::Refused(failure) if resuming => return self.not_resumed(failure).await,
            Delivered::Refused(failure) => Event::StartFailed { at, failure },
            // Of another life of it, since nobody has killed this one.
            Delivered::Killed if resuming => {
                self.acknowledge();
                return self.not_resumed(StartFailure::Unavailable).await;
            }
            Delivered::Killed => Event::Ended { at, reason: EndReason::Killed },
            Delivered::Unknown(failure) if resuming => {
                self.resuming.failure = Some(failure);
                return self.withdraw();
            }
            Delivered::Unknown(failure) => Event::StartAbandoned { at, failure },
        };
        self.fact(event).await;
    }

    pub(super) async fn not_resumed(&mut self, failure: StartFailure) {
        let at = self.context.now();
        self.resuming.failure = Some(failure.clone());
        self.fact(Event::StartFailed { at, failure }).await;
    }

    /// Those that wait hear of the failure at once.
    pub(super) fn withdraw(&mut self) {
        self.delivery = None;
        if let Some(failure) = self.resuming.failure.clone() {
            for Waiting { reply, .. } in self.resuming.waiting.drain(..) {
                message::answer(reply, Ok(Err(Unresumed::Failed(failure.clone()))));
            }
        }
        let (context, id) = (Arc::clone(&self.context), self.live.id);
        self.resuming.withdrawal = Some(Box::pin(async move {
            end::kill(&context, id).await;
            end::acknowledge(&context, id).await;
        }));
    }

    pub(super) async fn withdrawn(&mut self) {
        self.resuming.withdrawal = None;
        if self.live.record().phase.kind() == PhaseKind::Resuming {
            let failure = self.resuming.failure.clone();
            self.not_resumed(failure.unwrap_or(StartFailure::Unavailable)).await;
        }
    }

    pub(super) fn goes_on_for_nobody(&mut self) {
        self.resuming.waiting.clear();
        match Arc::clone(&self.context.for_nobody).try_acquire_owned() {
            Ok(seat) => self.resuming.seat = Some(seat),
            Err(_too_many) => {
                self.resuming.failure = Some(StartFailure::Unavailable);
                self.withdraw();
            }
        }
    }

    pub(super) async fn answer_resumers(&mut self) {
        let record = self.live.record();
        if record.phase.kind() == PhaseKind::Resuming {
            return;
        }
        self.resuming.seat = None;
        let waiting = std::mem::take(&mut self.resuming.waiting);
        if waiting.is_empty() {
            return;
        }
        let outcome = match &record.phase {
            Phase::Running { .. } => {
                let longest = waiting.iter().map(|it| it.until).max().unwrap_or_default();
                if let Err(error) = self.live_until(longest).await {
                    self.warn("can't record the timeout of a resumed sandbox", &error);
                }
                Ok(Woken { record: self.live.record(), resumed: true })
            }
            Phase::Dead { reason: sandboxo_model::DeathReason::CheckpointLost, .. } => {
                Err(Unresumed::CheckpointLost)
            }
            Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. } => {
                Err(Unresumed::Killed)
            }
            Phase::Pausing { .. } | Phase::Paused { .. } | Phase::Resuming { .. } => {
                let failure = self.resuming.failure.clone();
                Err(Unresumed::Failed(failure.unwrap_or(StartFailure::Unavailable)))
            }
        };
        for Waiting { reply, .. } in waiting {
            message::answer(reply, Ok(outcome.clone()));
        }
    }
}

/// Ready when requests are all that have waited, and their clients have left.
pub(super) async fn all_left(waiting: &mut [Waiting]) {
    if waiting.is_empty() || waiting.iter().any(|it| it.by != By::Traffic) {
        return std::future::pending().await;
    }
    std::future::poll_fn(|context| {
        let left = waiting.iter_mut().all(|it| it.reply.poll_closed(context).is_ready());
        if left { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
