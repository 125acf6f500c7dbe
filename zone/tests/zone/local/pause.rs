//! Pauses, and what starts from them.

use std::{collections::BTreeSet, fs};

use sandboxo_zone::LocalZone;
use sandboxo_zone_protocol::{
    Checkpoint, CheckpointId, CreateError, EndReason, ImageDigest, Kept, NetworkMode, OnDeadline,
    Origin, PauseError, SandboxId, SandboxSpec, Zone, ZoneEvent,
};

use super::{
    trouble::with_moody_runsc,
    world::{
        World, chain, import_busybox, is_well, neighbor, next_end, report, run, said, soon, spec,
        until,
    },
};

const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id";
pub(super) const COUNT: &str = "(n=0; while :; do n=$((n+1)); echo $n > /root/n; sleep 0.05; done) \
                     < /dev/null > /dev/null 2>&1 &";

async fn resumed(zone: &LocalZone, spec: &SandboxSpec, from: CheckpointId, reboot: bool) {
    let origin = Origin::Checkpoint { id: from, reboot };
    let spec = SandboxSpec { origin, deadline: soon(600), ..spec.clone() };
    if let Err(error) = zone.create(spec).await {
        panic!("it starts from the checkpoint: {}", chain(&error));
    }
}

/// Programs that a sandbox has written itself, as a package manager does.
const COPY: &str = "cp /bin/busybox /root/ && /root/busybox echo runs";
const RUN_COPY: &str = "/root/busybox echo runs";

/// It counts before, and goes on to.
pub(super) async fn counts_on(zone: &LocalZone, id: SandboxId, from: u64) -> u64 {
    let mut now = 0;
    until("it counts on", async || {
        now = said(zone, id, "cat /root/n").await.trim().parse().unwrap_or(0);
        now > from
    })
    .await;
    now
}

pub(super) fn networked(image: ImageDigest) -> SandboxSpec {
    let mut networked = spec(image);
    networked.network.mode = NetworkMode::Full;
    networked.env.insert("GREETING".into(), "hello".into());
    networked
}

fn files(world: &World) -> BTreeSet<String> {
    let found = fs::read_dir(world.path("state/checkpoints")).unwrap();
    found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_paused_sandbox_goes_on_where_it_was() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let spec = networked(image);
    zone.create(spec.clone()).await.unwrap();
    let boot_id = said(&zone, spec.id, BOOT_ID).await;
    assert_eq!(said(&zone, spec.id, COPY).await, "runs\n");
    said(&zone, spec.id, COUNT).await;
    let mut count = counts_on(&zone, spec.id, 0).await;
    for cycle in 0..10 {
        said(&zone, spec.id, &format!("echo {cycle} > /root/file-{cycle}")).await;
        let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
        assert!(paused.is_pause && paused.size_bytes > 0, "{paused:?}");
        assert_eq!((paused.sandbox, paused.kept), (spec.id, Kept::Memory));
        assert_eq!(zone.pause(spec.id, Kept::Memory).await.unwrap(), paused, "a repeat");
        let told = report(&zone).await;
        assert_eq!((told.sandboxes, told.ended), (vec![], vec![]));
        assert_eq!(told.checkpoints, [paused]);
        resumed(&zone, &spec, paused.id, false).await;
        zone.discard(paused.id).await.unwrap();
        count = counts_on(&zone, spec.id, count).await;
        for file in 0..=cycle {
            let read = said(&zone, spec.id, &format!("cat /root/file-{file}")).await;
            assert_eq!(read, format!("{file}\n"));
        }
    }
    assert_eq!(said(&zone, spec.id, BOOT_ID).await, boot_id);
    assert_eq!(said(&zone, spec.id, RUN_COPY).await, "runs\n");
    assert_eq!(said(&zone, spec.id, "echo $GREETING").await, "hello\n");
    zone.kill(spec.id).await.unwrap();
    world.settles_but_for_network(&before).await;
    assert_eq!(files(&world), BTreeSet::new());
    world.end().await;
}

