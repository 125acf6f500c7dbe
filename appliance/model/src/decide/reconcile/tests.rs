//! The table of `reconcile`, and that its plans come to an end.

use proptest::prelude::*;
use sandboxo_zone_protocol::{Capacity, Kept, Origin};

use super::*;
use crate::{DeathReason, KillCause, sample};

const NOW: i64 = 100;

/// Without snapshots.
fn plan<'a>(
    records: impl IntoIterator<Item = &'a SandboxRecord>,
    report: &ZoneReport,
    known_boot: Option<&str>,
    now: Timestamp,
) -> Plan {
    super::plan(records, &BTreeSet::new(), report, known_boot, now)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(n: u8) -> SandboxId {
    format!("sbx_loc_{n:020}").parse().unwrap()
}

fn checkpoint(n: u32) -> CheckpointId {
    format!("{n:020}").parse().unwrap()
}

/// `"1 starting 90"`: id, phase, and when it has to start or expires. `"1 paused 7"`, and also
/// `"1 killing+ 7"`: with which checkpoint; `"1 resuming 7 90"`. `"1 sleepy 90"` is a running
/// one that is paused when its time is over.
fn record(line: &str) -> SandboxRecord {
    let words: Vec<_> = line.split(' ').collect();
    let second = at(words[words.len() - 1].parse().unwrap());
    let checkpoint = checkpoint(words[2].parse().unwrap());
    let (started_at, paused_at, kept) = (at(1), at(2), Kept::Memory);
    let killing = |checkpoint| Phase::Killing {
        asked_at: at(1),
        cause: KillCause::Asked,
        started_at: None,
        checkpoint,
    };
    let phase = match words[1] {
        "starting" => Phase::Starting { give_up_at: second },
        "running" | "sleepy" => Phase::Running { started_at, expires_at: second },
        "pausing" => Phase::Pausing { started_at, expires_at: second, asked_at: at(2), kept },
        "paused" => Phase::Paused { started_at, paused_at, checkpoint, kept },
        "resuming" => Phase::Resuming {
            started_at,
            paused_at,
            checkpoint,
            kept,
            reboot: false,
            expires_at: at(150),
            give_up_at: second,
        },
        "killing" => killing(None),
        "killing+" => killing(Some(checkpoint)),
        "dead" => Phase::Dead { at: at(1), reason: DeathReason::Missing, started_at: None },
        other => panic!("{other}"),
    };
    let mut record = sample::record(id(words[0].parse().unwrap()), at(150), phase);
    if words[1] == "sleepy" {
        record.spec.on_deadline = OnDeadline::Pause(Kept::Memory);
    }
    record
}

/// `"1 runs 150"`: id and deadline; `"1 ended 90"`: id and when; `"1 slept 7"` and `"1 shot 7"`:
/// of which sandbox, by a pause or as a snapshot, and both the checkpoint's id and its time.
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
            kind @ ("slept" | "shot") => report.checkpoints.push(Checkpoint {
                id: checkpoint(words[2].parse().unwrap()),
                kept: Kept::Memory,
                at: second,
                size_bytes: 1,
                sandbox: id,
                is_pause: kind == "slept",
            }),
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
        ("started and ended", &["1 starting 130"], &["1 ended 90"], "bury (the zone saw it end)"),
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
        ("a pause is due", &["1 sleepy 100"], &["1 runs 100"], "pause (the zone still runs it)"),
        ("asked to pause", &["1 pausing 150"], &["1 runs 150"], "pause (the zone still runs it)"),
        (
            "paused by its zone",
            &["1 running 150"],
            &["1 slept 7"],
            "record the pause (the zone has its checkpoint)",
        ),
        (
            "paused, unheard",
            &["1 pausing 150"],
            &["1 slept 7"],
            "record the pause (the zone has its checkpoint)",
        ),
        (
            "started and paused unseen",
            &["1 starting 130"],
            &["1 slept 7"],
            "record the pause (the zone has its checkpoint)",
        ),
        (
            "ended, with an old checkpoint",
            &["1 running 150"],
            &["1 ended 90", "1 slept 7"],
            "bury (the zone saw it end), 1 × discard a checkpoint (nothing starts from it)",
        ),
        ("pausing, and lost", &["1 pausing 150"], &[], "bury (no trace of it)"),
        ("pausing, and ended", &["1 pausing 150"], &["1 ended 90"], "bury (the zone saw it end)"),
        ("paused", &["1 paused 7"], &["1 slept 7"], "nothing to do"),
        ("paused, and lost", &["1 paused 7"], &[], "bury (its checkpoint is gone)"),
        ("a snapshot is no pause", &["1 paused 7"], &["1 shot 7"], "bury (its checkpoint is gone)"),
        (
            "paused, and it runs",
            &["1 paused 7"],
            &["1 runs 150", "1 slept 7"],
            "kill (it is paused)",
        ),
        (
            "paused, and what a lost resume made of it",
            &["1 paused 7"],
            &["1 slept 7", "1 slept 9"],
            "discard a checkpoint (nothing starts from it)",
        ),
        (
            "paused, after a lost resume was killed",
            &["1 paused 7"],
            &["1 slept 7", "1 ended 90"],
            "acknowledge (its end is recorded)",
        ),
        (
            "resumed, not delivered",
            &["1 resuming 7 130"],
            &["1 slept 7"],
            "deliver (the zone does not have it yet)",
        ),
        (
            "resumed, not delivered in time",
            &["1 resuming 7 100"],
            &["1 slept 7"],
            "give up (no time left to start)",
        ),
        (
            "resumed, and ended at once",
            &["1 resuming 7 130"],
            &["1 slept 7", "1 ended 90"],
            "give up (no time left to start)",
        ),
        (
            "resumed unseen",
            &["1 resuming 7 90"],
            &["1 slept 7", "1 runs 150"],
            "adopt (the zone runs it)",
        ),
        (
            "resumed and paused unseen",
            &["1 resuming 7 130"],
            &["1 slept 7", "1 slept 9"],
            "discard a checkpoint (nothing starts from it), \
             1 × record the pause (the zone has its checkpoint)",
        ),
        ("resumed from nothing", &["1 resuming 7 130"], &[], "bury (its checkpoint is gone)"),
        (
            "resumed, the old checkpoint left",
            &["1 running 150"],
            &["1 runs 150", "1 slept 7"],
            "discard a checkpoint (nothing starts from it)",
        ),
        (
            "killed, its checkpoint left",
            &["1 killing+ 7"],
            &["1 slept 7"],
            "kill (it was asked for)",
        ),
        ("killed with its checkpoint", &["1 killing+ 7"], &[], "bury (no trace of it)"),
        (
            "a dead one's",
            &["1 dead 0"],
            &["1 slept 7"],
            "discard a checkpoint (nothing starts from it)",
        ),
        ("a stranger's", &[], &["1 slept 7"], "discard a checkpoint (nothing starts from it)"),
        ("a young snapshot", &[], &["1 shot 90"], "nothing to do"),
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
fn snapshots_are_kept_for_what_starts_from_them_and_go_after_a_while() {
    let later = at(7 + 10 * 60);
    let snapshot = report(&["1 shot 7"]);
    let mut started = record("2 starting 900");
    started.spec.deadline = at(900);
    let discard = Step::Discard { id: id(1), checkpoint: checkpoint(7) };
    assert!(plan(&[], &snapshot, None, at(6 + 10 * 60)).steps.is_empty());
    assert_eq!(plan(&[], &snapshot, None, later).steps, [discard]);
    let deliver = Step::Deliver { id: id(2) };
    assert_eq!(plan([&started], &snapshot, None, later).steps, [discard, deliver]);
    started.spec.origin = Origin::Checkpoint { id: checkpoint(7), reboot: false };
    assert_eq!(plan([&started], &snapshot, None, later).steps, [deliver]);
}

#[test]
fn what_a_snapshot_needs_stays_and_is_no_news() {
    let later = at(7 + 10 * 60);
    let snapshots = BTreeSet::from([checkpoint(7)]);
    let told = |record: &SandboxRecord, lines: &[&str]| {
        let plan = super::plan([record], &snapshots, &report(lines), Some("b"), later);
        plan.to_string()
    };
    for (why, line, observed, expected) in [
        ("of nobody", "2 running 900", &["2 runs 900", "1 shot 7"][..], "nothing to do"),
        ("of a pause long ago", "1 running 900", &["1 runs 900", "1 slept 7"], "nothing to do"),
        (
            "of a pause long ago, and it is gone",
            "1 running 900",
            &["1 slept 7"],
            "1 × bury (no trace of it)",
        ),
        ("of its own pause", "1 paused 7", &["1 slept 7"], "nothing to do"),
        ("of a killed one", "1 dead 0", &["1 slept 7"], "nothing to do"),
        (
            "and another pause came after",
            "1 running 900",
            &["1 slept 7", "1 slept 8"],
            "1 × record the pause (the zone has its checkpoint)",
        ),
    ] {
        assert_eq!(told(&record(line), observed), expected, "{why}");
    }
    // A copy that is yet to start needs it as much.
    let mut copy = record("2 starting 900");
    (copy.spec.deadline, copy.spec.origin) =
        (at(900), Origin::Checkpoint { id: checkpoint(7), reboot: false });
    let original = record("1 running 900");
    let steps = plan([&original, &copy], &report(&["1 slept 7"]), Some("b"), later).steps;
    let bury = Step::Bury { id: id(1), at: later, cause: BuryCause::Missing };
    assert_eq!(steps, [bury, Step::Deliver { id: id(2) }]);
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
    let discard = |report: &mut ZoneReport, gone: CheckpointId| {
        report.checkpoints.retain(|it| it.id != gone);
    };
    match step {
        Step::Deliver { .. } | Step::Adopt { .. } => {
            for record in records.iter_mut().filter(|record| live(record)) {
                let from = record.phase.checkpoint();
                let deadline = record.to_deliver().deadline;
                record.phase = Phase::Running { started_at: at(NOW), expires_at: deadline };
                if report.sandboxes.iter().all(|sandbox| sandbox.id != id) {
                    let started_at = at(NOW);
                    report.sandboxes.push(ZoneSandbox { id, started_at, deadline });
                }
                if let Some(from) = from {
                    discard(report, from);
                }
            }
        }
        Step::SetDeadline { deadline, .. } => {
            for sandbox in report.sandboxes.iter_mut().filter(|sandbox| sandbox.id == id) {
                sandbox.deadline = deadline;
            }
        }
        Step::Pause { .. } => {
            report.sandboxes.retain(|sandbox| sandbox.id != id);
            report.checkpoints.push(Checkpoint {
                id: checkpoint(99),
                kept: Kept::Memory,
                at: at(NOW),
                size_bytes: 1,
                sandbox: id,
                is_pause: true,
            });
        }
        Step::Paused { checkpoint: Checkpoint { id: checkpoint, kept, at, .. }, .. } => {
            for record in records.iter_mut().filter(|record| live(record)) {
                let told = crate::lifecycle::Event::Paused { at, checkpoint, kept };
                record.phase = record.phase.clone().apply(told).unwrap();
            }
        }
        Step::Kill { why: KillWhy::Paused, .. } => {
            report.sandboxes.retain(|sandbox| sandbox.id != id);
        }
        Step::GiveUp { .. } | Step::Acknowledge { .. } => {
            records
                .retain(|record| !(live(record) && matches!(record.phase, Phase::Starting { .. })));
            for record in records.iter_mut().filter(|record| live(record)) {
                if let Phase::Resuming { started_at, paused_at, checkpoint, kept, .. } =
                    record.phase
                {
                    record.phase = Phase::Paused { started_at, paused_at, checkpoint, kept };
                }
            }
            report.ended.retain(|ended| ended.id != id);
        }
        Step::Kill { .. } | Step::Bury { .. } => {
            for record in records.iter().filter(|record| live(record)) {
                if let Some(checkpoint) = record.phase.checkpoint() {
                    discard(report, checkpoint);
                }
            }
            records.retain(|record| !live(record));
            report.sandboxes.retain(|sandbox| sandbox.id != id);
            report.ended.retain(|ended| ended.id != id);
        }
        Step::Discard { checkpoint, .. } => discard(report, checkpoint),
    }
}

proptest! {
    /// A plan leaves nothing to do, but for what comes of a step: an adopted one gets its own
    /// deadline next, and one that is paused its record.
    #[test]
    fn carrying_out_plans_settles_everything(
        records in proptest::collection::btree_map(
            0..20u8,
            (0..9usize, 80..170i64, 0..8u8),
            0..20,
        ),
        running in proptest::collection::btree_map(0..20u8, 80..170i64, 0..20),
        ended in proptest::collection::btree_set(0..20u8, 0..20),
        slept in proptest::collection::btree_map(0..80u8, any::<bool>(), 0..40),
    ) {
        let phases = [
            "starting", "running", "sleepy", "pausing", "paused", "resuming", "killing",
            "killing+", "dead",
        ];
        let mut records: Vec<_> = records
            .into_iter()
            .map(|(n, (phase, second, nth))| {
                let checkpoint = n + 20 * (nth % 4);
                match phases[phase] {
                    kind @ ("paused" | "killing+") => {
                        record(&format!("{n} {kind} {checkpoint}"))
                    }
                    "resuming" => record(&format!("{n} resuming {checkpoint} {second}")),
                    kind => record(&format!("{n} {kind} {second}")),
                }
            })
            .collect();
        let ended = ended.into_iter().filter(|n| !running.contains_key(n));
        let ended = ended.map(|n| format!("{n} ended 90"));
        let runs = running.iter().map(|(n, s)| format!("{n} runs {s}"));
        let slept = slept.into_iter().map(|(c, pause)| {
            format!("{} {} {c}", c % 20, if pause { "slept" } else { "shot" })
        });
        let lines: Vec<_> = ended.chain(runs).chain(slept).collect();
        let mut report = report(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in 0..3 {
            for step in plan(&records, &report, Some("b"), at(NOW)).steps {
                apply(step, &mut records, &mut report);
            }
        }
        prop_assert_eq!(plan(&records, &report, Some("b"), at(NOW)), Plan::default());
        // What runs is what should, and what should go on later has what it needs.
        let live = records.iter().filter(|it| !matches!(it.phase, Phase::Dead { .. }));
        let (paused, wanted): (Vec<_>, Vec<_>) =
            live.partition(|it| matches!(it.phase, Phase::Paused { .. }));
        let wanted: BTreeSet<_> = wanted.into_iter().map(|record| record.id).collect();
        let running: BTreeSet<_> = report.sandboxes.iter().map(|it| it.id).collect();
        prop_assert_eq!(running, wanted);
        let needed: BTreeSet<_> =
            paused.into_iter().filter_map(|record| record.phase.checkpoint()).collect();
        let pauses = report.checkpoints.iter().filter(|it| it.is_pause);
        prop_assert_eq!(pauses.map(|it| it.id).collect::<BTreeSet<_>>(), needed);
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
