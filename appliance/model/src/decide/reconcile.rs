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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sandboxo_zone_protocol::{Capacity, Ended};

    use super::*;
    use crate::{DeathReason, KillCause, sample};

    const NOW: i64 = 100;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn id(n: u8) -> SandboxId {
        format!("sbx_loc_{n:020}").parse().unwrap()
    }

    /// `"1 starting 90"`: id, phase, and when it has to start or expires.
    fn record(line: &str) -> SandboxRecord {
        let words: Vec<_> = line.split(' ').collect();
        let second = at(words[2].parse().unwrap());
        let phase = match words[1] {
            "starting" => Phase::Starting { give_up_at: second },
            "running" => Phase::Running { started_at: at(1), expires_at: second },
            "killing" => {
                Phase::Killing { asked_at: at(1), cause: KillCause::Asked, started_at: None }
            }
            "dead" => Phase::Dead { at: at(1), reason: DeathReason::Missing, started_at: None },
            other => panic!("{other}"),
        };
        sample::record(id(words[0].parse().unwrap()), at(150), phase)
    }

    /// `"1 runs 150"`: id and deadline; `"1 ended 90"`: id and when.
    fn report(lines: &[&str]) -> ZoneReport {
        let mut report = ZoneReport {
            boot_id: "b".into(),
            capacity: Capacity::default(),
            sandboxes: Vec::new(),
            ended: Vec::new(),
            checkpoints: Vec::new(),
        };
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let id = id(words[0].parse().unwrap());
            let second = at(words[2].parse().unwrap());
            match words[1] {
                "runs" => {
                    let started_at = at(5);
                    report.sandboxes.push(ZoneSandbox { id, started_at, deadline: second });
                }
                "ended" => {
                    report.ended.push(Ended { id, at: second, reason: EndReason::Crashed });
                }
                other => panic!("{other}"),
            }
        }
        report
    }

    #[test]
    fn table() {
        for (why, records, observed, expected) in [
            ("nothing", &[][..], &[][..], "nothing to do"),
            ("as it should be", &["1 running 150"], &["1 runs 150"], "nothing to do"),
            ("not delivered", &["1 starting 130"], &[], "deliver (the zone does not have it yet)"),
            ("not delivered in time", &["1 starting 100"], &[], "give up (no time left to start)"),
            ("started unseen", &["1 starting 90"], &["1 runs 150"], "adopt (the zone runs it)"),
            (
                "started unseen, with another deadline",
                &["2 starting 90"],
                &["2 runs 99"],
                "adopt (the zone runs it)",
            ),
            ("ended unseen", &["1 running 150"], &["1 ended 90"], "bury (the zone saw it end)"),
            (
                "started and ended",
                &["1 starting 130"],
                &["1 ended 90"],
                "bury (the zone saw it end)",
            ),
            ("lost", &["1 running 150"], &[], "bury (no trace of it)"),
            ("killed, unconfirmed", &["1 killing 0"], &["1 runs 150"], "kill (it was asked for)"),
            ("killed, and gone", &["1 killing 0"], &[], "bury (no trace of it)"),
            ("killed, and told", &["1 killing 0"], &["1 ended 90"], "bury (the zone saw it end)"),
            ("expired", &["1 running 100"], &["1 runs 100"], "kill (expired)"),
            (
                "deadline",
                &["1 running 160"],
                &["1 runs 150"],
                "set the deadline (the zone has another)",
            ),
            ("a stranger", &[], &["1 runs 150"], "kill (no record)"),
            ("a dead one runs", &["1 dead 0"], &["1 runs 150"], "kill (no record)"),
            ("an old end", &["1 dead 0"], &["1 ended 90"], "acknowledge (its end is recorded)"),
            ("an end of nobody", &[], &["1 ended 90"], "acknowledge (its end is recorded)"),
        ] {
            let records: Vec<_> = records.iter().map(|line| record(line)).collect();
            let plan = plan(&records, &report(observed), Some("b"), at(NOW));
            let printed = plan.to_string();
            assert_eq!(printed.trim_start_matches("1 × "), expected, "{why}");
        }
    }

    #[test]
    fn another_boot_id_is_the_reason() {
        let records = [record("1 running 150"), record("2 running 150")];
        let report = report(&["2 ended 90"]);
        let causes = |known| {
            let steps = plan(&records, &report, known, at(NOW)).steps;
            steps.into_iter().map(|step| {
                let Step::Bury { cause, .. } = step else { panic!("{step}") };
                cause
            })
        };
        let told = BuryCause::Told(EndReason::Crashed);
        assert!(causes(Some("a")).eq([BuryCause::ZoneRestarted, told]));
        assert!(causes(Some("b")).eq([BuryCause::Missing, told]));
        assert!(causes(None).eq([BuryCause::Missing, told]));
    }

    #[test]
    fn one_line_for_any_number() {
        let records: Vec<_> = ["1 running 150", "2 running 150", "3 starting 130"]
            .iter()
            .map(|line| record(line))
            .collect();
        let plan = plan(&records, &report(&[]), None, at(NOW));
        assert_eq!(
            plan.to_string(),
            "2 × bury (no trace of it), 1 × deliver (the zone does not have it yet)"
        );
        assert!(plan.steps[2].to_string().starts_with("sbx_loc_00000000000000000003 deliver"));
    }

    /// What drivers and zone do with a step.
    fn apply(step: Step, records: &mut Vec<SandboxRecord>, report: &mut ZoneReport) {
        let id = step.id();
        let live =
            |record: &SandboxRecord| record.id == id && !matches!(record.phase, Phase::Dead { .. });
        match step {
            Step::Deliver { .. } | Step::Adopt { .. } => {
                for record in records.iter_mut().filter(|record| live(record)) {
                    let deadline = record.spec.deadline;
                    record.phase = Phase::Running { started_at: at(NOW), expires_at: deadline };
                    if report.sandboxes.iter().all(|sandbox| sandbox.id != id) {
                        let started_at = at(NOW);
                        report.sandboxes.push(ZoneSandbox { id, started_at, deadline });
                    }
                }
            }
            Step::SetDeadline { deadline, .. } => {
                for sandbox in report.sandboxes.iter_mut().filter(|sandbox| sandbox.id == id) {
                    sandbox.deadline = deadline;
                }
            }
            Step::GiveUp { .. }
            | Step::Kill { .. }
            | Step::Bury { .. }
            | Step::Acknowledge { .. } => {
                records.retain(|record| !live(record));
                report.sandboxes.retain(|sandbox| sandbox.id != id);
                report.ended.retain(|ended| ended.id != id);
            }
        }
    }

    proptest! {
        /// A plan leaves nothing to do, except that an adopted one may get its own deadline next.
        #[test]
        fn carrying_out_a_plan_settles_everything(
            records in proptest::collection::btree_map(0..20u8, (0..4usize, 80..170i64), 0..20),
            running in proptest::collection::btree_map(0..20u8, 80..170i64, 0..20),
            ended in proptest::collection::btree_set(0..20u8, 0..20),
        ) {
            let phases = ["starting", "running", "killing", "dead"];
            let mut records: Vec<_> = records
                .into_iter()
                .map(|(n, (phase, second))| record(&format!("{n} {} {second}", phases[phase])))
                .collect();
            let ended = ended.into_iter().filter(|n| !running.contains_key(n));
            let lines: Vec<_> = ended.map(|n| format!("{n} ended 90")).collect();
            let lines = lines.into_iter().chain(running.iter().map(|(n, s)| format!("{n} runs {s}")));
            let lines: Vec<_> = lines.collect();
            let mut report = report(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            for _ in 0..2 {
                for step in plan(&records, &report, Some("b"), at(NOW)).steps {
                    apply(step, &mut records, &mut report);
                }
            }
            prop_assert_eq!(plan(&records, &report, Some("b"), at(NOW)), Plan::default());
            // What runs is what should.
            let wanted: BTreeSet<_> = records
                .iter()
                .filter(|record| !matches!(record.phase, Phase::Dead { .. }))
                .map(|record| record.id)
                .collect();
            let running: BTreeSet<_> = report.sandboxes.iter().map(|it| it.id).collect();
            prop_assert_eq!(running, wanted);
        }
    }

    #[test]
    fn a_sandbox_without_time_to_live_is_not_started() {
        let mut late = record("1 starting 130");
        late.spec.deadline = at(NOW);
        let late = [late];
        let steps = |observed: &[&str]| plan(&late, &report(observed), None, at(NOW)).steps;
        assert_eq!(steps(&[]), [Step::GiveUp { id: id(1) }]);
        let expired = Step::Kill { id: id(1), why: KillWhy::Expired };
        assert_eq!(steps(&["1 runs 100"]), [expired]);
    }
}
