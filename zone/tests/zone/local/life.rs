//! From create to kill.

use sandboxo_zone_protocol::{ConnectError, CreateError, EndReason, Zone, ZoneError, ZoneEvent};

use super::world::{World, health, import_busybox, report, spec};

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
    assert_eq!(world.on_host().await, before);
    assert!(matches!(zone.kill(spec.id).await, Err(ZoneError::NotFound)));
    assert!(matches!(zone.connect(spec.id, 80).await, Err(ConnectError::NotFound)));
    assert!(matches!(zone.create(spec.clone()).await, Err(CreateError::Killed)));
    assert!(matches!(events.recv().await, Some(ZoneEvent::Hello(_))));
    let ended = loop {
        match events.recv().await.unwrap() {
            ZoneEvent::SandboxEnded(ended) => break ended,
            ZoneEvent::Ping(_) | ZoneEvent::Hello(_) => {}
        }
    };
    assert_eq!((ended.id, ended.reason), (spec.id, EndReason::Killed));
    assert_eq!(report(&zone).await.ended, [ended]);
    zone.acknowledge(vec![spec.id]).await.unwrap();
    assert_eq!(report(&zone).await.ended, []);
    world.end().await;
}
