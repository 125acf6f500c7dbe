//! The life of a sandbox. Nothing else decides which moves are legal; the table in this file's
//! test is the whole policy.
//!
//! ```text
//! starting ──► running ◄──► pausing ──► paused ◄──► resuming ──► running
//!
//! any of them ──► killing ──► dead
//! ```
//!
//! Events are at least once: the zone may repeat what it said, and a client what it asked.

use std::{borrow::Cow, fmt};

use sandboxo_zone_protocol::{CheckpointId, EndReason, Kept, Timestamp};

/// A phase carries exactly the facts that exist in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Committed; the zone is being asked, until `give_up_at` at most.
    Starting {
        give_up_at: Timestamp,
    },
    Running {
        started_at: Timestamp,
        expires_at: Timestamp,
    },
    /// The zone is being asked; until it has paused it, it runs.
    Pausing {
        started_at: Timestamp,
        expires_at: Timestamp,
        asked_at: Timestamp,
        kept: Kept,
    },
    /// Nothing runs; the zone has the checkpoint.
    Paused {
        started_at: Timestamp,
        paused_at: Timestamp,
        checkpoint: CheckpointId,
        kept: Kept,
    },
    /// Committed; the zone is being asked, until `give_up_at` at most. The checkpoint stays until
    /// it runs.
    Resuming {
        started_at: Timestamp,
        paused_at: Timestamp,
        checkpoint: CheckpointId,
        kept: Kept,
        /// Only its files are wanted.
        reboot: bool,
        expires_at: Timestamp,
        give_up_at: Timestamp,
    },
    /// Its end is wanted, and the zone has not confirmed it yet.
    Killing {
        asked_at: Timestamp,
        cause: KillCause,
        started_at: Option<Timestamp>,
        /// To be discarded first.
        checkpoint: Option<CheckpointId>,
    },
    Dead {
        at: Timestamp,
        reason: DeathReason,
        started_at: Option<Timestamp>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseKind {
    Starting,
    Running,
    Pausing,
    Paused,
    Resuming,
    Killing,
    Dead,
}

/// Why control wants it gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KillCause {
    Asked,
    /// Its time was over and the zone had not ended it.
    Expired,
    /// The start failed in a way that may have left something in the zone.
    StartFailed(StartFailure),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeathReason {
    /// It never ran.
    StartFailed(StartFailure),
    /// It ran, or was killed before it did.
    Ended(EndReason),
    /// The zone has no trace of it, though it was not restarted.
    Missing,
    /// It was paused, and the zone no longer has what it would go on from.
    CheckpointLost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    ImageNotFound,
    CheckpointLost,
    /// The zone's words: which runtime it would take.
    CheckpointUnusable(String),
    LimitReached {
        what: Cow<'static, str>,
        limit: u64,
    },
    DiskFull,
    /// It was mounted by nobody, and removed.
    VolumeLost,
    /// The zone's words: the path, and what is wrong with it.
    NotMounted(String),
    /// Its path.
    VolumeFileGone(String),
    TimedOut,
    Runtime,
    Unavailable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The zone runs it, until the deadline that it was delivered with.
    Started {
        at: Timestamp,
        expires_at: Timestamp,
    },
    /// The zone says that nothing was left behind.
    StartFailed {
        at: Timestamp,
        failure: StartFailure,
    },
    /// Nobody knows what the zone made of it.
    StartAbandoned {
        at: Timestamp,
        failure: StartFailure,
    },
    TimeoutSet {
        expires_at: Timestamp,
    },
    PauseAsked {
        at: Timestamp,
        kept: Kept,
    },
    /// It goes on as if nobody had asked.
    PauseRefused,
    /// The zone says so, asked or not.
    Paused {
        at: Timestamp,
        checkpoint: CheckpointId,
        kept: Kept,
    },
    ResumeAsked {
        reboot: bool,
        expires_at: Timestamp,
        give_up_at: Timestamp,
    },
    /// The zone has no such checkpoint.
    CheckpointLost {
        at: Timestamp,
    },
    KillAsked {
        at: Timestamp,
        cause: KillCause,
    },
    /// The zone says that it runs no longer.
    Ended {
        at: Timestamp,
        reason: EndReason,
    },
    /// The zone knows nothing of it.
    Vanished {
        at: Timestamp,
    },
    /// The zone has killed it, and discarded its checkpoint.
    KillConfirmed {
        at: Timestamp,
    },
}

/// Clients may read this, so it names the phase and shows none of its facts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {phase} sandbox can't be {event}")]
pub struct IllegalMove {
    phase: PhaseKind,
    event: &'static str,
}

impl Phase {
    pub fn apply(self, event: Event) -> Result<Self, IllegalMove> {
        use Event as E;
        match (self, event) {
            (Self::Starting { .. }, E::Started { at, expires_at }) => {
                Ok(Self::Running { started_at: at, expires_at })
            }
            (Self::Resuming { started_at, .. }, E::Started { expires_at, .. })
            | (Self::Running { started_at, .. }, E::TimeoutSet { expires_at })
            | (Self::Pausing { started_at, expires_at, .. }, E::PauseRefused) => {
                Ok(Self::Running { started_at, expires_at })
            }
            (Self::Starting { .. }, E::StartFailed { at, failure }) => {
                Ok(Self::Dead { at, reason: DeathReason::StartFailed(failure), started_at: None })
            }
            (
                Self::Resuming { started_at, .. },
                E::StartFailed { at, failure: StartFailure::CheckpointLost },
            )
            | (
                Self::Paused { started_at, .. } | Self::Resuming { started_at, .. },
                E::CheckpointLost { at },
            ) => Ok(Self::Dead {
                at,
                reason: DeathReason::CheckpointLost,
                started_at: Some(started_at),
            }),
            // What it would have gone on from is still there: another try may do better.
            (
                Self::Resuming { started_at, paused_at, checkpoint, kept, .. },
                E::StartFailed { .. } | E::Ended { .. } | E::Vanished { .. },
            ) => Ok(Self::Paused { started_at, paused_at, checkpoint, kept }),
            (Self::Starting { .. }, E::StartAbandoned { at, failure }) => Ok(Self::Killing {
                asked_at: at,
                cause: KillCause::StartFailed(failure),
                started_at: None,
                checkpoint: None,
            }),
            (Self::Running { started_at, expires_at }, E::PauseAsked { at, kept }) => {
                Ok(Self::Pausing { started_at, expires_at, asked_at: at, kept })
            }
            // It ran from the one it had, and was paused again.
            (
                Self::Resuming { started_at, checkpoint: from, .. },
                E::Paused { at, checkpoint, kept },
            ) if from != checkpoint => {
                Ok(Self::Paused { started_at, paused_at: at, checkpoint, kept })
            }
            (
                Self::Running { started_at, .. } | Self::Pausing { started_at, .. },
                E::Paused { at, checkpoint, kept },
            ) => Ok(Self::Paused { started_at, paused_at: at, checkpoint, kept }),
            // It started unseen.
            (Self::Starting { .. }, E::Paused { at, checkpoint, kept }) => {
                Ok(Self::Paused { started_at: at, paused_at: at, checkpoint, kept })
            }
            (Self::Killing { asked_at, cause, started_at, .. }, E::Paused { checkpoint, .. }) => {
                Ok(Self::Killing { asked_at, cause, started_at, checkpoint: Some(checkpoint) })
            }
            (
                Self::Paused { started_at, paused_at, checkpoint, kept },
                E::ResumeAsked { reboot, expires_at, give_up_at },
            ) => Ok(Self::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept,
                reboot,
                expires_at,
                give_up_at,
            }),
            (
                phase @ (Self::Starting { .. }
                | Self::Running { .. }
                | Self::Pausing { .. }
                | Self::Paused { .. }
                | Self::Resuming { .. }),
                E::KillAsked { at, cause },
            ) => Ok(Self::Killing {
                asked_at: at,
                cause,
                started_at: phase.started_at(),
                checkpoint: phase.checkpoint(),
            }),
            (
                phase @ (Self::Starting { .. } | Self::Running { .. } | Self::Pausing { .. }),
                E::Ended { at, reason },
            ) => Ok(Self::Dead {
                at,
                reason: DeathReason::Ended(reason),
                started_at: phase.started_at(),
            }),
            (
                Self::Running { started_at, .. } | Self::Pausing { started_at, .. },
                E::Vanished { at },
            ) => Ok(Self::Dead { at, reason: DeathReason::Missing, started_at: Some(started_at) }),
            // The cause that was written down first is the one that stays, whatever the zone
            // calls it: an expired one that we killed has timed out.
            (
                Self::Killing { cause, started_at, checkpoint: None, .. },
                E::Ended { at, .. } | E::Vanished { at } | E::StartFailed { at, .. },
            )
            | (Self::Killing { cause, started_at, .. }, E::KillConfirmed { at }) => {
                Ok(Self::Dead { at, reason: cause.death(), started_at })
            }
            // Said twice is said once; and one with a checkpoint ends when that is discarded.
            (phase @ (Self::Running { .. } | Self::Pausing { .. }), E::Started { .. })
            | (phase @ Self::Pausing { .. }, E::PauseAsked { .. })
            | (
                phase @ Self::Paused { .. },
                E::Paused { .. } | E::Ended { .. } | E::Vanished { .. },
            )
            | (phase @ Self::Resuming { .. }, E::Paused { .. } | E::ResumeAsked { .. })
            | (
                phase @ Self::Killing { .. },
                E::KillAsked { .. }
                | E::Started { .. }
                | E::StartAbandoned { .. }
                | E::StartFailed { .. }
                | E::PauseRefused
                | E::Ended { .. }
                | E::Vanished { .. },
            )
            | (
                phase @ Self::Dead { .. },
                E::KillAsked { .. }
                | E::Ended { .. }
                | E::Vanished { .. }
                | E::KillConfirmed { .. },
            ) => Ok(phase),
            (phase, event) => Err(IllegalMove { phase: phase.kind(), event: event.name() }),
        }
    }

    pub fn kind(&self) -> PhaseKind {
        match self {
            Self::Starting { .. } => PhaseKind::Starting,
            Self::Running { .. } => PhaseKind::Running,
            Self::Pausing { .. } => PhaseKind::Pausing,
            Self::Paused { .. } => PhaseKind::Paused,
            Self::Resuming { .. } => PhaseKind::Resuming,
            Self::Killing { .. } => PhaseKind::Killing,
            Self::Dead { .. } => PhaseKind::Dead,
        }
    }

    pub fn started_at(&self) -> Option<Timestamp> {
        match *self {
            Self::Starting { .. } => None,
            Self::Running { started_at, .. }
            | Self::Pausing { started_at, .. }
            | Self::Paused { started_at, .. }
            | Self::Resuming { started_at, .. } => Some(started_at),
            Self::Killing { started_at, .. } | Self::Dead { started_at, .. } => started_at,
        }
    }

    /// What it would go on from, or what is to be discarded with it.
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        match *self {
            Self::Paused { checkpoint, .. } | Self::Resuming { checkpoint, .. } => Some(checkpoint),
            Self::Killing { checkpoint, .. } => checkpoint,
            Self::Starting { .. }
            | Self::Running { .. }
            | Self::Pausing { .. }
            | Self::Dead { .. } => None,
        }
    }
}