#[tokio::test]
async fn without_memory_it_boots() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let spec = networked(image);
    zone.create(spec.clone()).await.unwrap();
    let mut boot_ids = BTreeSet::from([said(&zone, spec.id, BOOT_ID).await]);
    assert_eq!(said(&zone, spec.id, COPY).await, "runs\n");
    // Kept without its memory; and with it, but booted all the same.
    for (kept, reboot) in [(Kept::Files, false), (Kept::Memory, true)] {
        said(&zone, spec.id, COUNT).await;
        counts_on(&zone, spec.id, 0).await;
        said(&zone, spec.id, "echo kept > /root/kept; echo gone > /dev/shm/gone").await;
        let paused = zone.pause(spec.id, kept).await.unwrap();
        resumed(&zone, &spec, paused.id, reboot).await;
        assert!(boot_ids.insert(said(&zone, spec.id, BOOT_ID).await), "another boot");
        assert_eq!(said(&zone, spec.id, "cat /root/kept; ls /dev/shm").await, "kept\n");
        assert_eq!(said(&zone, spec.id, RUN_COPY).await, "runs\n");
        let counted = said(&zone, spec.id, "cat /root/n").await;
        assert_eq!(said(&zone, spec.id, "sleep 0.2; cat /root/n").await, counted, "it is gone");
        assert_eq!(said(&zone, spec.id, "echo $GREETING").await, "hello\n");
        said(&zone, spec.id, "rm /root/n").await;
        zone.discard(paused.id).await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_checkpoint_is_what_several_start_from() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let origin = networked(image);
    zone.create(origin.clone()).await.unwrap();
    said(&zone, origin.id, COUNT).await;
    let count = counts_on(&zone, origin.id, 0).await;
    let boot_id = said(&zone, origin.id, BOOT_ID).await;
    let snapshot = zone.snapshot(origin.id, Kept::Memory).await.unwrap();
    assert!(!snapshot.is_pause);
    counts_on(&zone, origin.id, count).await;
    assert_eq!(said(&zone, origin.id, BOOT_ID).await, boot_id, "it went on");
    let told = report(&zone).await;
    assert_eq!(told.sandboxes.len(), 1);
    assert_eq!(told.checkpoints, [snapshot]);
    zone.kill(origin.id).await.unwrap();

    let copies = [networked(image), networked(image)];
    let [one, two] = &copies;
    tokio::join!(resumed(&zone, one, snapshot.id, false), resumed(&zone, two, snapshot.id, false));
    for (copy, other) in [(one, two), (two, one)] {
        counts_on(&zone, copy.id, count).await;
        assert_eq!(said(&zone, copy.id, "echo $E2B_SANDBOX_ID").await.trim(), copy.id.label());
        assert_eq!(said(&zone, copy.id, "cat /etc/hostname").await.trim(), copy.hostname);
        said(&zone, copy.id, &format!("echo mine > /root/{}", copy.id.label())).await;
        let others = run(&zone, copy.id, &format!("cat /root/{}", other.id.label())).await;
        assert_ne!(others.code, Some(0), "{others:?}");
        said(&zone, copy.id, "rm -f /root/sbx-*").await;
    }
    zone.discard(snapshot.id).await.unwrap();
    assert!(matches!(
        zone.create(SandboxSpec {
            origin: Origin::Checkpoint { id: snapshot.id, reboot: false },
            ..networked(image)
        })
        .await,
        Err(CreateError::CheckpointNotFound(id)) if id == snapshot.id
    ));
    world.end().await;
}

#[tokio::test]
async fn a_deadline_may_pause() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let on_deadline = OnDeadline::Pause(Kept::Memory);
    let spec = SandboxSpec { on_deadline, deadline: soon(3), ..spec(image) };
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    let paused = paused(&zone, spec.id).await;
    resumed(&zone, &spec, paused.id, false).await;
    counts_on(&zone, spec.id, count).await;
    world.end().await;
}

