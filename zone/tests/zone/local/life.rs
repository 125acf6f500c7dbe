//! From create to kill.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_zone_protocol::{ConnectError, CreateError, EndReason, Resources, Zone, ZoneError};

use super::world::{SMALL, World, health, import_busybox, next_end, report, soon, spec};

#[tokio::test]
async fn a_sandbox_is_made_reached_and_killed_without_a_trace() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let mut events = zone.subscribe().await.unwrap();

    let spec = spec(image);
    let started = zone.create(spec.clone()).await.unwrap();
    assert!(!started.warm);
    assert_eq!(zone.create(spec.clone()).await.unwrap(), started, "a repeat is a success");
    assert_eq!(health(&zone, spec.id).await, "HTTP/1.1 204 No Content");
    assert!(matches!(zone.connect(spec.id, 9).await, Err(ConnectError::PortClosed(9))));
    let measured = zone.measure(spec.id).await.unwrap();
    assert_eq!(measured.memory_total_bytes, 128 << 20);
    assert!(measured.memory_used_bytes > 1 << 20, "{measured:?}");
    assert!(measured.disk_used_bytes < 4 << 20, "{measured:?}");
    let sandboxes = report(&zone).await.sandboxes;
    assert_eq!(sandboxes.iter().map(|it| it.id).collect::<Vec<_>>(), [spec.id]);
    let during = world.on_host().await;
    assert_eq!(during["loop devices"].len(), 1, "{during:?}");
    assert!(during["processes"].len() >= 2, "{during:?}");

    zone.kill(spec.id).await.unwrap();
    world.settles_to(&before).await;
    assert!(matches!(zone.kill(spec.id).await, Err(ZoneError::NotFound)));
    assert!(matches!(zone.connect(spec.id, 80).await, Err(ConnectError::NotFound)));
    assert!(matches!(zone.create(spec.clone()).await, Err(CreateError::Killed)));
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (spec.id, EndReason::Killed));
    assert_eq!(report(&zone).await.ended, [ended]);
    zone.acknowledge(vec![spec.id]).await.unwrap();
    assert_eq!(report(&zone).await.ended, []);
    world.end().await;
}

#[tokio::test]
async fn sandboxes_end_for_their_own_reasons() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let mut events = zone.subscribe().await.unwrap();

    let late = spec(image);
    zone.create(late.clone()).await.unwrap();
    let deadline = soon(1000);
    zone.set_deadline(late.id, deadline).await.unwrap();
    assert_eq!(report(&zone).await.sandboxes[0].deadline, deadline);
    zone.set_deadline(late.id, soon(0)).await.unwrap();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (late.id, EndReason::TimedOut));

    let crashed = spec(image);
    zone.create(crashed.clone()).await.unwrap();
    for pid in world.processes_of(&world.containers()[0]) {
        // Some are children of others and gone by then.
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (crashed.id, EndReason::Crashed));

    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn what_the_host_cannot_take_is_refused_and_says_why() {
    let mut world = World::new();
    world.config.limits.sandboxes = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;

    let unknown = sandboxo_zone_protocol::ImageDigest::from_bytes([7; 32]);
    let refused = zone.create(spec(unknown)).await.unwrap_err();
    assert!(matches!(refused, CreateError::ImageNotFound(image) if image == unknown));
    let mut huge = spec(image);
    huge.resources = Resources { memory_mib: u32::MAX, ..SMALL };
    let refused = zone.create(huge).await.unwrap_err().to_string();
    assert!(refused.contains("memory"), "{refused}");

    let (first, second) = (spec(image), spec(image));
    let (one, two) = tokio::join!(zone.create(first.clone()), zone.create(second.clone()));
    one.unwrap();
    assert_eq!(two.unwrap_err().to_string(), "the zone's limit of 1 sandboxes is reached");
    zone.kill(first.id).await.unwrap();
    zone.create(second.clone()).await.unwrap();
    zone.kill(second.id).await.unwrap();
    world.settles_to(&before).await;
    world.end().await;
}
