//! The process dies and another takes over.

use std::time::Duration;

use sandboxo_control::CreateError;
use sandboxo_model::{NewSandbox, PhaseKind};
use sandboxo_zone_protocol::{EndReason, fake::Call};

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn running_sandboxes_are_found_as_they_were() {
    let mut world = World::new().await;
    let mut records = Vec::new();
    for _ in 0..10 {
        records.push(world.create().await);
    }
    world.restart().await;
    for record in records {
        assert_eq!(world.control.sandboxes.get(world.team, record.id), Some(record));
    }
    assert_eq!(world.zone.running().len(), 10);
    assert!(world.zone.calls().iter().all(|call| !matches!(call, Call::Kill(_))));
    let caller = world.control.keys.authenticate(world.key.secret.expose()).unwrap();
    assert_eq!(caller.team, world.team);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_was_committed_and_not_delivered_is_finished() {
    let mut world = World::new().await;
    world.zone.hold();
    let keyed = || NewSandbox { idempotency_key: "k".parse().ok(), ..new() };
    {
        let create = world.control.sandboxes.create(world.team, keyed());
        tokio::select! {
            _ = create => panic!("the zone holds it"),
            () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
        }
    }
    let [id] = world.zone.starting()[..] else { panic!("one starts") };
    world.die().await;
    assert!(world.zone.starting().is_empty());
    world.zone.release();
    world.start_again().await;
    world.until("it runs", |world| world.is_listed(id)).await;
    assert_eq!(world.zone.running(), [id]);
    // The client that got no answer asks again and gets it.
    let again = world.control.sandboxes.create(world.team, keyed()).await.unwrap();
    assert_eq!(again.id, id);
    assert_eq!(world.zone.spec(id), Some(again.spec.clone()));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_waited_too_long_is_failed() {
    let mut world = World::new().await;
    world.zone.hold();
    {
        let create = world.control.sandboxes.create(world.team, new());
        tokio::select! {
            _ = create => panic!("the zone holds it"),
            () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
        }
    }
    let [id] = world.zone.starting()[..] else { panic!("one starts") };
    world.die().await;
    world.clock.advance(Duration::from_secs(31));
    world.start_again().await;
    assert_eq!(world.dead(id).await, "not started: it did not start in time");
    let deliveries = world.zone.calls().iter().filter(|it| **it == Call::Create(id)).count();
    assert_eq!(deliveries, 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_not_recorded_is_adopted() {
    let mut world = World::new().await;
    world.zone.hold();
    let create = world.control.sandboxes.create(world.team, new());
    tokio::select! {
        _ = create => panic!("the zone holds it"),
        () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
    }
    let [id] = world.zone.starting()[..] else { panic!("one starts") };
    let spec = world.record(id).await.spec.clone();
    world.die().await;
    world.zone.release();
    world.zone.plant(spec);
    world.clock.advance(Duration::from_mins(1));
    world.start_again().await;
    world.until("adopted", |world| world.is_listed(id)).await;
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Running);
}

#[tokio::test(start_paused = true)]
async fn what_ended_meanwhile_is_recorded_with_its_reason() {
    let mut world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.create().await.id);
    }
    world.die().await;
    world.zone.end(ids[0], EndReason::OutOfMemory);
    world.zone.end(ids[1], EndReason::KeeperLost);
    world.zone.forget(ids[2]);
    world.start_again().await;
    assert!(!world.is_listed(ids[0]) && !world.is_listed(ids[1]) && !world.is_listed(ids[2]));
    assert_eq!(world.dead(ids[0]).await, "out of memory");
    assert_eq!(world.dead(ids[1]).await, "keeper lost");
    assert_eq!(world.dead(ids[2]).await, "missing");
    assert!(world.is_listed(ids[3]));
    world.until("acknowledged", |world| world.zone.ended().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_zone_with_a_new_boot_id_has_restarted() {
    let mut world = World::new().await;
    let id = world.create().await.id;
    world.die().await;
    world.zone.restart("boot-2");
    world.start_again().await;
    assert_eq!(world.dead(id).await, "zone restarted");
    assert_eq!(world.control.zones.list()[0].boot_id.as_deref(), Some("boot-2"));
}

#[tokio::test(start_paused = true)]
async fn deadlines_that_passed_meanwhile_are_applied_before_anything_is_served() {
    let mut world = World::new().await;
    let id = world.create().await.id;
    world.die().await;
    world.clock.advance(Duration::from_mins(6));
    world.start_again().await;
    assert!(world.zone.running().is_empty());
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Dead);
    assert_eq!(world.dead(id).await, "timed out");
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_was_not_confirmed_is_finished() {
    let mut world = World::new().await;
    let id = world.create().await.id;
    world.zone.set_available(false);
    assert!(world.control.sandboxes.kill(world.team, id).await.is_err());
    world.die().await;
    world.zone.set_available(true);
    world.start_again().await;
    assert_eq!(world.dead(id).await, "killed");
    assert!(world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_runs_without_a_record_is_killed() {
    let mut world = World::new().await;
    let mut spec = world.create().await.spec.clone();
    let known = spec.id;
    spec.id = "sbx_loc_0123456789abcdefghjk".parse().unwrap();
    world.die().await;
    world.zone.plant(spec);
    world.start_again().await;
    assert_eq!(world.zone.running(), [known]);
    assert!(world.zone.ended().is_empty());
}

#[tokio::test(start_paused = true)]
async fn rules_are_told_again_since_nobody_knows_whether_they_were() {
    let mut world = World::new().await;
    let record = world.create().await;
    world.restart().await;
    let told = Call::SetNetwork(record.id, record.spec.network.clone());
    world.until("told", |world| world.zone.calls().contains(&told)).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_without_the_zone_serves_records_and_catches_up() {
    let mut world = World::new().await;
    let kept = world.create().await.id;
    let lost = world.create().await.id;
    world.die().await;
    world.zone.set_available(false);
    world.start_again().await;
    assert!(world.is_listed(kept) && world.is_listed(lost));
    assert!(!world.control.zones.list()[0].ready);
    let refused = world.control.sandboxes.create(world.team, new()).await;
    assert!(matches!(refused, Err(CreateError::ZoneUnavailable)));
    world.zone.forget(lost);
    world.zone.set_available(true);
    assert_eq!(world.dead(lost).await, "missing");
    assert!(world.is_listed(kept) && world.control.zones.list()[0].ready);
}

#[tokio::test(start_paused = true)]
async fn the_zone_code_of_ids_stays() {
    let mut world = World::new().await;
    let before = world.create().await.id.zone_code();
    world.restart().await;
    assert_eq!(world.create().await.id.zone_code(), before);
}
