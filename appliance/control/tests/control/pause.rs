//! Pausing and resuming.

use std::time::Duration;

use sandboxo_control::{
    Connected, KillError, ListQuery, Lookup, PauseError, ResumeError, TimeoutError,
};
use sandboxo_model::{Lifecycle, NewSandbox, Phase, PhaseKind, SandboxRecord, rules};
use sandboxo_store::Read as _;
use sandboxo_zone_protocol::{
    CheckpointId, Clock as _, CreateError, EndReason, Kept, OnDeadline, Origin,
    PauseError as ZonePauseError, Paused, SandboxId,
    fake::{Call, ScriptedCreate},
};

use crate::world::{World, new};

const MINUTE: Duration = Duration::from_mins(1);
/// Time stands still while anybody has something to do.
const ALL_HAVE_ASKED: Duration = Duration::from_secs(1);

fn sleepy() -> NewSandbox {
    let on_timeout = OnDeadline::Pause(Kept::Memory);
    NewSandbox { lifecycle: Lifecycle { on_timeout, auto_resume: true }, ..new() }
}

impl World {
    async fn pause(&self, id: SandboxId) -> Result<(), PauseError> {
        self.control.sandboxes.pause(self.team, id, Kept::Memory).await
    }

    async fn resume(&self, id: SandboxId) -> Result<std::sync::Arc<SandboxRecord>, ResumeError> {
        self.control.sandboxes.resume(self.team, id, MINUTE, false, None).await
    }

    async fn connect(&self, id: SandboxId) -> Result<Connected, ResumeError> {
        self.control.sandboxes.connect(self.team, id, MINUTE, false).await
    }

    /// What the record says it would go on from.
    async fn checkpoint(&self, id: SandboxId) -> CheckpointId {
        self.record(id).await.phase.checkpoint().unwrap()
    }

    fn count(&self, call: &Call) -> usize {
        self.zone.calls().iter().filter(|it| *it == call).count()
    }

