//! Guests that take all they can get: it hurts them and nobody else.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use sandboxo_zone_protocol::{EndReason, Resources, Zone, ZoneError};
use tokio::time::timeout;

use super::world::{
    SMALL, World, import_busybox, import_with, is_well, neighbor, next_end, report, run, run_as,
    said, spec,
};

/// Writes to more of a file's mapping than there is room for.
const MAPPER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    size_t length = 200 << 20;
    int file = open("/mapped", O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, length)) return 2;
    char *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) return 3;
    for (size_t i = 0; i < length; i += 4096) at[i] = 1;
    puts("there was room for all of it");
    return 0;
}
"#;

#[tokio::test]
async fn a_full_disk_is_the_guests_and_empties_again() {
    let mut world = World::new();
    let zone = world.start().await;
    let source = world.path("mapper.c");
    fs::write(&source, MAPPER).unwrap();
    let mapper = world.path("mapper");
    let made = Command::new("cc").args(["-static", "-O1", "-o"]).arg(&mapper).arg(&source).status();
    assert!(made.unwrap().success());
    let mut spec = spec(import_with(&zone, &[("mapper", &mapper)]).await);
    spec.resources.memory_mib = 512;
    zone.create(spec.clone()).await.unwrap();
    let neighbor = neighbor(&zone, &spec).await;
    let id = spec.id;

    for _round in 0..2 {
        let full = run(&zone, id, "dd if=/dev/zero of=/big bs=1M count=200").await;
        assert_ne!(full.code, Some(0), "{full:?}");
        assert!(full.output.contains("No space left on device"), "{full:?}");
        let used = zone.measure(id).await.unwrap().disk_used_bytes;
        assert!((60 << 20..=64 << 20).contains(&used), "{used}");
        said(&zone, id, "rm /big && dd if=/dev/zero of=/small bs=1M count=40 && rm /small").await;
    }
    // The process meets SIGBUS, which is 7; the shell tells it as 135.
    let broken = run(&zone, id, "/bin/mapper; echo code $?").await;
    assert!(broken.output.contains("code 135"), "{broken:?}");
    said(&zone, id, "rm /mapped && echo x > /again && cat /again").await;
    is_well(&zone, neighbor).await;
    world.end().await;
}

#[tokio::test]
async fn a_memory_hog_costs_its_own_sandbox_at_most() {
    let mut world = World::new();
    let zone = world.start().await;
    let spec = spec(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    let neighbor = neighbor(&zone, &spec).await;
    let mut events = zone.subscribe().await.unwrap();
    let hog = run(&zone, spec.id, "dd if=/dev/zero of=/dev/null bs=600M count=1; echo code $?");
    let hog = timeout(Duration::from_mins(1), hog).await.expect("the hog is stopped");
    assert!(!hog.output.contains("code 0"), "{hog:?}");
    if hog.code.is_some() {
        // The kernel took the hog alone.
        is_well(&zone, spec.id).await;
    } else {
        let ended = next_end(&mut events).await;
        assert_eq!((ended.id, ended.reason), (spec.id, EndReason::OutOfMemory));
    }
    is_well(&zone, neighbor).await;
    world.end().await;
}

const BOMB: &str = "bomb() { bomb | bomb & }; bomb; sleep 3; echo over";

/// Each process is traced on every thread of the sentry that has run it, so a bomb may use up what
/// the host grants its sandbox, also when the guest's own limit holds.
#[tokio::test]
async fn a_fork_bomb_costs_its_own_sandbox_at_most() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    for user in ["user", "root"] {
        let mut bombed = spec(image);
        bombed.resources.memory_mib = 512;
        zone.create(bombed.clone()).await.unwrap();
        // Whether it comes to an end is the guest's affair.
        let bomb = timeout(Duration::from_secs(8), run_as(&zone, bombed.id, user, BOMB)).await;
        is_well(&zone, neighbor).await;
        match timeout(Duration::from_secs(20), zone.kill(bombed.id)).await.expect("a kill ends") {
            Ok(()) => {}
            Err(ZoneError::NotFound) => {
                let ended = report(&zone).await.ended.into_iter().find(|it| it.id == bombed.id);
                let reason = ended.map(|ended| ended.reason);
                let expected = [Some(EndReason::Crashed), Some(EndReason::OutOfMemory)];
                assert!(expected.contains(&reason), "{reason:?} {bomb:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    zone.kill(neighbor).await.unwrap();
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_has_its_own_identity_and_writes_to_its_own_disk() {
    let mut world = World::new();
    let zone = world.start().await;
    let spec = spec(import_busybox(&zone).await);
    zone.create(spec.clone()).await.unwrap();
    let neighbor = neighbor(&zone, &spec).await;
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut boot_ids = BTreeSet::from([host]);
    for id in [spec.id, neighbor] {
        boot_ids.insert(said(&zone, id, "cat /proc/sys/kernel/random/boot_id").await);
    }
    assert_eq!(boot_ids.len(), 3, "{boot_ids:?}");
    let named = said(&zone, spec.id, "cat /proc/sys/kernel/hostname").await;
    assert_eq!(named.trim(), spec.id.label());
    // What lies in /tmp counts as disk and not as memory.
    said(&zone, spec.id, "dd if=/dev/zero of=/tmp/x bs=1M count=20").await;
    let measured = zone.measure(spec.id).await.unwrap();
    assert!(measured.disk_used_bytes >= 20 << 20, "{measured:?}");
    assert_eq!(measured.disk_total_bytes, u64::from(SMALL.disk_mib) << 20);
    assert_eq!(run(&zone, neighbor, "ls /tmp/x").await.code, Some(1));
    world.end().await;
}

#[tokio::test]
async fn a_guest_sees_the_memory_and_the_processors_that_it_may_use() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let host = std::thread::available_parallelism().unwrap().get();
    for (memory_mib, vcpus) in [(512, 1), (1024, 2)] {
        let mut spec = spec(image);
        spec.resources = Resources { vcpus, memory_mib, ..SMALL };
        zone.create(spec.clone()).await.unwrap();
        let total = said(&zone, spec.id, "/bin/busybox grep MemTotal /proc/meminfo").await;
        assert_eq!(total.split_whitespace().nth(1), Some((memory_mib << 10).to_string().as_str()));
        let count = said(&zone, spec.id, "/bin/busybox nproc").await;
        assert_eq!(count.trim(), host.min(vcpus as usize).to_string());
    }
    // The host's own words stay, and what a sandbox may run on is all that there is.
    let own = fs::read_to_string("/proc/meminfo").unwrap();
    assert!(own.lines().count() > 3, "{own}");
    let everywhere = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let own = fs::read_to_string("/proc/self/status").unwrap();
        let allowed = |text: &str| {
            text.lines().find(|line| line.starts_with("Cpus_allowed:")).map(str::to_owned)
        };
        allowed(&status) == allowed(&own) || status.is_empty()
    };
    for container in world.containers() {
        let narrow: Vec<_> =
            world.processes_of(&container).into_iter().filter(|pid| !everywhere(pid)).collect();
        assert!(narrow.is_empty(), "{narrow:?}");
    }
    world.end().await;
}
