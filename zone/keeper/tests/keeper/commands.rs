//! What is started: its surroundings, its end, its failures.

use std::{
    fs::File,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Command,
};

use sandboxo_keeper::protocol::{Bind, Failure, Step, ToKeeper};

use crate::{
    program::{Keeper, alive, until},
    zone::{Zone, echo, launch, read, write},
};

#[test]
fn bytes_go_both_ways_through_a_channel() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let (pid, channel) = zone.spawn(echo("a", &keeper.path("a.log"))).unwrap();
    let channel = channel.unwrap();
    write(&channel, b"ping");
    assert_eq!(read(&channel), b">ping");
    // Nobody but us holds the other end's peer, so the program sees the end.
    drop(channel);
    zone.done(&ToKeeper::Release { call: 1, label: "a".into() }, &[]);
    assert_eq!(zone.exit_of(pid), 0);
}

#[test]
fn a_program_gets_what_it_was_given_and_nothing_else() {
    let keeper = Keeper::start(&[]);
    let log = keeper.path("out.log");
    let mut zone = Zone::connect(&keeper.socket());
    let script = "echo $0 $GREETING; echo error >&2; ls /proc/self/fd | tr '\\n' ' '; echo; \
                  grep -E 'Sig(Blk|Ign)' /proc/self/status | sed 's/........$/ &/'; umask; cat /proc/self/oom_score_adj; \
                  [ $(ps -o sid= -p $$) = $$ ] && echo leader; exit 3";
    let mut launch = launch("env", "/bin/sh", &["-c", script, "name"], &log);
    launch.env.push(("GREETING".into(), "hello".into()));
    launch.oom_score_adj = Some(17);
    let (pid, channel) = zone.spawn(launch).unwrap();
    assert!(channel.is_none());
    assert_eq!(zone.exit_of(pid), 3 << 8);
    let text = std::fs::read_to_string(&log).unwrap();
    // Numbers from 32 on belong to the C library, and come from whoever runs the test.
    let text = text.replace("SigIgn:\t00000000 80000000", "SigIgn:\t00000000 00000000");
    let expected = "name hello\nerror\n0 1 2 3 \nSigBlk:\t00000000 00000000\n\
                    SigIgn:\t00000000 00000000\n0022\n17\nleader\n";
    assert_eq!(text, expected);
}

#[test]
fn a_failed_start_names_the_step() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let log = keeper.path("log");
    let failed = |program: &str, step, target: &str, errno| {
        let (program, target) = (program.into(), target.to_owned());
        Err::<(), _>(Failure::Start { program, step, target, errno })
    };
    let missing = echo("m", &log);
    let missing = sandboxo_keeper::protocol::Launch { program: "/no/such".into(), ..missing };
    let failure = zone.spawn(missing).map(drop);
    assert_eq!(failure, failed("/no/such", Step::Exec, "", 2));

    let unlogged = launch("l", "/bin/true", &[], &PathBuf::from("/no/log"));
    assert_eq!(zone.spawn(unlogged).map(drop), failed("/bin/true", Step::OpenLog, "/no/log", 2));

    let mut grouped = launch("g", "/bin/true", &[], &log);
    grouped.cgroups = vec!["/no/group".into()];
    assert_eq!(
        zone.spawn(grouped).map(drop),
        failed("/bin/true", Step::OpenCgroup, "/no/group", 2)
    );

    let mut refused = launch("g", "/bin/true", &[], &log);
    let full = keeper.path("no-procs");
    std::fs::create_dir(full.with_extension("dir")).unwrap();
    // Writing to it always fails.
    refused.cgroups = vec!["/dev/null".into(), "/dev/full".into()];
    assert_eq!(
        zone.spawn(refused).map(drop),
        failed("/bin/true", Step::JoinCgroup, "/dev/full", 28)
    );

    let mut netns = launch("n", "/bin/true", &[], &log);
    netns.netns = true;
    let failure = zone.spawn(netns.clone()).map(drop);
    assert_eq!(failure, Err(Failure::Descriptors { expected: 1, present: 0 }));
    let null = File::open("/dev/null").unwrap();
    assert_eq!(
        zone.spawn_in(netns, &[null.as_fd()]).map(drop),
        failed("/bin/true", Step::JoinNetwork, "", 22)
    );

    let zero = launch("z", "/bin/true", &["a\0b"], &log);
    assert_eq!(zone.spawn(zero).map(drop), Err(Failure::ZeroByte { field: "args".into() }));

    // The label of the one that did not start is free, and the keeper is well.
    let (_, channel) = zone.spawn(echo("m", &log)).unwrap();
    assert!(channel.is_some());
    let again = zone.spawn(echo("m", &log)).map(drop);
    assert_eq!(again, Err(Failure::LabelInUse { label: "m".into() }));
}