impl KillCause {
    /// What it will have died of once it is gone.
    fn death(self) -> DeathReason {
        match self {
            Self::Asked => DeathReason::Ended(EndReason::Killed),
            Self::Expired => DeathReason::Ended(EndReason::TimedOut),
            Self::StartFailed(failure) => DeathReason::StartFailed(failure),
        }
    }
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::StartFailed { .. } => "refused by its zone",
            Self::StartAbandoned { .. } => "abandoned",
            Self::TimeoutSet { .. } => "given a timeout",
            Self::PauseAsked { .. } => "asked to pause",
            Self::PauseRefused => "refused a pause",
            Self::Paused { .. } => "paused",
            Self::ResumeAsked { .. } => "resumed",
            Self::CheckpointLost { .. } => "without its checkpoint",
            Self::KillAsked { .. } => "killed",
            Self::Ended { .. } => "ended",
            Self::Vanished { .. } => "missing",
            Self::KillConfirmed { .. } => "gone",
        }
    }
}

impl fmt::Display for PhaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Killing => "killing",
            Self::Dead => "dead",
        })
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ImageNotFound => "the zone had no such image",
            Self::CheckpointLost => "the zone had no such checkpoint",
            Self::CheckpointUnusable(why) => {
                return write!(f, "the checkpoint can't be restored: {why}");
            }
            Self::LimitReached { what, limit } => {
                return write!(f, "the zone's limit of {limit} {what} was reached");
            }
            Self::DiskFull => "the zone's disk was full",
            Self::VolumeLost => "the zone had no such volume",
            Self::NotMounted(why) => return write!(f, "a volume was not mounted: {why}"),
            Self::VolumeFileGone(path) => {
                return write!(f, "a file in a volume that was open is gone: {path}");
            }
            Self::TimedOut => "it did not start in time",
            Self::Runtime => "the runtime failed to start it",
            Self::Unavailable => "the zone was not available",
        })
    }
}

