//! The life of a sandbox. Nothing else decides which moves are legal; the table in this file's
//! test is the whole policy.
//!
//! ```text
//! starting ──► running ──► killing ──► dead
//!     └───────────┴───────────────────►
//! ```
//!
//! Events are at least once: the zone may repeat what it said, and a client what it asked.

use std::{borrow::Cow, fmt};

use sandboxo_zone_protocol::{EndReason, Timestamp};

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
    /// Its end is wanted, and the zone has not confirmed it yet.
    Killing {
        asked_at: Timestamp,
        cause: KillCause,
        started_at: Option<Timestamp>,
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
    KillAsked {
        at: Timestamp,
        cause: KillCause,
    },
    /// The zone says that it is gone.
    Ended {
        at: Timestamp,
        reason: EndReason,
    },
    /// The zone knows nothing of it.
    Vanished {
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
            (Self::Starting { .. }, E::StartFailed { at, failure }) => {
                Ok(Self::Dead { at, reason: DeathReason::StartFailed(failure), started_at: None })
            }
            (Self::Starting { .. }, E::StartAbandoned { at, failure }) => Ok(Self::Killing {
                asked_at: at,
                cause: KillCause::StartFailed(failure),
                started_at: None,
            }),
            (Self::Running { started_at, .. }, E::TimeoutSet { expires_at }) => {
                Ok(Self::Running { started_at, expires_at })
            }
            (Self::Starting { .. }, E::KillAsked { at, cause }) => {
                Ok(Self::Killing { asked_at: at, cause, started_at: None })
            }
            (Self::Running { started_at, .. }, E::KillAsked { at, cause }) => {
                Ok(Self::Killing { asked_at: at, cause, started_at: Some(started_at) })
            }
            (Self::Starting { .. }, E::Ended { at, reason }) => {
                Ok(Self::Dead { at, reason: DeathReason::Ended(reason), started_at: None })
            }
            (Self::Running { started_at, .. }, E::Ended { at, reason }) => Ok(Self::Dead {
                at,
                reason: DeathReason::Ended(reason),
                started_at: Some(started_at),
            }),
            (Self::Running { started_at, .. }, E::Vanished { at }) => {
                Ok(Self::Dead { at, reason: DeathReason::Missing, started_at: Some(started_at) })
            }
            // The cause that was written down first is the one that stays, whatever the zone
            // calls it: an expired one that we killed has timed out.
            (
                Self::Killing { cause, started_at, .. },
                E::Ended { at, .. } | E::Vanished { at } | E::StartFailed { at, .. },
            ) => Ok(Self::Dead { at, reason: cause.death(), started_at }),
            // Said twice is said once.
            (phase @ Self::Running { .. }, E::Started { .. })
            | (
                phase @ Self::Killing { .. },
                E::KillAsked { .. } | E::Started { .. } | E::StartAbandoned { .. },
            )
            | (
                phase @ Self::Dead { .. },
                E::KillAsked { .. } | E::Ended { .. } | E::Vanished { .. },
            ) => Ok(phase),
            (phase, event) => Err(IllegalMove { phase: phase.kind(), event: event.name() }),
        }
    }

    pub fn kind(&self) -> PhaseKind {
        match self {
            Self::Starting { .. } => PhaseKind::Starting,
            Self::Running { .. } => PhaseKind::Running,
            Self::Killing { .. } => PhaseKind::Killing,
            Self::Dead { .. } => PhaseKind::Dead,
        }
    }

    pub fn started_at(&self) -> Option<Timestamp> {
        match *self {
            Self::Starting { .. } => None,
            Self::Running { started_at, .. } => Some(started_at),
            Self::Killing { started_at, .. } | Self::Dead { started_at, .. } => started_at,
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
            Self::KillAsked { .. } => "killed",
            Self::Ended { .. } => "ended",
            Self::Vanished { .. } => "missing",
        }
    }
}

impl fmt::Display for PhaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
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

    const TABLE: &str = "
         started  refused  abandon  timeout  kill     ended    vanished
starting running  dead     killing  -        killing  dead     -
running  running  -        -        running  killing  dead     dead
killing  killing  dead     killing  -        killing  dead     dead
dead     -        -        -        -        dead     dead     dead
";

    fn phases() -> [Phase; 4] {
        [
            Phase::Starting { give_up_at: T },
            Phase::Running { started_at: T, expires_at: T },
            Phase::Killing { asked_at: T, cause: KillCause::Asked, started_at: None },
            Phase::Dead { at: T, reason: DeathReason::Missing, started_at: None },
        ]
    }

    fn events() -> [(&'static str, Event); 7] {
        let failure = StartFailure::TimedOut;
        [
            ("started", Event::Started { at: T, expires_at: T }),
            ("refused", Event::StartFailed { at: T, failure: failure.clone() }),
            ("abandon", Event::StartAbandoned { at: T, failure }),
            ("timeout", Event::TimeoutSet { expires_at: T }),
            ("kill", Event::KillAsked { at: T, cause: KillCause::Asked }),
            ("ended", Event::Ended { at: T, reason: EndReason::Crashed }),
            ("vanished", Event::Vanished { at: T }),
        ]
    }

    #[test]
    fn table() {
        let mut lines = vec![format!("{:8}", "")];
        lines[0].extend(events().iter().map(|(name, _)| format!(" {name:8}")));
        for phase in phases() {
            let mut line = format!("{:8}", phase.kind().to_string());
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