    async fn is(&self, id: SandboxId, kind: PhaseKind) {
        for _ in 0..1000 {
            if self.record(id).await.phase.kind() == kind {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never {kind}: {:?}", self.record(id).await.phase);
    }

    /// Of both, in the store too.
    async fn agrees(&self, id: SandboxId) {
        self.until("nothing is left", |world| world.zone.checkpoints().len() <= 1).await;
        let stored = async || self.store.read(move |tx| tx.sandbox(id)).await.unwrap().unwrap();
        while stored().await != *self.record(id).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let stored = stored().await;
        let had: Vec<_> = self.zone.checkpoints().iter().map(|it| it.id).collect();
        let wanted: Vec<_> = stored.phase.checkpoint().into_iter().collect();
        assert_eq!(had, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_it_and_a_resume_lets_it_go_on() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let record = world.create().await;
    let id = record.id;
    for _ in 0..3 {
        world.pause(id).await.unwrap();
        assert!(world.zone.running().is_empty());
        assert!(matches!(sandboxes.lookup(id), Lookup::Paused(_)));
        assert!(world.is_listed(id));
        assert!(matches!(world.pause(id).await, Err(PauseError::AlreadyPaused(_))));
        let set = sandboxes.set_timeout(world.team, id, MINUTE).await;
        assert!(matches!(set, Err(TimeoutError::NotFound(_))));
        let from = world.checkpoint(id).await;
        world.agrees(id).await;

        world.clock.advance(Duration::from_hours(1));
        let resumed = world.resume(id).await.unwrap();
        let until = rules::after(world.clock.now(), MINUTE);
        assert_eq!(resumed.usable_until(world.clock.now()), Some(until));
        assert_eq!(resumed.started_at(), record.started_at());
        let spec = world.zone.spec(id).unwrap();
        assert_eq!(spec.origin, Origin::Checkpoint { id: from, reboot: false });
        assert_eq!(spec.deadline, until);
        assert_eq!(
            (spec.env, spec.agent_token),
            (record.spec.env.clone(), record.spec.agent_token.clone())
        );
        assert!(matches!(world.resume(id).await, Err(ResumeError::AlreadyRunning(_))));
        world.agrees(id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_resumes_or_extends_and_never_shortens() {
    let world = World::new().await;
    let id = world.create().await.id;
    let now = world.clock.now();
    let five = rules::after(now, Duration::from_mins(5));
    let Connected::Running(record) = world.connect(id).await.unwrap() else { panic!("it ran") };
    assert_eq!(record.usable_until(now), Some(five));
    world.pause(id).await.unwrap();
    let Connected::Resumed(record) = world.connect(id).await.unwrap() else { panic!("it slept") };
    assert_eq!(record.usable_until(now), Some(rules::after(now, MINUTE)));
    let longer = world.control.sandboxes.connect(world.team, id, Duration::from_mins(9), false);
    let Connected::Running(record) = longer.await.unwrap() else { panic!("it ran") };
    assert_eq!(record.usable_until(now), Some(rules::after(now, Duration::from_mins(9))));
}

#[tokio::test(start_paused = true)]
async fn an_echo_of_a_pause_that_is_over_means_nothing() {
    let world = World::new().await;
    let id = world.create().await.id;
    let mut echoes = Vec::new();
    for _ in 0..3 {
        world.pause(id).await.unwrap();
        echoes.extend(world.zone.checkpoints());
        world.resume(id).await.unwrap();
    }
    for checkpoint in echoes {
        world.zone.repeat(Paused { id, checkpoint });
    }
    // What is told later is heard later.
    let other = world.create().await.id;
    world.zone.end(other, EndReason::Crashed);
    world.dead(other).await;
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Running);
    world.pause(id).await.unwrap();
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn files_alone_are_kept_and_started_from_when_asked() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    sandboxes.pause(world.team, id, Kept::Files).await.unwrap();
    assert_eq!(world.zone.checkpoints()[0].kept, Kept::Files);
    sandboxes.resume(world.team, id, MINUTE, false, None).await.unwrap();
    world.pause(id).await.unwrap();
    let from = world.checkpoint(id).await;
    sandboxes.resume(world.team, id, MINUTE, true, Some(true)).await.unwrap();
    let spec = world.zone.spec(id).unwrap();
    assert_eq!(spec.origin, Origin::Checkpoint { id: from, reboot: true });
    assert_eq!(spec.on_deadline, OnDeadline::Pause(Kept::Memory));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_at_the_same_time_meets_in_one_pause_and_one_resume() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.hold();
    let go = async {
        world.is(id, PhaseKind::Pausing).await;
        // Whoever holds a connection keeps it until it is paused.
        assert!(matches!(world.control.sandboxes.lookup(id), Lookup::Pausing(_)));
        tokio::time::sleep(ALL_HAVE_ASKED).await;
        world.zone.release();
    };
    let both = async { tokio::join!(world.pause(id), world.pause(id)) };
    let after = async {
        world.is(id, PhaseKind::Pausing).await;
        tokio::join!(world.connect(id), world.resume(id), world.control.sandboxes.wake(id))
    };
    let ((first, second), (connected, resumed, woken), ()) = tokio::join!(both, after, go);
    first.unwrap();
    second.unwrap();
    assert!(matches!(connected, Ok(Connected::Resumed(_))), "{connected:?}");
    resumed.unwrap();
    woken.unwrap();
    assert_eq!(world.count(&Call::Pause(id, Kept::Memory)), 1);
    assert_eq!(world.count(&Call::Create(id)), 2);
    // Each got the time it asked for, and the longest counts.
    let now = world.clock.now();
    let until = world.record(id).await.usable_until(now);
    assert_eq!(until, Some(rules::after(now, Duration::from_mins(5))));
    assert_eq!(world.zone.spec(id).unwrap().deadline, until.unwrap());
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_behind_a_resume_waits_for_it() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.hold();
    let go = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        tokio::time::sleep(ALL_HAVE_ASKED).await;
        world.zone.release();
    };
    let late = async {
        world.is(id, PhaseKind::Resuming).await;
        world.pause(id).await
    };
    let (resumed, paused, ()) = tokio::join!(world.resume(id), late, go);
    resumed.unwrap();
    paused.unwrap();
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Paused);
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_leave_stop_nothing() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.hold();
    {
        let paused = world.pause(id);
        tokio::select! {
            _ = paused => panic!("the zone holds it"),
            () = world.is(id, PhaseKind::Pausing) => {}
        }
    }
    world.zone.release();
    world.is(id, PhaseKind::Paused).await;
    world.zone.hold();
    {
        let resumed = world.resume(id);
        tokio::select! {
            _ = resumed => panic!("the zone holds it"),
            () = world.is(id, PhaseKind::Resuming) => {}
        }
    }
    world.zone.release();
    world.is(id, PhaseKind::Running).await;
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_pause_leaves_it_running() {
    let world = World::new().await;
    let id = world.create().await.id;
    for (refusal, expected) in [
        (ZonePauseError::AgentUnresponsive, "AgentUnresponsive"),
        (ZonePauseError::DiskFull { needed_mib: 2, free_mib: 1 }, "DiskFull"),
        (ZonePauseError::Internal("a bug".into()), "Failed"),
    ] {
        world.zone.fail_next_pause(refusal);
        assert_eq!(format!("{:?}", world.pause(id).await.unwrap_err()), expected);
        assert!(matches!(world.control.sandboxes.lookup(id), Lookup::Ready(_)));
        world.agrees(id).await;
    }
    // It may be busy for a moment, and the zone away.
    world.zone.fail_next_pause(ZonePauseError::Busy);
    world.zone.fail_next_pause(ZonePauseError::Unavailable);
    world.pause(id).await.unwrap();
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_sandbox_does_not_survive_is_told() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.fail_next_pause(ZonePauseError::Ended);
    assert!(matches!(world.pause(id).await, Err(PauseError::Ended)));
    assert_eq!(world.dead(id).await, "checkpoint failed");
    assert!(matches!(world.pause(id).await, Err(PauseError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_what_the_zone_does_not_have_ends_in_what_became_of_it() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.forget(id);
    assert!(matches!(world.pause(id).await, Err(PauseError::Ended)));
    assert_eq!(world.dead(id).await, "missing");
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_does_not_come_to_an_end_is_not_waited_for() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.hold();
    assert!(matches!(world.pause(id).await, Err(PauseError::TimedOut)));
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Running);
    world.zone.release();
    world.pause(id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_resume_leaves_it_paused_and_another_works() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    let unusable = || CreateError::CheckpointUnusable("another runsc".into());
    let limit = || CreateError::LimitReached { what: "sandboxes", limit: 1 };
    for (failure, expected) in [
        (limit(), "the limit of 1 sandboxes is reached"),
        (CreateError::DiskFull, "the disk is full"),
        (CreateError::Runtime("x".into()), "the sandbox was not resumed"),
        (unusable(), "the sandbox can't go on here: another runsc"),
    ] {
        world.zone.script(ScriptedCreate::Fail(failure));
        assert_eq!(world.resume(id).await.unwrap_err().to_string(), expected);
        assert!(matches!(world.control.sandboxes.lookup(id), Lookup::Paused(_)));
        world.agrees(id).await;
    }
    world.resume(id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resume_whose_answer_does_not_come_is_taken_back() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.script(ScriptedCreate::Hang);
    assert!(matches!(world.resume(id).await, Err(ResumeError::TimedOut)));
    world.is(id, PhaseKind::Paused).await;
    assert!(world.zone.running().is_empty() && world.zone.starting().is_empty());
    // Whoever comes while it is taken back waits for that.
    world.zone.script(ScriptedCreate::Hang);
    assert!(matches!(world.resume(id).await, Err(ResumeError::TimedOut)));
    world.resume(id).await.unwrap();
    assert_eq!(world.zone.running(), [id]);
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_resume_is_asked_for_again() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.script(ScriptedCreate::LoseAnswer);
    world.resume(id).await.unwrap();
    assert_eq!(world.zone.running(), [id]);
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_lost_its_checkpoint_is_dead() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.lose_checkpoint(world.checkpoint(id).await);
    assert!(matches!(world.resume(id).await, Err(ResumeError::CheckpointLost)));
    assert_eq!(world.dead(id).await, "checkpoint lost");
    // Of one that nobody resumes, the next hello tells.
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.lose_checkpoint(world.checkpoint(id).await);
    world.zone.drop_subscribers();
    assert_eq!(world.dead(id).await, "checkpoint lost");
}

#[tokio::test(start_paused = true)]
async fn a_kill_works_at_each_step_and_leaves_nothing() {
    let world = World::new().await;
    let kill = async |id| world.control.sandboxes.kill(world.team, id).await;
    // Paused.
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    kill(id).await.unwrap();
    assert_eq!(world.dead(id).await, "killed");
    assert!(world.zone.checkpoints().is_empty());
    assert!(matches!(kill(id).await, Err(KillError::NotFound(_))));
    // Pausing.
    let id = world.create().await.id;
    world.zone.hold();
    let killed = async {
        world.is(id, PhaseKind::Pausing).await;
        kill(id).await
    };
    let (paused, killed) = tokio::join!(world.pause(id), killed);
    killed.unwrap();
    assert!(matches!(paused, Err(PauseError::Ended)), "{paused:?}");
    assert_eq!(world.dead(id).await, "killed");
    world.zone.release();
    // Resuming.
    let id = world.create().await.id;
    world.pause(id).await.unwrap();
    world.zone.script(ScriptedCreate::Hang);
    let killed = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        kill(id).await
    };
    let (resumed, killed) = tokio::join!(world.resume(id), killed);
    killed.unwrap();
    assert!(matches!(resumed, Err(ResumeError::Killed)), "{resumed:?}");
    assert_eq!(world.dead(id).await, "killed");
    let nothing =
        |world: &World| world.zone.checkpoints().is_empty() && world.zone.running().is_empty();
    world.until("nothing is left", nothing).await;
}

#[tokio::test(start_paused = true)]
async fn one_whose_time_is_over_is_paused_by_its_zone() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = sandboxes.create(world.team, sleepy()).await.unwrap().id;
    world.clock.advance(Duration::from_mins(5));
    assert!(matches!(sandboxes.lookup(id), Lookup::Pausing(_)));
    assert!(world.is_listed(id));
    world.zone.end_expired();
    world.is(id, PhaseKind::Paused).await;
    world.agrees(id).await;
    assert_eq!(world.count(&Call::Pause(id, Kept::Memory)), 0);
    // It sleeps as long as nobody comes.
    world.clock.advance(Duration::from_hours(24 * 60));
    assert!(matches!(sandboxes.lookup(id), Lookup::Paused(_)));
    sandboxes.wake(id).await.unwrap();
    let now = world.clock.now();
    let until = world.record(id).await.usable_until(now);
    assert_eq!(until, Some(rules::after(now, Duration::from_mins(5))));
}

#[tokio::test(start_paused = true)]
async fn control_asks_for_the_pause_when_the_zone_does_not_do_it() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = sandboxes.create(world.team, sleepy()).await.unwrap().id;
    world.clock.advance(Duration::from_mins(5) + Duration::from_secs(2));
    world.is(id, PhaseKind::Paused).await;
    assert_eq!(world.count(&Call::Pause(id, Kept::Memory)), 1);
    assert_eq!(world.count(&Call::Kill(id)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_refused_for_long_keeps_files_alone() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = sandboxes.create(world.team, sleepy()).await.unwrap().id;
    world.clock.advance(Duration::from_mins(5) + Duration::from_secs(2));
    for _ in 0..3 {
        let refused = world.zone.calls().len();
        world.zone.fail_next_pause(ZonePauseError::DiskFull { needed_mib: 2, free_mib: 1 });
        world.until("asked", |world| world.zone.calls().len() > refused).await;
        world.is(id, PhaseKind::Running).await;
        assert!(world.is_listed(id), "it overstays");
        world.clock.advance(Duration::from_secs(50));
    }
    world.is(id, PhaseKind::Paused).await;
    let asked =
        (world.count(&Call::Pause(id, Kept::Memory)), world.count(&Call::Pause(id, Kept::Files)));
    assert_eq!(asked, (3, 1));
}

#[tokio::test(start_paused = true)]
async fn who_connects_when_the_pause_is_due_gets_it_back() {
    let world = World::new().await;
    let id = world.control.sandboxes.create(world.team, sleepy()).await.unwrap().id;
    world.clock.advance(Duration::from_mins(5));
    let connected = world.connect(id).await.unwrap();
    assert!(matches!(connected, Connected::Resumed(_)), "{connected:?}");
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn another_process_finds_them_asleep_and_finishes_what_was_begun() {
    let mut world = World::new().await;
    let (paused, pausing, resuming) =
        (world.create().await.id, world.create().await.id, world.create().await.id);
    world.pause(paused).await.unwrap();
    world.pause(resuming).await.unwrap();
    world.zone.hold();
    {
        let going = async { tokio::join!(world.pause(pausing), world.resume(resuming)) };
        tokio::select! {
            _ = going => panic!("the zone holds them"),
            () = async {
                world.is(pausing, PhaseKind::Pausing).await;
                world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
            } => {}
        }
    }
    world.die().await;
    world.zone.release();
    world.start_again().await;
    world.is(pausing, PhaseKind::Paused).await;
    world.is(resuming, PhaseKind::Running).await;
    assert!(matches!(world.control.sandboxes.lookup(paused), Lookup::Paused(_)));
    world.until("no leftovers", |world| world.zone.checkpoints().len() == 2).await;
    world.resume(paused).await.unwrap();
    assert_eq!(world.zone.running().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_nobody_heard_of_is_recorded_at_the_next_start() {
    let mut world = World::new().await;
    let id = world.control.sandboxes.create(world.team, sleepy()).await.unwrap().id;
    world.die().await;
    world.clock.advance(Duration::from_mins(6));
    world.zone.end_expired();
    world.start_again().await;
    assert!(matches!(world.control.sandboxes.lookup(id), Lookup::Paused(_)));
    world.agrees(id).await;
    // The host is started anew: what was paused is still there.
    world.zone.restart("boot-2");
    world.resume(id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_resume_has_made_is_ended_and_the_pause_stays() {
    let mut world = World::new().await;
    let id = world.create().await.id;
    let spec = world.zone.spec(id).unwrap();
    world.pause(id).await.unwrap();
    world.die().await;
    world.zone.plant(spec);
    world.start_again().await;
    world.until("killed", |world| world.zone.running().is_empty()).await;
    world.until("acknowledged", |world| world.zone.ended().is_empty()).await;
    assert!(matches!(world.control.sandboxes.lookup(id), Lookup::Paused(_)));
    world.resume(id).await.unwrap();
    world.agrees(id).await;
}

#[tokio::test(start_paused = true)]
async fn nobodys_checkpoints_are_discarded() {
    let mut world = World::new().await;
    let (stale, dead) = (world.create().await.id, world.create().await.id);
    world.pause(stale).await.unwrap();
    world.pause(dead).await.unwrap();
    world.zone.forget(dead);
    world.die().await;
    // A killed one, and one that has gone on, as if the words to discard had been lost.
    let record = world.store.read(move |tx| tx.sandbox(dead)).await.unwrap().unwrap();
    let at = world.clock.now();
    let reason = sandboxo_model::DeathReason::Ended(EndReason::Killed);
    let record = SandboxRecord { phase: Phase::Dead { at, reason, started_at: None }, ..record };
    world
        .store
        .write(move |tx| {
            tx.put_sandbox(&record);
            Ok::<_, sandboxo_store::StoreError>(())
        })
        .await
        .unwrap();
    world.start_again().await;
    world.until("discarded", |world| world.zone.checkpoints().len() == 1).await;
    assert_eq!(world.zone.checkpoints()[0].sandbox, stale);
}

#[tokio::test(start_paused = true)]
async fn they_are_listed_with_their_phase() {
    let world = World::new().await;
    let (runs, sleeps) = (world.create().await.id, world.create().await.id);
    world.pause(sleeps).await.unwrap();
    let list = async |phases: &[PhaseKind]| {
        let query = ListQuery { phases: phases.iter().copied().collect(), ..ListQuery::default() };
        let page = world.control.sandboxes.list(world.team, query).await.unwrap();
        (page.items.iter().map(|it| it.id).collect::<Vec<_>>(), page.running)
    };
    assert_eq!(list(&[PhaseKind::Running]).await, (vec![runs], 1));
    assert_eq!(list(&[PhaseKind::Paused]).await, (vec![sleeps], 0));
    let (both, running) = list(&[PhaseKind::Running, PhaseKind::Paused]).await;
    assert_eq!((both.len(), running), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn resumes_take_turns_too() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let id = world.create().await.id;
        world.pause(id).await.unwrap();
        ids.push(id);
    }
    world.zone.hold();
    let resumes = futures_util::future::join_all(ids.iter().map(|id| world.resume(*id)));
    let release = async {
        world.zone.wait_for(|zone| zone.starting().len() == 6).await;
        tokio::time::sleep(ALL_HAVE_ASKED).await;
        assert_eq!(world.zone.starting().len(), 6, "no more than one team's share");
        world.zone.release();
    };
    let (answers, ()) = tokio::join!(resumes, release);
    assert!(answers.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn traffic_that_has_left_wakes_no_more_than_a_few() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..70 {
        let id = world.create().await.id;
        world.pause(id).await.unwrap();
        ids.push(id);
    }
    world.zone.hold();
    {
        let wakes = ids.iter().map(|id| world.control.sandboxes.wake(*id));
        let wakes = futures_util::future::join_all(wakes);
        tokio::select! {
            _ = wakes => panic!("the zone holds them"),
            () = async { for id in &ids { world.is(*id, PhaseKind::Resuming).await; } } => {}
        }
    }
    world
        .until("those beyond 64 are given up", |world| {
            let asleep = ids
                .iter()
                .filter(|id| matches!(world.control.sandboxes.lookup(**id), Lookup::Paused(_)));
            asleep.count() == 6
        })
        .await;
    world.zone.release();
    world.until("the others run", |world| world.zone.running().len() == 64).await;
}
