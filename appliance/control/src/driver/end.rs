//! How a life ends: killed, expired, or told to have ended.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{KillCause, Phase, SandboxRecord, lifecycle::Event};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{
    CheckpointId, Ended, OnDeadline, SandboxId, ZoneError, pause_overdue,
};
use tokio::time::{sleep, timeout};

use super::{Driver, FIRST_PAUSE, MAX_PAUSE};
use crate::context::Context;

impl Driver {
    /// Says again by the clock of now that its time is over: it may have been extended since.
    pub(super) async fn expire(&mut self) {
        let record = self.live.record();
        let at = self.context.now();
        let (expires_at, on_deadline) = match record.phase {
            Phase::Running { expires_at, .. } => (expires_at, record.spec.on_deadline),
            Phase::Starting { .. } => (record.spec.deadline, OnDeadline::Kill),
            Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Resuming { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => return,
        };
        if at < expires_at {
            return;
        }
        let done = match on_deadline {
            OnDeadline::Kill => self.kill_asked(KillCause::Expired).await.map(drop),
            OnDeadline::Pause(kept) => {
                match pause_overdue(kept, self.refusals.map(|all| all.ago(at))) {
                    Some(kept) => self.begin_pause(kept).await.map(drop),
                    None => Ok(()),
                }
            }
        };
        if let Err(error) = done {
            self.warn("can't record the end of an expired sandbox", &error);
        }
    }

    /// It makes room, so it goes on where a full disk takes no word of it: nobody is told that it
    /// is done before its end is written down, for which there is room by then.
    pub(super) async fn kill_asked(
        &mut self,
        cause: KillCause,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let before = self.live.record();
        let asked = Event::KillAsked { at: self.context.now(), cause };
        let Ok(phase) = before.phase.clone().apply(asked) else { return Ok(None) };
        let record = SandboxRecord { phase, ..(*before).clone() };
        match self.record(&before, record.clone()).await {
            Err(StoreError::DiskFull) => {
                let record = Arc::new(record);
                self.publish(&before, &record);
                self.write_later(FIRST_PAUSE, &StoreError::DiskFull);
                Ok(Some(record))
            }
            recorded => recorded.map(Some),
        }
    }

    /// Until the zone confirms that it is gone, and what it would have gone on from too.
    pub(super) fn kill(&mut self) {
        let (context, live) = (Arc::clone(&self.context), Arc::clone(&self.live));
        self.kill = Some(Box::pin(async move {
            kill(&context, live.id).await;
            // A pause that was under way may have come before the kill.
            if let Some(checkpoint) = live.record().phase.checkpoint()
                && !context.keeps(checkpoint, Some(live.id))
            {
                discard(&context, live.id, checkpoint).await;
            }
        }));
    }

    pub(super) async fn ended(&mut self, ended: &Ended) {
        match self.live.record().phase {
            // A resume that was given up has come to its end.
            Phase::Paused { .. } => self.acknowledge(),
            // Its start, or its withdrawal, has an answer of its own; what has really become of it
            // is in the zone's next hello.
            Phase::Resuming { .. } => self.resuming.ended_early = true,
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Pausing { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => {
                self.fact(Event::Ended { at: ended.at, reason: ended.reason }).await;
            }
        }
    }

    /// The zone forgets that it ended, and may start it again.
    pub(super) fn acknowledge(&self) {
        let (context, id) = (Arc::clone(&self.context), self.live.id);
        drop(self.context.tasks.spawn("acknowledge", |_stop| async move {
            acknowledge(&context, id).await;
        }));
    }

    /// What is not discarded now is after the zone's next hello.
    pub(super) fn discard_stale(&mut self) {
        if self.unwritten.is_some() {
            return;
        }
        for checkpoint in self.stale.drain(..) {
            self.context.discard_later(checkpoint, Some(self.live.id));
        }
    }
}

/// Again and again, until the zone confirms it.
pub(super) async fn kill(context: &Context, id: SandboxId) {
    let once = || async {
        match context.zone.kill(id).await {
            Ok(()) | Err(ZoneError::NotFound) => Ok(()),
            Err(error @ (ZoneError::Unavailable | ZoneError::Internal(_))) => Err(error),
        }
    };
    insist(context, id, "the zone has not confirmed a kill, asking again", once).await;
}

async fn discard(context: &Context, id: SandboxId, checkpoint: CheckpointId) {
    let once = || context.zone.discard(checkpoint);
    insist(context, id, "the zone has not discarded a checkpoint, asking again", once).await;
}

pub(super) async fn acknowledge(context: &Context, id: SandboxId) {
    let told = timeout(context.config.zone_budget, context.zone.acknowledge(vec![id]));
    if let Err(error) = told.await.unwrap_or(Err(ZoneError::Unavailable)) {
        // The zone mentions it in its next hello.
        tracing::debug!(
            sandbox.id = %id,
            error = &error as &dyn std::error::Error,
            "the zone did not take an acknowledgement"
        );
    }
}

async fn insist<F: Future<Output = Result<(), ZoneError>>>(
    context: &Context,
    id: SandboxId,
    what: &'static str,
    once: impl Fn() -> F,
) {
    let mut pause = Duration::from_millis(250);
    loop {
        let done = timeout(context.config.zone_budget, once()).await;
        let Err(error) = done.unwrap_or(Err(ZoneError::Unavailable)) else { return };
        tracing::warn!(sandbox.id = %id, error = &error as &dyn std::error::Error, "{what}");
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
