//! What breaks below a zone: the answer says what it was, nothing is left, and others don't notice.

use std::{fs, os::fd::AsRawFd, path::Path, process::Command, sync::Arc, time::Duration};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    Shutdown, SockType, UnixAddr, getpeername, getsockopt, shutdown, sockopt::SockType as TypeOf,
};
use sandboxo_zone::StartError;
use sandboxo_zone_protocol::{CreateError, EndReason, Zone, fake::ManualClock};
use tempfile::TempDir;

use super::{
    trouble::with_moody_runsc,
    world::{World, chain, import_busybox, is_well, neighbor, next_end, report, said, spec, until},
};

#[tokio::test]
async fn a_runsc_that_fails_at_any_step_is_told_and_leaves_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let before = world.on_host().await;
    for (mood, expected) in [
        ("kill -KILL $$", "signal: 9"),
        ("exit 0", "read its pid"),
        ("echo nonsense > $pid_file; exit 0", "watch its process"),
        ("sh -c 'echo $$' > $pid_file; exit 0", "it ended while it started"),
        ("sleep 1000 & echo $! > $pid_file; exit 0", "talk to its agent"),
        ("$runsc \"$@\"; echo too late >&2; exit 4", "exit status: 4"),
    ] {
        fs::write(world.path("mood"), mood).unwrap();
        let error = zone.create(spec(image)).await.unwrap_err();
        assert!(matches!(error, CreateError::Runtime(_)), "{mood}: {error:?}");
        let text = chain(&error);
        assert!(text.contains(expected), "{mood}: {text}");
        is_well(&zone, neighbor).await;
        world.settles_to(&before).await;
    }
    world.end().await;
}

/// `runsc run` in the background, with the channel that a shell would take from it.
const IN_BACKGROUND: &str = "exec 3<&0; $runsc \"$@\" <&3 3<&- & cli=$!; exec 3<&-; ";

#[tokio::test]
async fn a_runsc_that_is_stopped_is_given_up_and_leaves_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let before = world.on_host().await;
    let sentry = "until pids=$(pgrep -f \"runsc-sandbox.*$container\"); do :; done; \
                  kill -STOP $pids; wait $cli; exit $?";
    for mood in ["kill -STOP $$".to_owned(), format!("{IN_BACKGROUND}{sentry}")] {
        fs::write(world.path("mood"), &mood).unwrap();
        let creating = zone.create(spec(image));
        let (created, ()) = tokio::join!(creating, is_well(&zone, neighbor));
        let error = created.unwrap_err();
        assert!(matches!(error, CreateError::TimedOut(_)), "{mood}: {error:?}");
        is_well(&zone, neighbor).await;
        world.settles_to(&before).await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_that_is_stopped_is_killed_like_any_other() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let stopped = spec(image);
    zone.create(stopped.clone()).await.unwrap();
    for pid in world.processes_of(&world.containers()[0]) {
        // Some are children of others and gone by then.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGSTOP).ok();
    }
    let neighbor = neighbor(&zone, &stopped).await;
    zone.measure(stopped.id).await.unwrap();
    is_well(&zone, neighbor).await;
    zone.kill(stopped.id).await.unwrap();
    is_well(&zone, neighbor).await;
    world.end().await;
}

/// Ends all agent channels of this process, as if their other ends were closed.
fn cut_channels() {
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let Ok(number) = entry.unwrap().file_name().to_str().unwrap().parse::<i32>() else {
            continue;
        };
        #[expect(unsafe_code, reason = "descriptors are looked at by number")]
        // SAFETY: only asked what it is, and shut down; nobody closes it meanwhile in this test.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let is_packet = getsockopt(&fd, TypeOf) == Ok(SockType::SeqPacket);
        // The keeper's own socket has a name.
        let named = getpeername::<UnixAddr>(fd.as_raw_fd()).is_ok_and(|peer| peer.path().is_some());
        if is_packet && !named {
            shutdown(number, Shutdown::Both).unwrap();
        }
    }
}

#[tokio::test]
async fn a_sandbox_whose_channel_breaks_is_lost_and_the_next_one_works() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    let lost = spec(image);
    zone.create(lost.clone()).await.unwrap();
    let mut events = zone.subscribe().await.unwrap();
    cut_channels();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (lost.id, EndReason::AgentLost));
    let neighbor = neighbor(&zone, &lost).await;
    is_well(&zone, neighbor).await;
    zone.kill(neighbor).await.unwrap();
    world.settles_to(&before).await;
    world.end().await;
}

/// A file system of its own, which fills up soon.
struct Little(TempDir);

impl Little {
    fn new(mib: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(dir.path());
        assert!(mount.status().unwrap().success());
        Self(dir)
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }

