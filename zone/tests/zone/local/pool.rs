//! Sandboxes that wait for somebody.

use std::collections::BTreeSet;

use sandboxo_zone_protocol::{NetworkMode, NetworkPolicy, Platform, Resources, SandboxSpec, Zone};

use super::world::{SMALL, World, health, import_busybox, spec, until};

#[tokio::test]
async fn a_claim_takes_what_waits_and_the_pool_fills_again() {
    let mut world = World::new();
    world.config.warm = 2;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    zone.keep_warm([spec(image).shape()].into()).await.unwrap();
    until("two wait", async || zone.capacity().warm == 2).await;

    let (warm, cold) = (spec(image), {
        let mut cold = spec(image);
        cold.resources = Resources { disk_mib: 80, ..SMALL };
        cold
    });
    assert!(zone.create(warm.clone()).await.unwrap().warm);
    assert!(!zone.create(cold.clone()).await.unwrap().warm);
    assert_eq!(zone.capacity().running, 2);
    assert_eq!(health(&zone, warm.id).await, "HTTP/1.1 204 No Content");
    until("two wait again", async || zone.capacity().warm == 2).await;

    zone.keep_warm(BTreeSet::new()).await.unwrap();
    zone.kill(warm.id).await.unwrap();
    zone.kill(cold.id).await.unwrap();
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn a_member_that_died_is_never_handed_out() {
    let mut world = World::new();
    world.config.warm = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    zone.keep_warm([spec(image).shape()].into()).await.unwrap();
    until("one waits", async || zone.capacity().warm == 1).await;
    for pid in world.processes_of(&world.containers()[0]) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).ok();
    }
    let spec = spec(image);
    zone.create(spec.clone()).await.unwrap();
    assert_eq!(health(&zone, spec.id).await, "HTTP/1.1 204 No Content");
    world.end().await;
}

#[tokio::test]
async fn what_waits_is_as_each_template_s_sandboxes_are() {
    let mut world = World::new();
    world.config.warm = 4;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let large = SandboxSpec { resources: Resources { memory_mib: 192, ..SMALL }, ..spec(image) };
    let networked = SandboxSpec { network: NetworkPolicy::OPEN, ..spec(image) };
    zone.keep_warm([large.shape(), networked.shape()].into()).await.unwrap();
    until("two of each wait", async || zone.capacity().warm == 4).await;
    assert!(!zone.create(spec(image)).await.unwrap().warm, "no template says so");
    for wanted in [large, networked] {
        assert!(zone.create(wanted.clone()).await.unwrap().warm);
        assert_eq!(health(&zone, wanted.id).await, "HTTP/1.1 204 No Content");
        let memory = zone.measure(wanted.id).await.unwrap().memory_total_bytes;
        assert_eq!(memory, u64::from(wanted.resources.memory_mib) << 20);
        assert!(wanted.network.mode == NetworkMode::None || wanted.resources == SMALL);
    }
    world.end().await;
}

#[tokio::test]
async fn sandboxes_on_systrap_wait_once_they_are_asked_for() {
    let mut world = World::new();
    world.config.warm = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let systrap = || SandboxSpec { platform: Platform::Systrap, ..spec(image) };
    zone.keep_warm([systrap().shape()].into()).await.unwrap();
    let (first, second) = (systrap(), systrap());
    assert!(!zone.create(first.clone()).await.unwrap().warm);
    until("one waits", async || zone.capacity().warm == 1).await;
    assert!(zone.create(second.clone()).await.unwrap().warm);
    for id in [first.id, second.id] {
        assert_eq!(health(&zone, id).await, "HTTP/1.1 204 No Content");
    }
    let on_systrap = |container: &String| {
        world.processes_of(container).into_iter().any(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.contains("--platform=systrap"))
        })
    };
    let containers = world.containers();
    assert!(containers.len() >= 2 && containers.iter().all(on_systrap), "{containers:?}");
    world.end().await;
}
