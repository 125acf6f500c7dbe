//! The zone's process goes and comes back.

use std::{collections::BTreeSet, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_zone_protocol::{Clock, CreateError, EndReason, NetworkMode, SystemClock, Zone};

use super::world::{World, health, import_busybox, next_end, report, soon, spec, until};

#[tokio::test]
async fn sandboxes_and_pool_outlive_the_zone() {
    let mut world = World::new();
    world.config.warm = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let fresh = world.on_host().await;
    let mut networked = spec(image);
    networked.network.mode = NetworkMode::Full;
    let quiet = spec(image);
    zone.create(networked.clone()).await.unwrap();
    zone.create(quiet.clone()).await.unwrap();
    zone.keep_warm([spec(image).shape()].into()).await.unwrap();
    until("one waits", async || zone.capacity().warm == 1).await;
    zone.set_deadline(quiet.id, soon(900)).await.unwrap();
    let told = report(&zone).await;
    let pids: Vec<_> =
        world.containers().iter().map(|container| world.processes_of(container)).collect();

    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    let again = report(&zone).await;
    assert_eq!(again.sandboxes, told.sandboxes);
    assert_eq!(again.boot_id, told.boot_id);
    assert_eq!(again.capacity.warm, 1);
    let same: Vec<_> =
        world.containers().iter().map(|container| world.processes_of(container)).collect();
    assert_eq!(same, pids, "nobody was started anew");
    for id in [networked.id, quiet.id] {
        assert_eq!(health(&zone, id).await, "HTTP/1.1 204 No Content");
    }
    let claimed = spec(image);
    assert!(zone.create(claimed.clone()).await.unwrap().warm);
    for id in [networked.id, quiet.id, claimed.id] {
        zone.kill(id).await.unwrap();
    }
    world.settles_but_for_network(&fresh).await;
    world.end().await;
}

#[tokio::test]
async fn a_deadline_that_passed_meanwhile_is_applied_before_anything_is_told() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let mut short = spec(image);
    short.deadline = soon(3);
    zone.create(short.clone()).await.unwrap();
    drop(zone);
    world.stop().await;
    until("its time is over", async || SystemClock.now() > short.deadline).await;
    let zone = world.start().await;
    let told = report(&zone).await;
    assert_eq!(told.sandboxes, []);
    assert_eq!(told.ended.len(), 1);
    assert_eq!((told.ended[0].id, told.ended[0].reason), (short.id, EndReason::TimedOut));
    assert!(matches!(zone.create(short).await, Err(CreateError::Killed)));
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn with_the_keeper_gone_too_nothing_is_left() {
    let mut world = World::new();
    world.config.warm = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    zone.keep_warm([spec(image).shape()].into()).await.unwrap();
    let lost = spec(image);
    zone.create(lost.clone()).await.unwrap();
    until("one waits", async || zone.capacity().warm == 1).await;
    let boot_id = report(&zone).await.boot_id;
    drop(zone);
    world.stop().await;
    for pid in world.processes_of("keeper") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let zone = world.start().await;
    let told = report(&zone).await;
    assert_ne!(told.boot_id, boot_id);
    assert_eq!(told.sandboxes, []);
    assert_eq!(told.ended.len(), 1);
    assert_eq!((told.ended[0].id, told.ended[0].reason), (lost.id, EndReason::KeeperLost));
    assert_eq!(told.capacity.warm, 0);
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn the_keepers_death_alone_is_not_noticed() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let first = spec(image);
    zone.create(first.clone()).await.unwrap();
    let boot_id = report(&zone).await.boot_id;
    let old = world.processes_of("keeper");
    for pid in &old {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    until("another keeper", async || {
        let now = world.processes_of("keeper");
        !now.is_empty() && now != old
    })
    .await;
    assert_eq!(health(&zone, first.id).await, "HTTP/1.1 204 No Content");
    assert_eq!(report(&zone).await.boot_id, boot_id);
    let second = spec(image);
    until("creates work again", async || zone.create(second.clone()).await.is_ok()).await;

    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    let ids: Vec<_> = report(&zone).await.sandboxes.iter().map(|sandbox| sandbox.id).collect();
    assert!(ids.contains(&first.id) && ids.contains(&second.id), "{ids:?}");
    let mut events = zone.subscribe().await.unwrap();
    zone.kill(first.id).await.unwrap();
    assert_eq!(next_end(&mut events).await.id, first.id);
    world.end().await;
}

/// Each time the tasks are dropped wherever they are, as a kill does.
#[test]
fn a_zone_that_dies_in_the_middle_of_starts_leaves_nothing_for_good() {
    let mut world = World::new();
    // With one thread nothing runs any more once `block_on` has returned.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (mut zone, image, before) = first.block_on(async {
        let zone = world.start().await;
        let image = import_busybox(&zone).await;
        let before = world.on_host().await;
        (zone, image, before)
    });
    let mut running = first;
    for delay in [1, 15, 30, 60, 90, 120, 160, 220, 300] {
        let (mut networked, quiet) = (spec(image), spec(image));
        networked.network.mode = NetworkMode::Full;
        running.block_on(async {
            let both = async { tokio::join!(zone.create(networked), zone.create(quiet)) };
            let cut = tokio::time::timeout(Duration::from_millis(delay), both).await;
            // Done or not: both are meant to happen.
            drop(cut);
        });
        drop(zone);
        world.forget();
        running.shutdown_timeout(Duration::from_secs(5));
        running = runtime();
        zone = running.block_on(world.start());
        running.block_on(async {
            for sandbox in report(&zone).await.sandboxes {
                assert_eq!(health(&zone, sandbox.id).await, "HTTP/1.1 204 No Content");
                zone.kill(sandbox.id).await.unwrap();
            }
            // One that was cut between its start and its claim belongs to the pool again.
            zone.keep_warm(BTreeSet::new()).await.unwrap();
            world.settles_but_for_network(&before).await;
        });
    }
    drop(zone);
    running.block_on(world.end());
}

#[tokio::test]
async fn what_a_torn_down_zone_ended_is_told_at_the_next_start() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let spec = spec(image);
    zone.create(spec.clone()).await.unwrap();
    drop(zone);
    world.stop().await;
    sandboxo_zone::tear_down(&world.config, SystemClock.now()).await.unwrap();
    assert_eq!(world.on_host().await, std::collections::BTreeMap::new());
    let zone = world.start().await;
    let told = report(&zone).await;
    assert_eq!((told.ended[0].id, told.ended[0].reason), (spec.id, EndReason::Killed));
    zone.acknowledge(vec![spec.id]).await.unwrap();
    world.end().await;
}
