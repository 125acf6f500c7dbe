//! A keeper becomes another program, or stays what it is.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    sys::{signal::kill, stat::Mode},
    unistd::{Pid, mkfifo},
};
use sandboxo_keeper::{
    protocol::{Failure, FromKeeper, Greeting, Label, PROTOCOL, Step, ToKeeper},
    wire,
};

use crate::{
    program::{ARGS, Keeper, alive, launch as launch_keeper, until},
    zone::{DETACHED, Zone, dial, echo, launch, read, write},
};

/// This executable at another path; `quirk` runs before it. A shell that started a program there
/// would wait for any child, and the keeper's are its own.
fn program(keeper: &Keeper, name: &str, quirk: &str) -> PathBuf {
    let path = keeper.path(name);
    let text = format!(
        "#!/bin/sh\ncd {}\ncase \" $* \" in *\" --reads \"*) is=asked ;; *) is=next ;; esac\n\
         {quirk}\nshift; IFS='\n'\n{ARGS}=\"$*\" exec {} --exact program::keeper_program \
         --test-threads=1 -q\n",
        keeper.dir.path().display(),
        std::env::current_exe().unwrap().display(),
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn upgrade(program: &Path) -> ToKeeper {
    let build = program.file_name().unwrap().to_str().unwrap().to_owned();
    ToKeeper::Upgrade { call: 9, program: program.to_owned(), build }
}

fn refused(zone: &mut Zone, program: &Path) -> Failure {
    zone.say(&upgrade(program), &[]);
    let answer = zone.answer().0;
    let FromKeeper::Failed { call: 9, failure } = answer else { panic!("{answer:?}") };
    failure
}

/// Which descriptors a program that is started now has from the keeper.
fn inherited(keeper: &Keeper, zone: &mut Zone) -> String {
    let log = keeper.path("inherited");
    let (pid, _) = zone.spawn(launch("fds", "/bin/ls", &["/proc/self/fd"], &log)).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    let listed = fs::read_to_string(&log).unwrap();
    fs::remove_file(log).unwrap();
    listed.replace('\n', " ")
}

#[test]
fn all_that_it_has_goes_on_in_another_program() {
    let keeper = Keeper::start(&[]);
    let log = keeper.path("log");
    let mut zone = Zone::connect(&keeper.socket());
    let (_, channel) = zone.spawn(echo("a", &log)).unwrap();
    let channel = channel.unwrap();
    let go = keeper.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", go.display());
    let (waiting, _) = zone.spawn(launch("w", "/bin/sh", &["-c", &script], &log)).unwrap();
    write(&channel, b"before");
    for build in ["second", "third"] {
        zone.done(&upgrade(&program(&keeper, build, "")), &[]);
        let line = fs::read_to_string(format!("/proc/{}/environ", keeper.pid)).unwrap();
        assert!(line.contains(&format!("--build\n{build}\n")), "{line}");
        assert_eq!(inherited(&keeper, &mut zone), "0 1 2 3 ");
    }
    // Nobody was told that the zone had gone, since it had not.
    assert_eq!(read(&channel), b">before");
    write(&channel, b"after");
    assert_eq!(read(&channel), b">after");
    fs::write(go, "").unwrap();
    assert_eq!(zone.exit_of(waiting), 3 << 8);
    let orphans = keeper.path("orphans");
    let script = "(sleep 0.1 & echo $! >&2; exit 0); exit 0";
    let (pid, _) = zone.spawn(launch("o", "/bin/sh", &["-c", script], &orphans)).unwrap();
    assert_eq!(zone.exit_of(pid), 0);
    let orphan: i32 = fs::read_to_string(&orphans).unwrap().trim().parse().unwrap();
    until("the orphan is reaped", || !alive(orphan));

    let before = zone.identity.clone();
    drop((zone, channel));
    let zone = Zone::connect(&keeper.socket());
    assert_eq!((zone.identity.boot_id, zone.identity.epoch), (before.boot_id, before.epoch + 1));
    assert_eq!(zone.build, "third");
    let (meta, channel) = &zone.held["a"];
    assert_eq!((meta.as_str(), read(channel)), ("about a", [b">", DETACHED].concat()));
    assert!(!launch_keeper(keeper.dir.path(), &[]), "the lock is held as ever");
}

#[test]
fn who_dies_in_the_middle_of_it_is_reaped_and_told() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let mut sleeping = || {
        let log = keeper.path("log");
        zone.spawn(launch("s", "/bin/sleep", &["1000"], &log)).unwrap().0
    };
    let [first, second] = [sleeping(), sleeping()];
    fs::write(keeper.path("asked"), first.to_string()).unwrap();
    fs::write(keeper.path("next"), second.to_string()).unwrap();
    let killing = program(&keeper, "second", "read victim < $is; kill -9 $victim");
    zone.done(&upgrade(&killing), &[]);
    assert_eq!([zone.exit_of(first), zone.exit_of(second)], [9, 9]);
}

#[test]
fn a_start_on_its_way_arrives_in_the_other_program() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let group = keeper.path("group");
    mkfifo(&group, Mode::S_IRWXU).unwrap();
    let mut open = OpenOptions::new();
    let open = open.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK);
    let mut full = open.open(&group).unwrap();
    let page = [0; 4096];
    let mut written = 0;
    while let Ok(bytes) = full.write(&page) {
        written += bytes;
    }
    let mut stuck = echo("a", &keeper.path("log"));
    stuck.cgroups = vec![group];
    zone.say(&ToKeeper::Spawn { call: 7, launch: Box::new(stuck) }, &[]);
    zone.done(&upgrade(&program(&keeper, "second", "")), &[]);
    full.read_exact(&mut vec![0; written]).unwrap();
    let (FromKeeper::Spawned { call: 7, .. }, channels) = zone.answer() else { panic!() };
    write(&channels[0], b"x");
    assert_eq!(read(&channels[0]), b">x");
}

