//! Who holds what, when zones and keepers come and go.

use std::os::fd::AsFd;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_keeper::protocol::{Identity, Label, ToKeeper};

use crate::{
    program::{Keeper, alive, launch as launch_keeper, until},
    zone::{DETACHED, Zone, dial, echo, launch, read, readable, stuff, write},
};

#[test]
fn a_channel_outlives_its_zone() {
    let keeper = Keeper::start(&[]);
    let mut first = Zone::connect(&keeper.socket());
    let (pid, channel) = first.spawn(echo("a", &keeper.path("a.log"))).unwrap();
    assert_eq!(first.identity.epoch, 1);
    let boot_id = first.identity.boot_id.clone();
    drop((first, channel));

    let mut second = Zone::connect(&keeper.socket());
    assert_eq!(second.identity, Identity { boot_id: boot_id.clone(), epoch: 2 });
    let (meta, channel) = second.held.remove("a").unwrap();
    assert_eq!((meta.as_str(), second.held.len()), ("about a", 0));
    // The child was told that its zone had gone.
    assert_eq!(read(&channel), [b">", DETACHED].concat());
    write(&channel, b"again");
    assert_eq!(read(&channel), b">again");
    assert!(alive(pid));
    second.done(&ToKeeper::Release { call: 1, label: "a".into() }, &[]);
    drop(channel);
    assert_eq!(second.exit_of(pid), 0);
    drop(second);
    let third = Zone::connect(&keeper.socket());
    assert_eq!((third.held.len(), third.identity), (0, Identity { boot_id, epoch: 3 }));
}

#[test]
fn a_full_channel_is_told_later() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let go = keeper.path("go");
    let program = format!(
        "import os, time\nwhile not os.path.exists('{}'): time.sleep(0.01)\n\
         while os.read(0, 65536) != b'detached': pass\nos.write(0, b'told')",
        go.display()
    );
    let mut deaf = launch("d", "/usr/bin/python3", &["-c", &program], &keeper.path("log"));
    deaf.stdin = sandboxo_keeper::protocol::Stdin::Channel;
    let (_, channel) = zone.spawn(deaf).unwrap();
    let channel = channel.unwrap();
    assert!(stuff(&channel) > 0);
    drop(zone);
    until("the keeper has seen the zone go", || keeper.log().contains("zone gone"));
    std::fs::write(go, "").unwrap();
    assert_eq!(read(&channel), b"told");
}

#[test]
fn one_zone_at_a_time() {
    let keeper = Keeper::start(&[]);
    let first = Zone::connect(&keeper.socket());
    let waiting = dial(&keeper.socket());
    let hello = br#"{"kind":"hello","protocol":2,"detached":[],"resume":null}"#;
    write(&waiting, hello);
    let mut set = [nix::poll::PollFd::new(waiting.as_fd(), nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut set, 100_u16), Ok(0), "the first zone is still here");
    drop(first);
    readable(&waiting);
}

#[test]
fn nonsense_ends_the_connection_and_not_the_keeper() {
    let keeper = Keeper::start(&[]);
    for nonsense in [&b"{"[..], br#"{"kind":"shut_down","call":1}"#, br#"{"kind":"dance"}"#] {
        let socket = dial(&keeper.socket());
        write(&socket, nonsense);
        assert_eq!(read(&socket), b"");
    }
    let zone = Zone::connect(&keeper.socket());
    // Only a zone that said hello counts.
    assert_eq!(zone.identity.epoch, 1);
}

#[test]
fn a_successor_takes_over_what_a_dead_keeper_held() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let log = keeper.path("log");
    let channels: Vec<_> = (0..3)
        .map(|number| {
            let label = format!("s{number}");
            (zone.spawn(echo(&label, &log)).unwrap(), label)
        })
        .collect();
    keeper.kill();

    assert!(launch_keeper(keeper.dir.path(), &[]), "{}", keeper.log());
    let before = zone.identity.clone();
    let mut zone = Zone::connect_as(&keeper.socket(), Some(before.clone()));
    assert_eq!(zone.identity, Identity { epoch: before.epoch + 1, ..before });
    let labels = channels
        .iter()
        .map(|(_, label)| Label { label: label.clone(), meta: "kept".into() })
        .collect();
    let descriptors: Vec<_> =
        channels.iter().map(|((_, channel), _)| channel.as_ref().unwrap().as_fd()).collect();
    zone.done(&ToKeeper::Hold { call: 1, held: labels }, &descriptors);
    drop((zone, channels));

    let mut zone = Zone::connect(&keeper.socket());
    assert_eq!(zone.held.len(), 3);
    for (meta, channel) in zone.held.values() {
        assert_eq!((meta.as_str(), read(channel)), ("kept", [b">", DETACHED].concat()));
        write(channel, b"x");
        assert_eq!(read(channel), b">x");
    }
    zone.done(&ToKeeper::ShutDown { call: 2 }, &[]);
}

#[test]
fn a_thousand_channels_are_handed_over() {
    let keeper = Keeper::start(&[]);
    let mut zone = Zone::connect(&keeper.socket());
    let file = tempfile::tempfile().unwrap();
    for batch in 0..10 {
        let held = (0..100)
            .map(|number| Label { label: format!("{batch}-{number}"), meta: "m".repeat(500) })
            .collect();
        zone.done(&ToKeeper::Hold { call: batch, held }, &vec![file.as_fd(); 100]);
    }
    drop(zone);
    let mut zone = Zone::connect(&keeper.socket());
    assert_eq!(zone.held.len(), 1000);
    zone.done(&ToKeeper::ShutDown { call: 2 }, &[]);
}

#[test]
fn a_second_keeper_is_refused_and_signals_are_ignored() {
    let keeper = Keeper::start(&[]);
    assert!(!launch_keeper(keeper.dir.path(), &[]));
    assert!(keeper.log().contains("another keeper serves"), "{}", keeper.log());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(Pid::from_raw(keeper.pid), signal).unwrap();
    }
    let mut zone = Zone::connect(&keeper.socket());
    zone.done(&ToKeeper::ShutDown { call: 1 }, &[]);
    until("the keeper is gone", || !alive(keeper.pid));
    assert!(!keeper.socket().exists());
}

#[test]
fn the_keeper_is_small() {
    let keeper = Keeper::start(&[]);
    let _zone = Zone::connect(&keeper.socket());
    let status = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", keeper.pid)).unwrap();
    let line = status.lines().find(|line| line.starts_with("Private_Dirty:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 1024, "{status}");
}
