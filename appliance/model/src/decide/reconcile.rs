//! What has to change so that a zone runs what the records want, and the records say what the
//! zone knows.
//!
//! The records must have been read *before* the zone was asked for its report: a sandbox that was
//! already running then is in the report, or is gone. What may have moved since is judged again by
//! the driver that carries a step out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use sandboxo_zone_protocol::{
    Checkpoint, CheckpointId, EndReason, Ended, OnDeadline, SandboxId, Timestamp, ZoneReport,
    ZoneSandbox,
};

use crate::{Phase, SandboxRecord, rules};

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
    /// The zone runs it, and its record is still starting or resuming.
    Adopt {
        id: SandboxId,
        started_at: Timestamp,
    },
    /// The zone runs it with another deadline than the record's.
    SetDeadline {
        id: SandboxId,
        deadline: Timestamp,
    },
    /// A pause was asked for, or is due, and the zone still runs it.
    Pause {
        id: SandboxId,
    },
    /// It runs no longer, and the zone has this to go on from.
    Paused {
        id: SandboxId,
        checkpoint: Checkpoint,
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
    /// The zone remembers an end that is recorded, or of no matter.
    Acknowledge {
        id: SandboxId,
    },
    /// Nothing will start from it.
    Discard {
        id: SandboxId,
        checkpoint: CheckpointId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillWhy {
    /// Nothing wants it: no record, or a dead one.
    NoRecord,
    /// A kill was asked for and not confirmed.
    Wanted,
    Expired,
    /// It is paused: a resume that was given up has come to something.
    Paused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuryCause {
    /// The zone says how it ended.
    Told(EndReason),
    /// The zone has another boot id than before, and no trace of it.
    ZoneRestarted,
    /// The zone has no trace of it.
    Missing,
    /// It was paused, and this is gone.
    CheckpointLost(CheckpointId),
}

/// A snapshot may be younger than the record that will want it.
const SNAPSHOT_GRACE: Duration = Duration::from_mins(10);

/// `records`: the live ones of this zone. `snapshots`: the checkpoints of recorded ones, read before
/// the records. `known_boot`: the boot id seen last.
pub fn plan<'a>(
    records: impl IntoIterator<Item = &'a SandboxRecord>,
    snapshots: &BTreeSet<CheckpointId>,
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

    let mut others = snapshots.clone();
    others.extend(records.values().filter_map(|record| record.starts_from()));
    let mut pauses = BTreeMap::<_, Vec<_>>::new();
    for checkpoint in report.checkpoints.iter().filter(|it| it.is_pause) {
        pauses.entry(checkpoint.sandbox).or_default().push(*checkpoint);
    }

    let ids: BTreeSet<_> =
        records.keys().chain(running.keys()).chain(ended.keys()).copied().collect();
    let mut steps: Vec<_> = ids
        .into_iter()
        .filter_map(|id| match (records.get(&id), running.get(&id), ended.get(&id)) {
            (Some(record), observed, end) => {
                let pauses = pauses.get(&id).map(Vec::as_slice).unwrap_or_default();
                let pauses = Pauses { all: pauses, others: &others };
                recorded(record, observed.copied(), end.copied(), pauses, lost, now)
            }
            (None, Some(_), _) => Some(Step::Kill { id, why: KillWhy::NoRecord }),
            (None, None, Some(_)) => Some(Step::Acknowledge { id }),
            (None, None, None) => None,
        })
        .collect();
    let discards = unwanted(&records, others, &steps, &report.checkpoints, now);
    steps.extend(discards);
    steps.sort_by_key(Step::id);
    Plan { steps }
}

/// Of one sandbox.
#[derive(Clone, Copy)]
struct Pauses<'a> {
    all: &'a [Checkpoint],
    /// What others start from stays after the sandbox has gone on: it is no news of it.
    others: &'a BTreeSet<CheckpointId>,
}

fn recorded(
    record: &SandboxRecord,
    observed: Option<&ZoneSandbox>,
    end: Option<&Ended>,
    pauses: Pauses<'_>,
    lost: BuryCause,
    now: Timestamp,
) -> Option<Step> {
    let id = record.id;
    let told = |end: &Ended| Step::Bury { id, at: end.at, cause: BuryCause::Told(end.reason) };
    let gone = || end.map_or(Step::Bury { id, at: now, cause: lost }, told);
    let newest = |but: Option<CheckpointId>| {
        let news = |it: &&Checkpoint| Some(it.id) != but && !pauses.others.contains(&it.id);
        let newest = pauses.all.iter().filter(news).max_by_key(|it| (it.at, it.id));
        newest.map(|checkpoint| Step::Paused { id, checkpoint: *checkpoint })
    };
    let has = |checkpoint| pauses.all.iter().any(|it| it.id == checkpoint);
    match (&record.phase, observed) {
        (Phase::Starting { .. }, Some(_))
            if record.spec.deadline <= now && record.spec.on_deadline == OnDeadline::Kill =>
        {
            Some(Step::Kill { id, why: KillWhy::Expired })
        }
        (Phase::Starting { .. } | Phase::Resuming { .. }, Some(observed)) => {
            Some(Step::Adopt { id, started_at: observed.started_at })
        }
        (Phase::Running { expires_at, .. }, Some(_)) if *expires_at <= now => {
            Some(match record.spec.on_deadline {
                OnDeadline::Kill => Step::Kill { id, why: KillWhy::Expired },
                OnDeadline::Pause(_) => Step::Pause { id },
            })
        }
        (Phase::Running { expires_at, .. }, Some(observed)) => (*expires_at != observed.deadline)
            .then_some(Step::SetDeadline { id, deadline: *expires_at }),
        (Phase::Pausing { .. }, Some(_)) => Some(Step::Pause { id }),
        (Phase::Paused { checkpoint, .. }, _) if !has(*checkpoint) => {
            Some(Step::Bury { id, at: now, cause: BuryCause::CheckpointLost(*checkpoint) })
        }
        (Phase::Paused { .. }, Some(_)) => Some(Step::Kill { id, why: KillWhy::Paused }),
        (Phase::Paused { .. }, None) => end.map(|_| Step::Acknowledge { id }),
        (Phase::Killing { .. }, Some(_)) => Some(Step::Kill { id, why: KillWhy::Wanted }),
        (Phase::Killing { checkpoint: Some(checkpoint), .. }, None) if has(*checkpoint) => {
            Some(Step::Kill { id, why: KillWhy::Wanted })
        }
        (Phase::Killing { .. }, None) => Some(gone()),
        (Phase::Starting { .. }, None) if end.is_some() => end.map(told),
        (Phase::Starting { give_up_at }, None) => Some(newest(None).unwrap_or({
            if now < *give_up_at && now < record.spec.deadline {
                Step::Deliver { id }
            } else {
                Step::GiveUp { id }
            }
        })),
        (Phase::Running { .. } | Phase::Pausing { .. }, None) => {
            // An end that was told is later than any pause.
            Some(end.map(told).or_else(|| newest(None)).unwrap_or_else(gone))
        }
        (Phase::Resuming { checkpoint, give_up_at, expires_at, .. }, None) => {
            let cause = BuryCause::CheckpointLost(*checkpoint);
            let lost = Step::Bury { id, at: now, cause };
            Some(match newest(Some(*checkpoint)) {
                Some(step) => step,
                None if !has(*checkpoint) => lost,
                None if end.is_none() && now < *give_up_at && now < *expires_at => {
                    Step::Deliver { id }
                }
                None => Step::GiveUp { id },
            })
        }
        (Phase::Dead { .. }, Some(_)) => Some(Step::Kill { id, why: KillWhy::NoRecord }),
        (Phase::Dead { .. }, None) => None,
    }
}

fn unwanted(
    records: &BTreeMap<SandboxId, &SandboxRecord>,
    others: BTreeSet<CheckpointId>,
    steps: &[Step],
    checkpoints: &[Checkpoint],
    now: Timestamp,
) -> Vec<Step> {
    let mut wanted: BTreeSet<_> =
        records.values().filter_map(|record| record.phase.checkpoint()).collect();
    for step in steps {
        if let Step::Paused { id, checkpoint } = step {
            if let Some(before) = records.get(id).and_then(|record| record.phase.checkpoint()) {
                wanted.remove(&before);
            }
            wanted.insert(checkpoint.id);
        }
    }
    wanted.extend(others);
    let old = |it: &Checkpoint| it.is_pause || rules::after(it.at, SNAPSHOT_GRACE) <= now;
    let unwanted = checkpoints.iter().filter(|it| !wanted.contains(&it.id) && old(it));
    unwanted.map(|it| Step::Discard { id: it.sandbox, checkpoint: it.id }).collect()
}

impl Step {
    pub fn id(&self) -> SandboxId {
        match *self {
            Self::Deliver { id }
            | Self::GiveUp { id }
            | Self::Adopt { id, .. }
            | Self::SetDeadline { id, .. }
            | Self::Pause { id }
            | Self::Paused { id, .. }
            | Self::Kill { id, .. }
            | Self::Bury { id, .. }
            | Self::Acknowledge { id }
            | Self::Discard { id, .. } => id,
        }
    }

    /// Verb and reason, without the id.
    fn what(&self) -> &'static str {
        match self {
            Self::Deliver { .. } => "deliver (the zone does not have it yet)",
            Self::GiveUp { .. } => "give up (no time left to start)",
            Self::Adopt { .. } => "adopt (the zone runs it)",
            Self::SetDeadline { .. } => "set the deadline (the zone has another)",
            Self::Pause { .. } => "pause (the zone still runs it)",
            Self::Paused { .. } => "record the pause (the zone has its checkpoint)",
            Self::Kill { why: KillWhy::NoRecord, .. } => "kill (no record)",
            Self::Kill { why: KillWhy::Wanted, .. } => "kill (it was asked for)",
            Self::Kill { why: KillWhy::Expired, .. } => "kill (expired)",
            Self::Kill { why: KillWhy::Paused, .. } => "kill (it is paused)",
            Self::Bury { cause: BuryCause::Told(_), .. } => "bury (the zone saw it end)",
            Self::Bury { cause: BuryCause::ZoneRestarted, .. } => "bury (the zone restarted)",
            Self::Bury { cause: BuryCause::Missing, .. } => "bury (no trace of it)",
            Self::Bury { cause: BuryCause::CheckpointLost(_), .. } => {
                "bury (its checkpoint is gone)"
            }
            Self::Acknowledge { .. } => "acknowledge (its end is recorded)",
            Self::Discard { .. } => "discard a checkpoint (nothing starts from it)",
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

#[cfg(test)]
mod tests;