#[test]
fn a_program_that_can_not_be_the_next_changes_nothing() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let (_, channel) = zone.spawn(echo("a", &keeper.path("log"))).unwrap();
    let channel = channel.unwrap();
    let unread =
        |program: &Path, status| Failure::Unread { program: program.into(), format: 1, status };
    for (program, status) in [
        (PathBuf::from("/bin/true"), 0),
        (program(&keeper, "older", "[ $is = next ] || exit 1"), 1 << 8),
        (program(&keeper, "killed", "kill -9 $$"), 9),
    ] {
        assert_eq!(refused(&mut zone, &program), unread(&program, status));
    }
    let gone = program(&keeper, "gone", "");
    let missing = |program: &Path| Failure::Start {
        program: program.into(),
        step: Step::Exec,
        target: String::new(),
        errno: 2,
    };
    // It reads the state, and is gone when it is to be executed.
    let script = format!("#!/bin/sh\nrm {}\nexit 10\n", gone.display());
    fs::write(&gone, script).unwrap();
    for program in [&keeper.path("no-such"), &gone] {
        assert_eq!(refused(&mut zone, program), missing(program));
    }
    write(&channel, b"x");
    assert_eq!(read(&channel), b">x");
    assert_eq!(inherited(&keeper, &mut zone), "0 1 2 3 ");
    drop(zone);
    assert_eq!(Zone::connect(&keeper.socket()).build, "first");
}

#[test]
fn one_that_dies_on_the_way_is_followed_by_another() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let (_, channel) = zone.spawn(echo("a", &keeper.path("log"))).unwrap();
    let channel = channel.unwrap();
    zone.say(&upgrade(&program(&keeper, "dies", "[ $is = asked ] || kill -9 $$")), &[]);
    zone.closed();
    until("it is gone", || !alive(keeper.pid));
    assert!(launch_keeper(keeper.dir.path(), &[]), "{}", keeper.log());
    let mut next = Zone::connect_as(&keeper.socket(), Some(zone.identity.clone()));
    assert_eq!(next.identity.boot_id, zone.identity.boot_id);
    let held = vec![Label { label: "a".into(), meta: "m".into() }];
    next.done(&ToKeeper::Hold { call: 1, held }, &[channel.as_fd()]);
    write(&channel, b"x");
    assert_eq!(read(&channel), b">x");
    next.done(&ToKeeper::ShutDown { call: 2 }, &[]);
}

#[test]
fn one_that_does_not_answer_is_given_up() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let silent = "[ $is = next ] || { echo $$ > asking; exec sleep 1000; }";
    let silent = program(&keeper, "silent", silent);
    let asked = || {
        let mut pid = 0;
        until("it is asked", || {
            let text = fs::read_to_string(keeper.path("asking")).unwrap_or_default();
            pid = text.trim().parse().unwrap_or(0);
            pid > 0
        });
        fs::remove_file(keeper.path("asking")).unwrap();
        pid
    };
    zone.say(&upgrade(&silent), &[]);
    let first = asked();
    // Nothing waits for it.
    zone.done(&ToKeeper::Release { call: 1, label: "none".into() }, &[]);
    zone.say(&upgrade(&silent), &[]);
    let overtaken = FromKeeper::Failed { call: 9, failure: Failure::Overtaken };
    assert_eq!(zone.answer().0, overtaken);
    until("the first is gone", || !alive(first));
    let second = asked();
    drop(zone);
    until("so is the second, with its zone", || !alive(second));
    let mut zone = Zone::connect(&keeper.socket());
    zone.done(&upgrade(&program(&keeper, "third", "")), &[]);
    assert!(kill(Pid::from_raw(keeper.pid), None).is_ok());
}

#[test]
fn a_zone_of_another_protocol_may_upgrade_and_nothing_else() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let (_, channel) = zone.spawn(echo("a", &keeper.path("log"))).unwrap();
    let channel = channel.unwrap();
    drop(zone);
    assert_eq!(read(&channel), [b">", DETACHED].concat());

    let welcome = FromKeeper::Welcome {
        protocol: PROTOCOL,
        identity: Zone::connect(&keeper.socket()).identity,
        build: "first".into(),
    };
    assert_eq!(read(&channel), [b">", DETACHED].concat());
    let greeting = Greeting { protocol: PROTOCOL + 1, detached: b"new".into(), resume: None };
    let hello = serde_json::to_vec(&ToKeeper::Hello(greeting)).unwrap();
    for (message, closes) in [
        (ToKeeper::Release { call: 1, label: "a".into() }, true),
        (upgrade(&program(&keeper, "second", "")), false),
    ] {
        let foreign = dial(&keeper.socket());
        wire::send(&foreign, &hello, &[]).unwrap();
        assert_eq!(serde_json::from_slice::<FromKeeper>(&read(&foreign)).unwrap(), welcome);
        wire::send(&foreign, &serde_json::to_vec(&message).unwrap(), &[]).unwrap();
        let answer = read(&foreign);
        assert_eq!(answer.is_empty(), closes, "{}", String::from_utf8_lossy(&answer));
    }
    let zone = Zone::connect(&keeper.socket());
    assert_eq!((zone.build.as_str(), zone.identity.epoch), ("second", 3));
    write(&channel, b"x");
    assert_eq!(read(&channel), b">x");
}
