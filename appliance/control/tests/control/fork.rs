//! Copies of a sandbox.

use std::{collections::BTreeSet, time::Duration};

use sandboxo_control::{CheckpointError, CreateError, ForkError};
use sandboxo_model::{Lifecycle, NetworkAsked, NewSandbox, PhaseKind, rules};
use sandboxo_zone_protocol::{
    Clock as _, CreateError as ZoneCreateError, Kept, OnDeadline, Origin,
    fake::{Call, ScriptedCreate},
};

use crate::world::{World, new};

const MINUTE: Duration = Duration::from_mins(1);

/// For a day.
fn original() -> NewSandbox {
    let private = NetworkAsked { allow_public_traffic: Some(false), ..NetworkAsked::default() };
    NewSandbox {
        timeout: Duration::from_hours(24),
        env: [("A".into(), "b".into())].into(),
        metadata: [("c".into(), "d".into())].into(),
        internet: Some(false),
        network: Some(private),
        lifecycle: Lifecycle { on_timeout: OnDeadline::Pause(Kept::Memory), auto_resume: true },
        ..new()
    }
}

#[tokio::test(start_paused = true)]
async fn copies_go_on_under_identities_of_their_own() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let original = sandboxes.create(world.team, original()).await.unwrap();
    let copies = sandboxes.fork(world.team, original.id, 3, MINUTE).await.unwrap();
    let copies: Vec<_> = copies.into_iter().map(Result::unwrap).collect();
    let ids: BTreeSet<_> = copies.iter().map(|copy| copy.id).chain([original.id]).collect();
    assert_eq!(world.zone.running().len(), 4);
    assert_eq!(ids.len(), 4);
    let snapshots = world.zone.calls();
    let snapshots = snapshots.iter().filter(|call| matches!(call, Call::Snapshot(..))).count();
    assert_eq!(snapshots, 1);
    let mut secrets = BTreeSet::new();
    for copy in copies.iter().chain([&original]) {
        for secret in [&copy.spec.agent_token, &copy.ingress.traffic_token] {
            assert!(secrets.insert(secret.as_ref().unwrap().expose().to_owned()));
        }
    }
    for copy in &copies {
        let (old, spec) = (&original.spec, &copy.spec);
        assert!(matches!(spec.origin, Origin::Checkpoint { reboot: false, .. }));
        assert_eq!(spec.shape(), old.shape());
        assert_eq!((&spec.env, &copy.metadata), (&old.env, &original.metadata));
        assert_eq!((&spec.network, copy.internet), (&old.network, original.internet));
        assert_eq!((spec.on_deadline, copy.auto_resume), (old.on_deadline, true));
        assert_eq!(copy.template.id, original.template.id);
        assert_eq!(spec.hostname, copy.id.label());
        let now = world.clock.now();
        assert_eq!(copy.usable_until(now), Some(rules::after(now, MINUTE)));
        assert!(world.is_listed(copy.id));
    }
    world.has_checkpoints(0).await;
}

#[tokio::test(start_paused = true)]
async fn each_copy_has_an_answer() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    world.zone.script(ScriptedCreate::Fail(ZoneCreateError::DiskFull));
    world.zone.script(ScriptedCreate::Fail(ZoneCreateError::Runtime("x".into())));
    let copies = sandboxes.fork(world.team, id, 4, MINUTE).await.unwrap();
    let count = |found: fn(&CreateError) -> bool| {
        copies.iter().filter_map(|copy| copy.as_ref().err()).filter(|it| found(it)).count()
    };
    assert_eq!(copies.len(), 4);
    assert_eq!(count(|error| matches!(error, CreateError::DiskFull)), 1);
    assert_eq!(count(|error| matches!(error, CreateError::Failed)), 1);
    assert_eq!(world.zone.running().len(), 3);
    world.has_checkpoints(0).await;
}

#[tokio::test(start_paused = true)]
async fn there_are_one_to_a_hundred_of_what_is_known() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    for (count, lifetime) in [(0, MINUTE), (101, MINUTE), (1, Duration::ZERO)] {
        let refused = sandboxes.fork(world.team, id, count, lifetime).await;
        assert!(matches!(refused, Err(ForkError::Invalid(_))), "{count}");
    }
    assert_eq!(sandboxes.fork(world.team, id, 100, MINUTE).await.unwrap().len(), 100);
    assert_eq!(world.zone.running().len(), 101);
    sandboxes.kill(world.team, id).await.unwrap();
    let gone = sandboxes.fork(world.team, id, 1, MINUTE).await;
    assert!(matches!(gone, Err(ForkError::Checkpoint(CheckpointError::NotFound(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_paused_one_stays_paused_and_may_go_on_meanwhile() {
    let world = World::new().await;
    let (sandboxes, team) = (&world.control.sandboxes, world.team);
    let id = sandboxes.create(team, original()).await.unwrap().id;
    sandboxes.pause(team, id, Kept::Memory).await.unwrap();
    let before = world.checkpoints();
    sandboxes.fork(team, id, 2, MINUTE).await.unwrap();
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Paused);
    world.a_while().await;
    // The copies have been paused by now, as the original would have been.
    assert!(world.checkpoints().is_superset(&before));

    // It is gone from under the copies, and they start all the same.
    world.zone.hold();
    let gone = async {
        world.zone.wait_for(|zone| zone.starting().len() == 2).await;
        sandboxes.kill(team, id).await.unwrap();
        assert!(world.checkpoints().is_superset(&before));
        world.zone.release();
    };
    let (copies, ()) = tokio::join!(sandboxes.fork(team, id, 2, MINUTE), gone);
    assert!(copies.unwrap().iter().all(Result::is_ok));
    world.until("it is discarded", |world| world.checkpoints().is_disjoint(&before)).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_leaves_copies_to_the_next_and_no_checkpoint() {
    let mut world = World::new().await;
    let id = world.control.sandboxes.create(world.team, original()).await.unwrap().id;
    for _ in 0..3 {
        world.zone.script(ScriptedCreate::Hang);
    }
    {
        let long = Duration::from_hours(9);
        tokio::select! {
            _ = world.control.sandboxes.fork(world.team, id, 3, long) => panic!("they hang"),
            () = world.zone.wait_for(|zone| zone.starting().len() == 3) => {}
        }
    }
    world.die().await;
    assert_eq!(world.checkpoints().len(), 1);
    world.start_again().await;
    world.until("all run", |world| world.zone.running().len() == 4).await;
    world.a_while().await;
    world.has_checkpoints(0).await;
    assert_eq!(world.zone.running().len(), 4);
}
