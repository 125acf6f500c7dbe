//! What is made ahead for checkpoints, and what becomes of a resume without it.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_zone::LocalZone;
use sandboxo_zone_protocol::{CheckpointId, Kept, Origin, SandboxSpec, Zone};

use super::{
    pause::{COUNT, counts_on, networked},
    trouble::with_moody_runsc,
    world::{World, chain, import_busybox, said, soon, until, which, write_script},
};

/// Over the link to the zone, which answers there.
const REACHES: &str = "nc -w 10 $(sed -n 's/^nameserver //p' /etc/resolv.conf) 53 < /dev/null \
                       && ip route | grep -c default";

/// Whether it went on in what was there already.
async fn resumed(zone: &LocalZone, spec: &SandboxSpec, from: CheckpointId, reboot: bool) -> bool {
    let origin = Origin::Checkpoint { id: from, reboot };
    let spec = SandboxSpec { origin, deadline: soon(600), ..spec.clone() };
    match zone.create(spec).await {
        Ok(started) => started.warm,
        Err(error) => panic!("it starts from the checkpoint: {}", chain(&error)),
    }
}

fn is_there(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

async fn wait(zone: &LocalZone, blanks: u32) {
    until("so many blanks wait", async || zone.capacity().blanks == blanks).await;
}

#[tokio::test]
async fn a_sandbox_goes_on_in_what_was_made_ahead_with_a_network_of_its_own() {
    let mut world = World::new();
    world.config.blanks = 2;
    let zone = world.start().await;
    let spec = networked(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    assert_eq!(said(&zone, spec.id, REACHES).await, "1\n");
    assert_eq!(zone.capacity().blanks, 0, "nothing could be restored");
    said(&zone, spec.id, COUNT).await;
    let mut count = counts_on(&zone, spec.id, 0).await;
    for _twice in 0..2 {
        let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
        wait(&zone, 2).await;
        assert!(resumed(&zone, &spec, paused.id, false).await, "it had to be made");
        for pid in world.containers().iter().flat_map(|it| world.processes_of(it)) {
            // A process that ends meanwhile has none.
            let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
            assert!(score.is_ok_and(|score| score == "500\n") || !is_there(pid), "{pid}");
        }
        zone.discard(paused.id).await.unwrap();
        count = counts_on(&zone, spec.id, count).await;
        assert_eq!(said(&zone, spec.id, REACHES).await, "1\n");
    }

    // Those that wait end with the process that made them, and a dead one is nobody's.
    let saved = zone.snapshot(spec.id, Kept::Memory).await.unwrap();
    wait(&zone, 2).await;
    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    counts_on(&zone, spec.id, count).await;
    wait(&zone, 2).await;
    let own = world.containers().len();
    assert_eq!(own, 3, "{:?}", world.containers());
    zone.kill(spec.id).await.unwrap();
    until("only blanks are left", async || world.containers().len() == 2).await;
    for container in world.containers() {
        for pid in world.processes_of(&container) {
            // Some are children of others and gone by then.
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
    let copy = networked(spec.image);
    resumed(&zone, &copy, saved.id, true).await;
    assert_eq!(said(&zone, copy.id, REACHES).await, "1\n");
    assert_eq!(said(&zone, copy.id, "echo $E2B_SANDBOX_ID").await.trim(), copy.id.label());
    world.end().await;
}

/// Its sentries may speak another protocol.
#[tokio::test]
async fn a_runsc_that_nobody_knows_is_asked_by_its_command_line() {
    let mut world = World::new();
    world.config.blanks = 1;
    let script = world.path("runsc");
    let text = format!(
        "#!/bin/sh\ncase $1 in --version) echo runsc version release-20240807.0; exit ;; esac\n\
         for word; do [ \"$word\" != create ] || exit 3; done\nexec {} \"$@\"\n",
        which("runsc").display(),
    );
    write_script(&script, &text);
    world.config.runsc = script;
    let zone = world.start().await;
    let spec = networked(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
    assert!(!resumed(&zone, &spec, paused.id, false).await);
    counts_on(&zone, spec.id, count).await;
    assert_eq!(said(&zone, spec.id, REACHES).await, "1\n");
    world.end().await;
}

#[tokio::test]
async fn a_sentry_that_does_not_answer_is_done_without() {
    let mut world = with_moody_runsc();
    world.config.start_timeout = std::time::Duration::from_secs(20);
    let zone = world.start().await;
    let before = world.on_host().await;
    let spec = networked(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
    let deaf = format!(
        "[ $verb != create ] || {{ $runsc \"$@\"; ended=$?; rm {}/r/runsc-$container.sock; \
         exit $ended; }}",
        world.config.run.display(),
    );
    fs::write(world.path("mood"), deaf).unwrap();
    resumed(&zone, &spec, paused.id, false).await;
    counts_on(&zone, spec.id, count).await;
    assert_eq!(said(&zone, spec.id, REACHES).await, "1\n");
    zone.kill(spec.id).await.unwrap();
    world.settles_but_for_network(&before).await;
    world.end().await;
}