#[tokio::test]
async fn a_pause_that_is_refused_costs_nothing() {
    let mut world = with_moody_runsc();
    world.config.start_timeout = std::time::Duration::from_secs(20);
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let spec = spec(image);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let mut count = counts_on(&zone, spec.id, 0).await;
    fs::write(world.path("mood"), "echo the reason >&2; exit 3").unwrap();
    for _twice in 0..2 {
        let error = zone.pause(spec.id, Kept::Memory).await.unwrap_err();
        assert!(matches!(error, PauseError::Internal(_)), "{error:?}");
        assert!(chain(&error).contains("the reason"), "{}", chain(&error));
        count = counts_on(&zone, spec.id, count).await;
        assert_eq!(files(&world), BTreeSet::new());
    }
    fs::write(world.path("mood"), "").unwrap();
    // As much is free as before, and the zone may take none of it.
    drop(zone);
    world.stop().await;
    let reserve = std::mem::replace(&mut world.config.limits.disk_reserve_mib, u64::MAX);
    let zone = world.start().await;
    let error = zone.pause(spec.id, Kept::Memory).await.unwrap_err();
    assert!(matches!(error, PauseError::DiskFull { needed_mib: 17.., free_mib: 0 }), "{error:?}");
    counts_on(&zone, spec.id, count).await;
    is_well(&zone, neighbor).await;
    drop(zone);
    world.stop().await;
    world.config.limits.disk_reserve_mib = reserve;
    let zone = world.start().await;

    // What runsc ended without saving it is gone, and told so.
    let mut events = zone.subscribe().await.unwrap();
    fs::write(world.path("mood"), "pkill -KILL -f \"runsc-sandbox.*$container\"; exit 1").unwrap();
    let error = zone.pause(spec.id, Kept::Memory).await.unwrap_err();
    assert!(matches!(error, PauseError::Ended), "{error:?}");
    let end = next_end(&mut events).await;
    assert_eq!((end.id, end.reason), (spec.id, EndReason::CheckpointFailed));
    assert!(matches!(zone.pause(spec.id, Kept::Memory).await, Err(PauseError::NotFound)));
    assert_eq!(files(&world), BTreeSet::new());
    is_well(&zone, neighbor).await;
    world.end().await;
}

#[tokio::test]
async fn a_keeper_that_dies_in_the_middle_of_a_pause_costs_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let spec = spec(image);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let mut count = counts_on(&zone, spec.id, 0).await;
    for mood in ["kill -KILL $PPID; sleep 0.2", "$runsc \"$@\"; kill -KILL $PPID; exit 1"] {
        fs::write(world.path("mood"), mood).unwrap();
        let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
        fs::write(world.path("mood"), "").unwrap();
        resumed(&zone, &spec, paused.id, false).await;
        count = counts_on(&zone, spec.id, count).await;
        zone.discard(paused.id).await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_zone_that_is_to_end_finishes_what_it_saves_and_begins_no_more() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let (saved, late) = (spec(image), spec(image));
    zone.create(saved.clone()).await.unwrap();
    zone.create(late.clone()).await.unwrap();
    let (begun, go) = (world.path("begun"), world.path("go"));
    let mood = "touch {begun}; until [ -e {go} ]; do sleep 0.05; done";
    let mood = mood.replace("{begun}", begun.to_str().unwrap());
    fs::write(world.path("mood"), mood.replace("{go}", go.to_str().unwrap())).unwrap();
    let ending = async {
        until("it is on its way", async || begun.exists()).await;
        let refused = async {
            until("it is refused", async || {
                matches!(zone.pause(late.id, Kept::Files).await, Err(PauseError::Busy))
            })
            .await;
            fs::write(&go, "").unwrap();
        };
        tokio::join!(zone.drain(), refused);
    };
    let (paused, ()) = tokio::join!(zone.pause(saved.id, Kept::Memory), ending);
    let told = report(&zone).await;
    assert_eq!(told.checkpoints, [paused.unwrap()]);
    is_well(&zone, late.id).await;
    drop(zone);
    world.end().await;
}

/// Told to stop, and not given the time to drain.
#[tokio::test]
async fn a_zone_that_stops_in_the_middle_of_a_pause_ends_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let spec = spec(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    let (begun, go) = (world.path("begun"), world.path("go"));
    let mood = "touch {begun}; until [ -e {go} ]; do sleep 0.05; done";
    let mood = mood.replace("{begun}", begun.to_str().unwrap());
    fs::write(world.path("mood"), mood.replace("{go}", go.to_str().unwrap())).unwrap();
    let stopped = async {
        until("it is on its way", async || begun.exists()).await;
        world.stop().await;
    };
    let (unanswered, ()) = tokio::join!(zone.pause(spec.id, Kept::Memory), stopped);
    assert!(unanswered.is_err(), "{unanswered:?}");
    drop(zone);
    fs::write(&go, "").unwrap();
    let zone = world.start().await;
    let told = report(&zone).await;
    assert_eq!((told.ended, told.sandboxes.len()), (vec![], 0));
    resumed(&zone, &spec, told.checkpoints[0].id, false).await;
    counts_on(&zone, spec.id, count).await;
    drop(zone);
    world.end().await;
}