#[test]
fn orphans_are_reaped_at_once() {
    let keeper = Keeper::start(&[]);
    let log = keeper.path("log");
    let mut zone = Zone::connect(&keeper.socket());
    // The shell in the middle ends first, and the sleep is nobody's child but the keeper's.
    let script = "(sleep 0.2 & echo $! >&2; exit 0); exit 0";
    let (pid, _) = zone.spawn(launch("o", "/bin/sh", &["-c", script], &log)).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    let orphan: i32 = std::fs::read_to_string(&log).unwrap().trim().parse().unwrap();
    let parent = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap();
    let parent = parent.split(") ").nth(1).unwrap().split(' ').nth(1).unwrap();
    assert_eq!(parent, keeper.pid.to_string());
    let took = until("the orphan has left /proc", || !alive(orphan));
    assert!(took.as_millis() < 400, "{took:?}");
}

#[test]
fn a_signal_is_told_as_such() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let log = keeper.path("log");
    let script = "kill -KILL $$";
    let (pid, _) = zone.spawn(launch("k", "/bin/sh", &["-c", script], &log)).unwrap();
    assert_eq!(zone.exit_of(pid), 9);
    // A real-time signal has no name.
    let script = "kill -40 $$";
    let (pid, _) = zone.spawn(launch("k", "/bin/sh", &["-c", script], &log)).unwrap();
    assert_eq!(zone.exit_of(pid), 40);
}

#[test]
fn a_program_sees_a_file_in_anothers_place_and_nobody_else_does() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let (log, source) = (keeper.path("log"), keeper.path("meminfo"));
    std::fs::write(&source, "little\n").unwrap();
    let bind = |target: &str| Bind { source: source.clone(), target: target.into() };
    let mut launch = launch("b", "/bin/cat", &["/proc/meminfo"], &log);
    launch.binds = vec![bind("/proc/meminfo")];
    let (pid, _) = zone.spawn(launch.clone()).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "little\n");
    assert!(std::fs::read_to_string("/proc/meminfo").unwrap().lines().count() > 3);

    launch.binds.push(bind("/no/place"));
    let (program, target) = (launch.program.clone(), "/no/place".to_owned());
    let failure = Failure::Start { program, step: Step::Bind, target, errno: 2 };
    assert_eq!(zone.spawn(launch).map(drop), Err(failure));
}

#[test]
fn a_program_begins_on_the_processors_that_were_chosen() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let log = keeper.path("log");
    let mut launch = launch("p", "/usr/bin/nproc", &[], &log);
    launch.processors = vec![0];
    let (pid, _) = zone.spawn(launch.clone()).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "1\n");

    launch.processors = vec![usize::MAX];
    let (program, step) = (launch.program.clone(), Step::SetProcessors);
    let failure = Failure::Start { program, step, target: String::new(), errno: 22 };
    assert_eq!(zone.spawn(launch).map(drop), Err(failure));
}

struct Netns(String);

impl Netns {
    fn add(name: String) -> Self {
        let added = Command::new("ip").args(["netns", "add", &name]).status().unwrap();
        assert!(added.success());
        Self(name)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "del", &self.0]).status());
    }
}

#[test]
fn a_program_joins_network_and_control_groups() {
    let keeper = Keeper::start(&[]);
    let log = keeper.path("log");
    let netns = Netns::add(format!("sbxo-k{}", keeper.pid));
    let mut zone = Zone::connect(&keeper.socket());
    let procs = keeper.path("cgroup.procs");
    std::fs::write(&procs, "").unwrap();
    let mut launch = launch("n", "/bin/ls", &["-L", "-i", "/proc/self/ns/net"], &log);
    launch.netns = true;
    launch.cgroups = vec![procs.clone()];
    let file = File::open(format!("/run/netns/{}", netns.0)).unwrap();
    let (pid, _) = zone.spawn_in(launch, &[file.as_fd()]).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{inode} /proc/self/ns/net\n"));
    assert_eq!(std::fs::read_to_string(procs).unwrap(), "0");
}

/// A folder as a zone shares it, and what is mounted in it.
struct Shared(PathBuf);

impl Shared {
    fn make(dir: &Path) -> Self {
        let shared = Self(dir.join("shared"));
        std::fs::create_dir_all(shared.later()).unwrap();
        let path = shared.0.to_str().unwrap();
        assert!(command(&["mount", "--bind", path, path]));
        assert!(command(&["mount", "--make-shared", path]));
        shared
    }

    fn later(&self) -> PathBuf {
        self.0.join("later")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        assert!(command(&["umount", "-R", self.0.to_str().unwrap()]));
    }
}

fn command(args: &[&str]) -> bool {
    Command::new(args[0]).args(&args[1..]).status().unwrap().success()
}

#[test]
fn network_settings_are_hidden_and_later_mounts_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Shared::make(dir.path());
    let keeper = Keeper::start(&["--hide-proc-sys-net"]);
    let log = keeper.path("log");
    let mut zone = Zone::connect(&keeper.socket());
    let later = shared.later();
    let later = later.to_str().unwrap();
    assert!(command(&["mount", "-t", "tmpfs", "none", later]));
    std::fs::write(format!("{later}/file"), "").unwrap();
    let list = launch("h", "/bin/ls", &["-A", "/proc/sys/net", later], &log);
    let (pid, _) = zone.spawn(list).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    let listed = std::fs::read_to_string(&log).unwrap();
    assert_eq!(listed, format!("/proc/sys/net:\n\n{later}:\nfile\n"));
    assert!(std::fs::read_dir("/proc/sys/net").unwrap().count() > 0, "the host still sees them");
}
