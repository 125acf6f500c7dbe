//! What has to change so that a zone runs what the records want, and the records say what the
//! zone knows.
//!
//! The records must have been read *before* the zone was asked for its report: a sandbox that was
//! already running then is in the report, or is gone. What may have moved since is judged again by
//! the driver that carries a step out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sandboxo_zone_protocol::{EndReason, SandboxId, Timestamp, ZoneReport, ZoneSandbox};

use crate::{Phase, SandboxRecord};

/// In the order of ids. Empty when record and zone agree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its create was committed, and the zone does not have it.
    Deliver {
        id: SandboxId,
    },
    /// As above, and there is no time left for it.
    GiveUp {
        id: SandboxId,
    },
    /// The zone runs it, and its record is still starting.
    Adopt {
        id: SandboxId,
        started_at: Timestamp,
    },
    /// The zone runs it with another deadline than the record's.
    SetDeadline {
        id: SandboxId,
        deadline: Timestamp,
    },
    Kill {
        id: SandboxId,
        why: KillWhy,
    },
    /// It is gone; the record says otherwise.
    Bury {
        id: SandboxId,
        at: Timestamp,
        cause: BuryCause,
    },
    /// The zone remembers an end that is recorded.
    Acknowledge {
        id: SandboxId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillWhy {
    /// Nothing wants it: no record, or a dead one.
    NoRecord,
    /// A kill was asked for and not confirmed.
    Wanted,
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuryCause {
    /// The zone says how it ended.
    Told(EndReason),
    /// The zone has another boot id than before, and no trace of it.
    ZoneRestarted,
    /// The zone has no trace of it.
    Missing,
}

/// `records`: the live ones of this zone. `known_boot`: the boot id seen last.
pub fn plan<'a>(
    records: impl IntoIterator<Item = &'a SandboxRecord>,
    report: &ZoneReport,
    known_boot: Option<&str>,
    now: Timestamp,
) -> Plan {
    let records: BTreeMap<_, _> = records
        .into_iter()
        .filter(|record| !matches!(record.phase, Phase::Dead { .. }))
        .map(|record| (record.id, record))
        .collect();
    let running: BTreeMap<_, _> = report.sandboxes.iter().map(|it| (it.id, it)).collect();
    let ended: BTreeMap<_, _> = report.ended.iter().map(|it| (it.id, it)).collect();
    let restarted = known_boot.is_some_and(|known| known != report.boot_id);
    let lost = if restarted { BuryCause::ZoneRestarted } else { BuryCause::Missing };

    let ids: BTreeSet<_> =
        records.keys().chain(running.keys()).chain(ended.keys()).copied().collect();
    let steps = ids.into_iter().filter_map(|id| {
        match (records.get(&id), running.get(&id), ended.get(&id)) {
            (Some(record), Some(observed), _) => both(record, observed, now),
            (Some(_), None, Some(end)) => {
                Some(Step::Bury { id, at: end.at, cause: BuryCause::Told(end.reason) })
            }
            (Some(record), None, None) => Some(only_recorded(record, lost, now)),
            (None, Some(_), _) => Some(Step::Kill { id, why: KillWhy::NoRecord }),
            (None, None, Some(_)) => Some(Step::Acknowledge { id }),
            (None, None, None) => None,
        }
    });
    Plan { steps: steps.collect() }
}

fn both(record: &SandboxRecord, observed: &ZoneSandbox, now: Timestamp) -> Option<Step> {
    let id = record.id;
    match record.phase {
        Phase::Starting { .. } if record.spec.deadline <= now => {
            Some(Step::Kill { id, why: KillWhy::Expired })
        }
        Phase::Starting { .. } => Some(Step::Adopt { id, started_at: observed.started_at }),
        Phase::Running { expires_at, .. } if expires_at <= now => {
            Some(Step::Kill { id, why: KillWhy::Expired })
        }
        Phase::Running { expires_at, .. } => (expires_at != observed.deadline)
            .then_some(Step::SetDeadline { id, deadline: expires_at }),
        Phase::Killing { .. } => Some(Step::Kill { id, why: KillWhy::Wanted }),
        Phase::Dead { .. } => Some(Step::Kill { id, why: KillWhy::NoRecord }),
    }
}

fn only_recorded(record: &SandboxRecord, lost: BuryCause, now: Timestamp) -> Step {
    let id = record.id;
    match record.phase {
        Phase::Starting { give_up_at } if now < give_up_at && now < record.spec.deadline => {
            Step::Deliver { id }
        }
        Phase::Starting { .. } => Step::GiveUp { id },
        Phase::Running { .. } | Phase::Killing { .. } | Phase::Dead { .. } => {
            Step::Bury { id, at: now, cause: lost }
        }
    }
}

impl Step {
    pub fn id(&self) -> SandboxId {
        match *self {
            Self::Deliver { id }
            | Self::GiveUp { id }
            | Self::Adopt { id, .. }
            | Self::SetDeadline { id, .. }
            | Self::Kill { id, .. }
            | Self::Bury { id, .. }
            | Self::Acknowledge { id } => id,
        }
    }

    /// Verb and reason, without the id.
    fn what(&self) -> &'static str {
        match self {
            Self::Deliver { .. } => "deliver (the zone does not have it yet)",
            Self::GiveUp { .. } => "give up (no time left to start)",
            Self::Adopt { .. } => "adopt (the zone runs it)",
            Self::SetDeadline { .. } => "set the deadline (the zone has another)",
            Self::Kill { why: KillWhy::NoRecord, .. } => "kill (no record)",
            Self::Kill { why: KillWhy::Wanted, .. } => "kill (it was asked for)",
            Self::Kill { why: KillWhy::Expired, .. } => "kill (expired)",
            Self::Bury { cause: BuryCause::Told(_), .. } => "bury (the zone saw it end)",
            Self::Bury { cause: BuryCause::ZoneRestarted, .. } => "bury (the zone restarted)",
            Self::Bury { cause: BuryCause::Missing, .. } => "bury (no trace of it)",
            Self::Acknowledge { .. } => "acknowledge (its end is recorded)",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id(), self.what())
    }
}

/// One line however many steps there are.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("nothing to do");
        }
        let mut counts = BTreeMap::<_, usize>::new();
        for step in &self.steps {
            *counts.entry(step.what()).or_default() += 1;
        }
        for (at, (what, count)) in counts.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} × {what}")?;
        }
        Ok(())
    }
}