#[tokio::test]
async fn a_resume_that_fails_can_be_repeated() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let spec = spec(image);
    zone.create(spec.clone()).await.unwrap();
    said(&zone, spec.id, COUNT).await;
    let count = counts_on(&zone, spec.id, 0).await;
    let paused = zone.pause(spec.id, Kept::Memory).await.unwrap();
    let origin = Origin::Checkpoint { id: paused.id, reboot: false };
    let again = SandboxSpec { origin, ..spec.clone() };
    for mood in ["exit 3", "kill -KILL $$", "$runsc \"$@\"; exit 4", "sleep 1000 & sleep 1000"] {
        fs::write(world.path("mood"), mood).unwrap();
        let error = zone.create(again.clone()).await.unwrap_err();
        let typed = matches!(error, CreateError::Runtime(_) | CreateError::TimedOut(_));
        assert!(typed, "{mood}: {error:?}");
        world.settles_to(&before).await;
        assert_eq!(report(&zone).await.checkpoints, [paused]);
    }
    fs::write(world.path("mood"), "").unwrap();
    resumed(&zone, &spec, paused.id, false).await;
    counts_on(&zone, spec.id, count).await;
    world.end().await;
}

/// Each time the tasks are dropped wherever they are, as a kill does: a sandbox runs or is paused,
/// and counts on.
#[test]
fn a_zone_that_dies_in_the_middle_of_a_pause_loses_nothing() {
    let mut world = World::new();
    // With one thread nothing runs any more once `block_on` has returned.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut running = runtime();
    let (mut zone, spec, mut count) = running.block_on(async {
        let zone = world.start().await;
        let spec = networked(import_busybox(&zone).await);
        zone.create(spec.clone()).await.unwrap();
        said(&zone, spec.id, COUNT).await;
        let count = counts_on(&zone, spec.id, 0).await;
        (zone, spec, count)
    });
    for (round, delay) in [2, 10, 25, 40, 60, 80, 110, 150, 220, 300, 400].into_iter().enumerate() {
        running.block_on(async {
            let cut = std::time::Duration::from_millis(delay);
            if round % 2 == 0 {
                let pause = zone.pause(spec.id, Kept::Memory);
                drop(tokio::time::timeout(cut, pause).await);
            } else {
                let snapshot = zone.snapshot(spec.id, Kept::Memory);
                drop(tokio::time::timeout(cut, snapshot).await);
            }
        });
        drop(zone);
        world.forget();
        running.shutdown_timeout(std::time::Duration::from_secs(5));
        running = runtime();
        zone = running.block_on(world.start());
        count = running.block_on(async {
            let told = report(&zone).await;
            assert_eq!(told.ended, [], "after {delay} ms");
            let pauses: Vec<_> = told.checkpoints.iter().filter(|it| it.is_pause).collect();
            match (told.sandboxes.len(), pauses.last()) {
                (1, _) => {}
                (0, Some(saved)) => resumed(&zone, &spec, saved.id, false).await,
                other => panic!("neither running nor paused after {delay} ms: {other:?}"),
            }
            let count = counts_on(&zone, spec.id, count).await;
            for checkpoint in told.checkpoints {
                zone.discard(checkpoint.id).await.unwrap();
            }
            assert_eq!(files(&world), BTreeSet::new(), "after {delay} ms");
            count
        });
    }
    drop(zone);
    running.block_on(world.end());
}

async fn paused(zone: &LocalZone, id: SandboxId) -> Checkpoint {
    let mut events = zone.subscribe().await.unwrap();
    let told = async {
        loop {
            match events.recv().await.expect("the zone still tells") {
                ZoneEvent::SandboxPaused(paused) if paused.id == id => return paused.checkpoint,
                ZoneEvent::Hello(report) => {
                    if let Some(there) = report.checkpoints.iter().find(|it| it.sandbox == id) {
                        return *there;
                    }
                }
                ZoneEvent::SandboxEnded(ended) => panic!("{ended:?}"),
                ZoneEvent::Ping(_) | ZoneEvent::SandboxPaused(_) => {}
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), told).await.expect("it is paused")
}
