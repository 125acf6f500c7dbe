//! Sandboxes that are frozen while nobody uses them, and wake for whoever does.

use std::{fs, path::Path, time::Duration};

use sandboxo_zone::LocalZone;
use sandboxo_zone_protocol::{Kept, Origin, SandboxSpec, Zone};

use super::{
    pause::{COUNT, counts_on, networked},
    world::{World, import_busybox, report, run, said, soon, spec, until},
};

async fn frozen(zone: &LocalZone, count: u32) {
    until("so many are frozen", async || zone.capacity().frozen == count).await;
}

/// As the kernel says it, by which nothing runs any more.
async fn is_stopped(world: &World, container: &str) {
    let below = Path::new("sandboxo").join(&world.config.instance).join(container);
    let base = Path::new("/sys/fs/cgroup");
    until("the kernel has stopped it", async || {
        let v1 = fs::read_to_string(base.join("freezer").join(&below).join("freezer.state"));
        let v2 = fs::read_to_string(base.join(&below).join("cgroup.events"));
        v1.is_ok_and(|state| state.trim() == "FROZEN")
            || v2.is_ok_and(|events| events.contains("frozen 1"))
    })
    .await;
}

fn freezing() -> World {
    let mut world = World::new();
    world.config.freeze_after = Some(Duration::from_secs(1));
    world
}

#[tokio::test]
async fn an_unused_sandbox_is_frozen_and_wakes_for_whatever_is_sent_to_it() {
    let mut world = freezing();
    let zone = world.start().await;
    let spec = networked(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    let container = world.containers().remove(0);
    assert_eq!(said(&zone, spec.id, "echo here > /root/file; echo done").await, "done\n");
    for _twice in 0..2 {
        frozen(&zone, 1).await;
        is_stopped(&world, &container).await;
        // Asked by the zone's own, it stays as it is, and tells all the same.
        assert!(zone.measure(spec.id).await.unwrap().memory_used_bytes > 0);
        zone.notices(spec.id).await.unwrap();
        zone.set_deadline(spec.id, soon(600)).await.unwrap();
        assert_eq!(report(&zone).await.sandboxes.len(), 1);
        assert_eq!(zone.capacity().frozen, 1);
        assert_eq!(said(&zone, spec.id, "cat /root/file").await, "here\n");
    }

    // What is at work is left to it.
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    run(&zone, spec.id, "sleep 3").await;
    assert_eq!(zone.capacity().frozen, 0, "somebody waits for it");
    counts_on(&zone, spec.id, count).await;
    world.end().await;
}

#[tokio::test]
async fn a_frozen_sandbox_is_saved_killed_and_taken_over_like_any_other() {
    let mut world = freezing();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let one = networked(image);
    zone.create(one.clone()).await.unwrap();
    said(&zone, one.id, "echo kept > /root/file").await;
    frozen(&zone, 1).await;
    let paused = zone.pause(one.id, Kept::Memory).await.unwrap();
    let origin = Origin::Checkpoint { id: paused.id, reboot: false };
    zone.create(SandboxSpec { origin, deadline: soon(600), ..one.clone() }).await.unwrap();
    frozen(&zone, 1).await;
    zone.snapshot(one.id, Kept::Memory).await.unwrap();
    assert_eq!(said(&zone, one.id, "cat /root/file").await, "kept\n");

    // A zone that stops lets it go on, one that dies can't; the next one reaches both.
    frozen(&zone, 1).await;
    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    assert_eq!(said(&zone, one.id, "cat /root/file").await, "kept\n");
    let other = spec(image);
    zone.create(other.clone()).await.unwrap();
    frozen(&zone, 2).await;
    zone.kill(one.id).await.unwrap();
    zone.set_deadline(other.id, soon(0)).await.unwrap();
    until("its time is over", async || report(&zone).await.sandboxes.is_empty()).await;
    until("nothing is left of them", async || world.containers().is_empty()).await;
    world.end().await;
}

/// Its runtime is gone with all that it would have done.
#[test]
fn a_zone_that_dies_leaves_frozen_sandboxes_that_the_next_one_wakes() {
    let mut world = freezing();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let running = runtime();
    let spec = running.block_on(async {
        let zone = world.start().await;
        let spec = spec(import_busybox(&zone).await);
        zone.create(spec.clone()).await.unwrap();
        frozen(&zone, 1).await;
        spec
    });
    world.forget();
    running.shutdown_timeout(Duration::from_secs(5));
    let running = runtime();
    running.block_on(async {
        // As a kill leaves it.
        let below = Path::new("sandboxo").join(&world.config.instance);
        let state = Path::new("/sys/fs/cgroup/freezer").join(below).join(&world.containers()[0]);
        if state.exists() {
            fs::write(state.join("freezer.state"), "FROZEN").unwrap();
        }
        let zone = world.start().await;
        assert_eq!(said(&zone, spec.id, "echo awake").await, "awake\n");
        world.end().await;
    });
}