    fn fill(&self) {
        let zeros = fs::File::open("/dev/zero").unwrap();
        let full = std::io::copy(&mut { zeros }, &mut fs::File::create(self.filler()).unwrap());
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for Little {
    fn drop(&mut self) {
        // Lazily: a test that fails has its sandboxes' disks on it.
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

#[tokio::test]
async fn a_full_host_disk_refuses_creates_and_takes_kills_and_timeouts() {
    let mut world = World::new();
    let little = Little::new(96);
    world.config.state = little.0.path().join("state");
    world.config.limits.disk_reserve_mib = 0;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let (killed, timed_out) = (spec(image), spec(image));
    zone.create(killed.clone()).await.unwrap();
    zone.create(timed_out.clone()).await.unwrap();
    let mut events = zone.subscribe().await.unwrap();
    little.fill();

    let refused = zone.create(spec(image)).await.unwrap_err();
    assert!(matches!(refused, CreateError::DiskFull), "{}", chain(&refused));
    is_well(&zone, killed.id).await;
    zone.kill(killed.id).await.unwrap();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (killed.id, EndReason::Killed));
    little.fill();
    zone.set_deadline(timed_out.id, super::world::soon(1)).await.unwrap();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (timed_out.id, EndReason::TimedOut));

    let lasting = spec(image);
    fs::remove_file(little.filler()).unwrap();
    zone.create(lasting.clone()).await.unwrap();
    drop(zone);
    world.stop().await;
    little.fill();
    let full = world.try_start().await.err();
    assert!(matches!(full, Some(StartError::DiskFull(_))), "{full:?}");

    fs::remove_file(little.filler()).unwrap();
    let zone = world.start().await;
    is_well(&zone, lasting.id).await;
    let again = neighbor(&zone, &killed).await;
    is_well(&zone, again).await;
    world.end().await;
}

#[tokio::test]
async fn a_clock_that_jumps_ends_whose_time_is_over_and_nobody_else() {
    let mut world = World::new();
    let clock = Arc::new(ManualClock::default());
    let now = sandboxo_zone_protocol::Clock::now(&*clock);
    let Ok(zone) = world.start_by(clock.clone()).await else { panic!("the zone starts") };
    let image = import_busybox(&zone).await;
    let minutes = |minutes| now + Duration::from_mins(minutes);
    let short = sandboxo_zone_protocol::SandboxSpec { deadline: minutes(10), ..spec(image) };
    let long = sandboxo_zone_protocol::SandboxSpec { deadline: minutes(90), ..spec(image) };
    zone.create(short.clone()).await.unwrap();
    zone.create(long.clone()).await.unwrap();
    let mut events = zone.subscribe().await.unwrap();
    // Back, and on to where it was: who came meanwhile has had its time by then.
    let hour = Duration::from_hours(1);
    clock.set_back(hour);
    is_well(&zone, short.id).await;
    let meanwhile =
        sandboxo_zone_protocol::SandboxSpec { deadline: minutes(10) - hour, ..spec(image) };
    zone.create(meanwhile.clone()).await.unwrap();
    is_well(&zone, meanwhile.id).await;
    clock.advance(hour);
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (meanwhile.id, EndReason::TimedOut));
    is_well(&zone, short.id).await;
    clock.advance(hour);
    // It looks at the clock by itself, too, but seldom.
    zone.set_deadline(short.id, minutes(10)).await.unwrap();
    let ended = next_end(&mut events).await;
    assert_eq!((ended.id, ended.reason), (short.id, EndReason::TimedOut));
    is_well(&zone, long.id).await;
    assert_eq!(report(&zone).await.sandboxes.len(), 1);
    world.end().await;
}

#[tokio::test]
async fn a_process_short_of_descriptors_refuses_by_the_limit_and_recovers() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let well = neighbor(&zone, &spec(image)).await;
    let before = world.on_host().await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // Some room, and none at all.
    for limit in [open + 12, 3] {
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
        let refused = zone.create(spec(image)).await.unwrap_err();
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        let named = matches!(refused, CreateError::LimitReached { what: "open files", .. });
        assert!(named, "{limit}: {}", chain(&refused));
        is_well(&zone, well).await;
        assert_eq!(world.on_host().await, before);
    }
    let again = neighbor(&zone, &spec(image)).await;
    is_well(&zone, again).await;
    world.end().await;
}

#[tokio::test]
async fn a_host_short_of_memory_refuses_by_the_limit_and_recovers() {
    let mut world = World::new();
    let meminfo = fs::read_to_string(Path::new("/proc/meminfo")).unwrap();
    let total = meminfo.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10;
    world.config.limits.memory_reserve_mib = total;
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let refused = zone.create(spec(image)).await.unwrap_err().to_string();
    assert_eq!(refused, "the zone's limit of 0 memory (MiB free) is reached");
    zone.keep_warm([spec(image).shape()].into()).await.unwrap();
    assert_eq!(zone.capacity().warm, 0);
    world.stop().await;

    world.config.limits.memory_reserve_mib = 64;
    let zone = world.start().await;
    let well = neighbor(&zone, &spec(image)).await;
    assert_eq!(said(&zone, well, "echo hi").await, "hi\n");
    until("it is listed", async || report(&zone).await.sandboxes.len() == 1).await;
    world.end().await;
}