impl fmt::Display for DeathReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartFailed(failure) => return write!(f, "not started: {failure}"),
            Self::Missing => "missing",
            Self::CheckpointLost => "checkpoint lost",
            Self::Ended(EndReason::Killed) => "killed",
            Self::Ended(EndReason::TimedOut) => "timed out",
            Self::Ended(EndReason::OutOfMemory) => "out of memory",
            Self::Ended(EndReason::Crashed) => "crashed",
            Self::Ended(EndReason::AgentLost) => "agent lost",
            Self::Ended(EndReason::KeeperLost) => "keeper lost",
            Self::Ended(EndReason::ZoneRestarted) => "zone restarted",
            Self::Ended(EndReason::CheckpointFailed) => "checkpoint failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timestamp = Timestamp::UNIX_EPOCH;

    /// `killing+` has a checkpoint. A resume that is refused for want of its checkpoint is `lost`.
    const TABLE: &str = "
         started  refused  lost     abandon  timeout  pause    unpaused paused   resume   gone     kill     ended    vanished killed
starting running  dead     dead     killing  -        -        -        paused   -        -        killing  dead     -        -
running  running  -        -        -        running  pausing  -        paused   -        -        killing  dead     dead     -
pausing  pausing  -        -        -        -        pausing  running  paused   -        -        killing  dead     dead     -
paused   -        -        -        -        -        -        -        paused   resuming dead     killing  paused   paused   -
resuming running  paused   dead     -        -        -        -        paused   resuming dead     killing  paused   paused   -
killing  killing  dead     dead     killing  -        -        killing  killing  -        -        killing  dead     dead     dead
killing+ killing  killing  killing  killing  -        -        killing  killing  -        -        killing  killing  killing  dead
dead     -        -        -        -        -        -        -        -        -        -        dead     dead     dead     dead
";

    fn checkpoint(n: u8) -> CheckpointId {
        format!("{n:020}").parse().unwrap()
    }

    fn paused(n: u8) -> Phase {
        let checkpoint = checkpoint(n);
        Phase::Paused { started_at: T, paused_at: T, checkpoint, kept: Kept::Memory }
    }

    fn resuming(n: u8) -> Phase {
        let asked = Event::ResumeAsked { reboot: false, expires_at: T, give_up_at: T };
        paused(n).apply(asked).unwrap()
    }

    fn phases() -> [(&'static str, Phase); 8] {
        let killing = |checkpoint| Phase::Killing {
            asked_at: T,
            cause: KillCause::Asked,
            started_at: None,
            checkpoint,
        };
        let kept = Kept::Memory;
        [
            ("starting", Phase::Starting { give_up_at: T }),
            ("running", Phase::Running { started_at: T, expires_at: T }),
            ("pausing", Phase::Pausing { started_at: T, expires_at: T, asked_at: T, kept }),
            ("paused", paused(1)),
            ("resuming", resuming(1)),
            ("killing", killing(None)),
            ("killing+", killing(Some(checkpoint(1)))),
            ("dead", Phase::Dead { at: T, reason: DeathReason::Missing, started_at: None }),
        ]
    }

    fn events() -> [(&'static str, Event); 14] {
        let failure = StartFailure::TimedOut;
        let lost = StartFailure::CheckpointLost;
        let kept = Kept::Memory;
        [
            ("started", Event::Started { at: T, expires_at: T }),
            ("refused", Event::StartFailed { at: T, failure: failure.clone() }),
            ("lost", Event::StartFailed { at: T, failure: lost }),
            ("abandon", Event::StartAbandoned { at: T, failure }),
            ("timeout", Event::TimeoutSet { expires_at: T }),
            ("pause", Event::PauseAsked { at: T, kept }),
            ("unpaused", Event::PauseRefused),
            ("paused", Event::Paused { at: T, checkpoint: checkpoint(2), kept }),
            ("resume", Event::ResumeAsked { reboot: false, expires_at: T, give_up_at: T }),
            ("gone", Event::CheckpointLost { at: T }),
            ("kill", Event::KillAsked { at: T, cause: KillCause::Asked }),
            ("ended", Event::Ended { at: T, reason: EndReason::Crashed }),
            ("vanished", Event::Vanished { at: T }),
            ("killed", Event::KillConfirmed { at: T }),
        ]
    }

    #[test]
    fn table() {
        let mut lines = vec![format!("{:8}", "")];
        lines[0].extend(events().iter().map(|(name, _)| format!(" {name:8}")));
        for (name, phase) in phases() {
            let mut line = format!("{name:8}");
            for (_, event) in events() {
                let to = phase.clone().apply(event);
                let to = to.map_or_else(|_| "-".to_owned(), |phase| phase.kind().to_string());
                line = format!("{line} {to:8}");
            }
            lines.push(line);
        }
        let printed: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        assert_eq!(printed.join("\n"), TABLE.trim_matches('\n'));
    }

    #[test]
    fn which_checkpoint_counts() {
        let told = |n| Event::Paused { at: T, checkpoint: checkpoint(n), kept: Kept::Memory };
        let after = |phase: Phase, n| phase.apply(told(n)).unwrap();
        assert_eq!(after(paused(1), 2), paused(1), "what is recorded stays");
        assert_eq!(after(resuming(1), 1), resuming(1), "an echo of the pause before");
        assert_eq!(after(resuming(1), 2), paused(2), "it ran, and was paused again");
        let kill = Event::KillAsked { at: T, cause: KillCause::Asked };
        for phase in [paused(1), resuming(1)] {
            assert_eq!(phase.apply(kill.clone()).unwrap().checkpoint(), Some(checkpoint(1)));
        }
        let running = Phase::Running { started_at: T, expires_at: T };
        let killing = running.apply(kill).unwrap();
        assert_eq!(
            (killing.checkpoint(), after(killing, 2).checkpoint()),
            (None, Some(checkpoint(2)))
        );
    }

    #[test]
    fn a_resume_goes_on_with_the_life_it_had() {
        let second = |s| Timestamp::from_second(s).unwrap();
        let (checkpoint, kept) = (checkpoint(1), Kept::Files);
        let running = Phase::Running { started_at: second(1), expires_at: second(9) };
        let pausing = running.clone().apply(Event::PauseAsked { at: second(2), kept }).unwrap();
        assert_eq!(pausing.clone().apply(Event::PauseRefused).unwrap(), running);
        let paused = pausing.apply(Event::Paused { at: second(3), checkpoint, kept }).unwrap();
        let (started_at, paused_at) = (second(1), second(3));
        assert_eq!(paused, Phase::Paused { started_at, paused_at, checkpoint, kept });
        let asked =
            Event::ResumeAsked { reboot: true, expires_at: second(30), give_up_at: second(8) };
        let resuming = paused.clone().apply(asked).unwrap();
        let failed = Event::StartFailed { at: second(8), failure: StartFailure::DiskFull };
        assert_eq!(resuming.clone().apply(failed).unwrap(), paused);
        let started = Event::Started { at: second(5), expires_at: second(30) };
        let running = Phase::Running { started_at, expires_at: second(30) };
        assert_eq!(resuming.apply(started).unwrap(), running);
    }

    #[test]
    fn the_first_cause_stays() {
        let second = |s| Timestamp::from_second(s).unwrap();
        let running = Phase::Running { started_at: second(1), expires_at: second(9) };
        let dead = |cause| {
            let killing = running.clone().apply(Event::KillAsked { at: second(2), cause }).unwrap();
            let again = Event::KillAsked { at: second(3), cause: KillCause::Asked };
            let killing = killing.apply(again).unwrap();
            killing.apply(Event::Ended { at: second(4), reason: EndReason::Killed }).unwrap()
        };
        let ended = |reason| Phase::Dead {
            at: second(4),
            reason: DeathReason::Ended(reason),
            started_at: Some(second(1)),
        };
        assert_eq!(dead(KillCause::Expired), ended(EndReason::TimedOut));
        assert_eq!(dead(KillCause::Asked), ended(EndReason::Killed));
        let twice = ended(EndReason::Crashed)
            .apply(Event::Ended { at: second(8), reason: EndReason::Killed })
            .unwrap();
        assert_eq!(twice, ended(EndReason::Crashed));
    }

    #[test]
    fn an_illegal_move_names_phase_and_event() {
        let dead = Phase::Dead { at: T, reason: DeathReason::Missing, started_at: None };
        let error = dead.apply(Event::TimeoutSet { expires_at: T }).unwrap_err();
        assert_eq!(error.to_string(), "a dead sandbox can't be given a timeout");
    }
}
