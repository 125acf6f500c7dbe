//! Sandboxes that wait for somebody.

use sandboxo_zone_protocol::{NetworkMode, Platform, Resources, SandboxSpec, Zone};

use super::world::{SMALL, World, health, import_busybox, spec, until};

#[tokio::test]
async fn a_claim_takes_what_waits_and_the_pool_fills_again() {
    let mut world = World::new();
    world.config.warm.size = 2;
    world.config.warm.modes = vec![NetworkMode::None];
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    zone.keep_warm(vec![image]).await.unwrap();
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

    zone.keep_warm(vec![]).await.unwrap();
    zone.kill(warm.id).await.unwrap();
    zone.kill(cold.id).await.unwrap();
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn a_member_that_died_is_never_handed_out() {
    let mut world = World::new();
    world.config.warm.size = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    zone.keep_warm(vec![image]).await.unwrap();
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
async fn a_sandbox_on_systrap_runs_and_never_waits_in_the_pool() {
    let mut world = World::new();
    world.config.warm.size = 1;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    zone.keep_warm(vec![image]).await.unwrap();
    until("one waits", async || zone.capacity().warm == 1).await;
    let spec = SandboxSpec { platform: Platform::Systrap, ..spec(image) };
    assert!(!zone.create(spec.clone()).await.unwrap().warm);
    assert_eq!(health(&zone, spec.id).await, "HTTP/1.1 204 No Content");
    let systrap = |container: &String| {
        world.processes_of(container).into_iter().any(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.contains("--platform=systrap"))
        })
    };
    assert_eq!(world.containers().iter().filter(|it| systrap(it)).count(), 1);
    world.end().await;
}
