//! What the comparison of records and zone wants of one sandbox.

use sandboxo_model::{
    Phase, StartFailure,
    decide::reconcile::{BuryCause, KillWhy, Step},
    lifecycle::Event,
};
use sandboxo_zone_protocol::{CheckpointId, EndReason, Origin};

use super::Driver;

impl Driver {
    /// A plan may be older than what happened since, so each step is judged by the phase of now.
    pub(super) async fn reconcile(&mut self, planned: Step) {
        let record = self.live.record();
        let at = self.context.now();
        match (planned, &record.phase) {
            (Step::Deliver { .. }, Phase::Starting { .. } | Phase::Resuming { .. })
                if self.nothing_is_asked() =>
            {
                self.rules_in_force = true;
                self.deliver();
            }
            (Step::GiveUp { .. }, Phase::Starting { .. }) if self.nothing_is_asked() => {
                self.fact(Event::StartFailed { at, failure: StartFailure::TimedOut }).await;
            }
            (Step::GiveUp { .. }, Phase::Resuming { .. }) if self.nothing_is_asked() => {
                self.acknowledge();
                self.not_resumed(StartFailure::TimedOut).await;
            }
            (Step::Adopt { started_at, .. }, Phase::Starting { .. } | Phase::Resuming { .. })
                if self.resuming.withdrawal.is_none() =>
            {
                let expires_at = record.to_deliver().deadline;
                self.fact(Event::Started { at: started_at, expires_at }).await;
            }
            (Step::SetDeadline { .. }, Phase::Running { expires_at, .. }) => {
                if let Err(error) = self.tell_deadline(*expires_at).await {
                    self.warn("the zone did not take a deadline", &error);
                }
            }
            (Step::Pause { .. }, Phase::Pausing { kept, .. }) if self.pausing.flight.is_none() => {
                self.ask_for_pause(*kept);
            }
            (Step::Pause { .. } | Step::Kill { why: KillWhy::Expired, .. }, _) => {
                self.expire().await;
            }
            (Step::Paused { checkpoint, .. }, _) => self.zone_paused(checkpoint).await,
            (Step::Kill { why: KillWhy::Paused, .. }, Phase::Paused { .. })
                if self.nothing_is_asked() =>
            {
                self.withdraw();
            }
            (Step::Bury { at, cause: BuryCause::CheckpointLost(lost), .. }, phase)
                if phase.checkpoint() == Some(lost) && self.nothing_is_asked() =>
            {
                self.fact(Event::CheckpointLost { at }).await;
            }
            (Step::Bury { at, cause: BuryCause::Told(reason), .. }, _) => {
                self.fact(Event::Ended { at, reason }).await;
            }
            (
                Step::Bury { at, cause: BuryCause::ZoneRestarted, .. },
                Phase::Running { .. } | Phase::Pausing { .. } | Phase::Killing { .. },
            ) => {
                self.fact(Event::Ended { at, reason: EndReason::ZoneRestarted }).await;
            }
            (
                Step::Bury { at, cause: BuryCause::Missing, .. },
                Phase::Running { .. } | Phase::Pausing { .. } | Phase::Killing { .. },
            ) => {
                self.fact(Event::Vanished { at }).await;
            }
            (Step::Acknowledge { .. }, Phase::Paused { .. }) => self.acknowledge(),
            (Step::Discard { checkpoint, .. }, _) if !self.wants(checkpoint) => {
                self.stale.push(checkpoint);
            }
            // Overtaken by events, or, for a kill that is wanted, under way.
            (
                Step::Deliver { .. }
                | Step::GiveUp { .. }
                | Step::Adopt { .. }
                | Step::SetDeadline { .. }
                | Step::Kill { .. }
                | Step::Bury { .. }
                | Step::Acknowledge { .. }
                | Step::Discard { .. },
                _,
            ) => {}
        }
    }

    /// No start, and no end of one, is under way.
    fn nothing_is_asked(&self) -> bool {
        self.delivery.is_none() && self.resuming.withdrawal.is_none()
    }

    fn wants(&self, checkpoint: CheckpointId) -> bool {
        let record = self.live.record();
        let origin = match record.spec.origin {
            Origin::Checkpoint { id, .. } => Some(id),
            Origin::Image => None,
        };
        match record.phase {
            Phase::Starting { .. } => origin == Some(checkpoint),
            // It may be of this pause.
            Phase::Pausing { .. } => true,
            Phase::Running { .. }
            | Phase::Paused { .. }
            | Phase::Resuming { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => record.phase.checkpoint() == Some(checkpoint),
        }
    }
}
