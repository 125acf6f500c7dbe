//! Somebody ends the agent, the real one: from inside, as root there, or from the host.

use std::{fs, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_zone_protocol::{EndReason, Zone};
use tokio::time::timeout;

use super::world::{World, import_busybox, is_well, neighbor, next_end, run, spec};

#[tokio::test]
async fn root_inside_can_end_its_own_sandbox_and_nothing_else() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let before = world.on_host().await;
    let mut events = zone.subscribe().await.unwrap();
    let tough = spec(image);
    zone.create(tough.clone()).await.unwrap();
    for harmless in ["-TERM 1", "-INT 1", "-HUP 1", "-USR1 1", "-PIPE 1", "-KILL -1"] {
        run(&zone, tough.id, &format!("kill {harmless}")).await;
        is_well(&zone, tough.id).await;
    }
    zone.kill(tough.id).await.unwrap();
    assert_eq!(next_end(&mut events).await.reason, EndReason::Killed);

    for deadly in ["-KILL 1", "-ABRT 1"] {
        let mortal = spec(image);
        zone.create(mortal.clone()).await.unwrap();
        let cut = run(&zone, mortal.id, &format!("kill {deadly}; sleep 1000")).await;
        assert_eq!(cut.code, None, "{deadly}: {cut:?}");
        let ended = next_end(&mut events).await;
        assert_eq!((ended.id, ended.reason), (mortal.id, EndReason::Crashed), "{deadly}");
        is_well(&zone, neighbor).await;
    }

    // One that is stopped says nothing more, and ends like any other.
    let stopped = spec(image);
    zone.create(stopped.clone()).await.unwrap();
    let silent = run(&zone, stopped.id, "kill -STOP 1");
    assert!(timeout(Duration::from_secs(1), silent).await.is_err());
    zone.measure(stopped.id).await.unwrap();
    zone.kill(stopped.id).await.unwrap();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (stopped.id, EndReason::Killed));
    is_well(&zone, neighbor).await;
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_that_loses_a_process_of_its_own_on_the_host_is_told_as_crashed() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let (before, others) = (world.on_host().await, world.containers());
    let mut events = zone.subscribe().await.unwrap();
    for part in ["runsc-sandbox", "runsc-gofer"] {
        let victim = spec(image);
        zone.create(victim.clone()).await.unwrap();
        let container = world.containers().into_iter().find(|it| !others.contains(it)).unwrap();
        let is_part = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(part.as_bytes())
        };
        let pid = world.processes_of(&container).into_iter().find(is_part).expect(part);
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let ended = next_end(&mut events).await;
        assert_eq!((ended.id, ended.reason), (victim.id, EndReason::Crashed), "{part}");
        is_well(&zone, neighbor).await;
        world.settles_to(&before).await;
    }
    world.end().await;
}
