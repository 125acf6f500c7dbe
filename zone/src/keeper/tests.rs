//! The client with a real keeper: this test executable, told by a script to be one.

use std::{
    fs::Permissions,
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{
            AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen,
            recv, send, socket as socket_of,
        },
    },
    unistd::Pid,
};
use sandboxo_channel::{Hello, Incoming, Request, Response};
use sandboxo_keeper::protocol::{FromKeeper, PROTOCOL, Step, ToKeeper};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const ARGS: &str = "SANDBOXO_TEST_ARGS";

/// Not a test: the programs that the tests start. Does nothing when tests run.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read from")]
#[expect(clippy::exit, reason = "the program's end is not the test's")]
fn program() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let mut args = args.split(' ');
    match args.next() {
        Some("keeper") => {
            let code = sandboxo_keeper::run(args.map(Into::into));
            let number = (0..=10).find(|number| code == std::process::ExitCode::from(*number));
            std::process::exit(number.expect("a number that a keeper ends with").into());
        }
        Some("agent") => agent(),
        other => panic!("{other:?}"),
    }
}

/// Echoes each stream.
#[tokio::main(flavor = "current_thread")]
async fn agent() {
    let fd = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().unwrap();
    let (mut end, driver) = sandboxo_channel::serve(fd).unwrap();
    let tasks = Tasks::new();
    tasks.spawn("driver", |_stop| driver);
    loop {
        match end.accept().await {
            Incoming::Hello(reply) => {
                reply.answer(&Hello { version: "echo".into(), claimed: None });
            }
            Incoming::Request(_, reply) => reply.answer(&Response::Pong),
            Incoming::Open(_, reply) => {
                let (mut read, mut write) = tokio::io::split(reply.accept());
                tasks.spawn("echo", |_stop| async move {
                    if tokio::io::copy(&mut read, &mut write).await.is_ok() {
                        write.shutdown().await.unwrap();
                    }
                });
            }
            Incoming::Detached => {}
        }
    }
}

struct Host {
    dir: TempDir,
    tasks: Tasks,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Self { dir, tasks: Tasks::new() };
        host.program("program", "");
        host
    }

    /// What runs as keeper or agent, after this.
    fn program(&self, name: &str, first: &str) -> PathBuf {
        let script = format!(
            "#!/bin/sh\n{first}\n{ARGS}=\"$*\" exec {} --exact keeper::tests::program \
             --test-threads=1 -q\n",
            std::env::current_exe().unwrap().display()
        );
        let path = self.path(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A zone that brings another program.
    async fn newer(&self, first: &str) -> (Keeper, Vec<Held>) {
        let program = self.program("newer", first);
        let config = KeeperConfig { program, build: "newer".into(), ..self.config() };
        Keeper::connect_or_start(config, &self.tasks).await.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> KeeperConfig {
        KeeperConfig {
            program: self.path("program"),
            build: "first".into(),
            socket: self.path("keeper.sock"),
            log: self.path("keeper.log"),
            hide_proc_sys_net: false,
            cgroups: Vec::new(),
        }
    }

    async fn keeper(&self) -> (Keeper, Vec<Held>) {
        Keeper::connect_or_start(self.config(), &self.tasks).await.unwrap()
    }

    fn agent(&self, label: &str) -> Launch {
        let mut launch = self.command(label, self.path("program"), &["agent"]);
        launch.stdin = Stdin::Channel;
        launch
    }

    fn command(&self, label: &str, program: impl AsRef<Path>, args: &[&str]) -> Launch {
        Launch {
            label: label.into(),
            meta: format!("about {label}"),
            program: program.as_ref().to_owned(),
            args: args.iter().map(|&arg| arg.into()).collect(),
            env: Vec::new(),
            stdin: Stdin::Null,
            log: self.path("command.log"),
            cgroups: Vec::new(),
            netns: None,
            oom_score_adj: None,
            binds: Vec::new(),
            processors: Vec::new(),
        }
    }

    fn keeper_pid(&self) -> i32 {
        let lock = std::fs::metadata(self.path("keeper.lock")).unwrap();
        let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&lock));
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let line = locks.lines().find(|line| line.contains(&inode)).expect("the lock is held");
        line.split_whitespace().nth(4).unwrap().parse().unwrap()
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_late| panic!("not yet: {what}"))
}

async fn echo(tasks: &Tasks, channel: OwnedFd, epoch: u64) {
    let (zone, driver) = sandboxo_channel::attach(channel, epoch).unwrap();
    let driver = tasks.spawn("channel", |_stop| driver);
    assert_eq!(soon("hello", zone.hello()).await.unwrap().version, "echo");
    assert_eq!(zone.request(Request::Ping).await, Ok(Response::Pong));
    let mut stream = zone.open(sandboxo_channel::Target::Agent).await.unwrap();
    stream.write_all(b"words").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    soon("the echo", stream.read_to_string(&mut back)).await.unwrap();
    assert_eq!(back, "words");
    drop((stream, zone));
    driver.await.unwrap();
}

#[tokio::test]
async fn a_zone_that_comes_back_finds_its_agents() {
    let host = Host::new();
    let (keeper, held) = host.keeper().await;
    assert_eq!((held.len(), keeper.epoch()), (0, 1));
    let spawned = keeper.spawn(host.agent("a")).await.unwrap();
    echo(&host.tasks, spawned.channel.unwrap(), keeper.epoch()).await;
    let boot_id = keeper.boot_id();
    drop(keeper);

    let (keeper, held) = host.keeper().await;
    assert_eq!((keeper.boot_id(), keeper.epoch()), (boot_id, 2));
    let [Held { label, meta, channel }] = <[Held; 1]>::try_from(held).unwrap();
    assert_eq!((label.as_str(), meta.as_str()), ("a", "about a"));
    echo(&host.tasks, channel, keeper.epoch()).await;
    keeper.release("a").await.unwrap();
    kill(Pid::from_raw(spawned.pid), Signal::SIGKILL).unwrap();
    keeper.shut_down().await.unwrap();
    assert!(!host.path("keeper.sock").exists());
    assert!(matches!(keeper.release("a").await, Err(CallError::Lost)));
}

#[tokio::test]
async fn a_dead_keeper_is_replaced_and_nothing_is_lost() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let spawned = keeper.spawn(host.agent("a")).await.unwrap();
    let sleeping = keeper.spawn(host.command("s", "/bin/sleep", &["1000"])).await.unwrap();
    let boot_id = keeper.boot_id();
    let waiting = keeper.wait(sleeping.pid);
    let mut standing = keeper.standing();
    let first = host.keeper_pid();
    let (ended, ()) = tokio::join!(waiting, async {
        kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    });
    assert!(matches!(ended, Err(WaitError::Lost)));
    let now = soon("a new keeper", standing.wait_for(|now| now.replaced == 1)).await;
    let now = now.unwrap().clone();
    assert_eq!((now.identity.boot_id, now.identity.epoch, now.rejoined), (boot_id, 2, 0));
    assert_ne!(host.keeper_pid(), first);
    // The channel is the same as ever.
    echo(&host.tasks, spawned.channel.unwrap(), keeper.epoch()).await;
    assert!(matches!(keeper.wait(sleeping.pid).await, Err(WaitError::Unknown(_))));
    // And the new keeper holds it for the next zone.
    drop(keeper);
    let (keeper, mut held) = host.keeper().await;
    assert_eq!((keeper.epoch(), held.len()), (3, 1));
    echo(&host.tasks, held.remove(0).channel, keeper.epoch()).await;
    keeper.shut_down().await.unwrap();
    for pid in [spawned.pid, sleeping.pid] {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

#[tokio::test]
async fn ends_are_told_once_before_or_after_the_question() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let exit = |code| host.command("e", "/bin/sh", &["-c", code]);
    let first = keeper.spawn(exit("exit 3")).await.unwrap();
    // The second one's answer comes after the first one's end.
    let second = keeper.spawn(exit("read x < /dev/null; kill -9 $$")).await.unwrap();
    let status = soon("the end", keeper.wait(second.pid)).await.unwrap();
    assert_eq!(status.signal(), Some(9));
    let status = soon("the end", keeper.wait(first.pid)).await.unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(matches!(keeper.wait(first.pid).await, Err(WaitError::Unknown(_))));
    keeper.shut_down().await.unwrap();
}

#[tokio::test]
async fn failures_are_typed() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let missing = keeper.spawn(host.command("m", "/no/such", &[])).await.unwrap_err();
    let CallError::Refused(Failure::Start { program, step: Step::Exec, errno: 2, .. }) = missing
    else {
        panic!("{missing:?}");
    };
    assert_eq!(program, Path::new("/no/such"));
    let mut launch = host.command("n", "/bin/true", &[]);
    launch.netns = Some("/no/netns".into());
    assert!(matches!(keeper.spawn(launch).await, Err(CallError::Netns { .. })));
    let long = "x".repeat(200_000);
    let launch = host.command("l", "/bin/true", &[&long]);
    assert!(matches!(keeper.spawn(launch).await, Err(CallError::TooLong)));
    keeper.release("never held").await.unwrap();
    keeper.shut_down().await.unwrap();

    let config = KeeperConfig { program: "/bin/false".into(), ..host.config() };
    let failed = Keeper::connect_or_start(config, &host.tasks).await.err();
    assert!(matches!(failed, Some(KeeperError::Ended { .. })), "{failed:?}");
    let config = KeeperConfig { program: "/no/program".into(), ..host.config() };
    let failed = Keeper::connect_or_start(config, &host.tasks).await.err();
    assert!(matches!(failed, Some(KeeperError::Start { .. })), "{failed:?}");
}

#[tokio::test]
async fn the_keeper_gets_nothing_of_the_zones_environment() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let environment = std::fs::read(format!("/proc/{}/environ", host.keeper_pid())).unwrap();
    let names: Vec<_> = environment
        .split(|byte| *byte == 0)
        .map(|line| String::from_utf8_lossy(line.split(|byte| *byte == b'=').next().unwrap()))
        .filter(|name| !name.is_empty() && name != ARGS && name != "PWD")
        .collect();
    assert!(names.is_empty(), "{names:?}");
    keeper.shut_down().await.unwrap();
}

#[tokio::test]
async fn a_keeper_of_another_build_becomes_this_one_and_streams_go_on() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let agent = keeper.spawn(host.agent("a")).await.unwrap();
    let (pid, before) = (host.keeper_pid(), keeper.boot_id());
    drop((keeper, agent.channel));

    let (keeper, mut held) = host.newer("").await;
    let sleeping = keeper.spawn(host.command("s", "/bin/sleep", &["1000"])).await.unwrap();
    let (zone, driver) = sandboxo_channel::attach(held.remove(0).channel, keeper.epoch()).unwrap();
    host.tasks.spawn("channel", |_stop| driver);
    soon("hello", zone.hello()).await.unwrap();
    let mut stream = zone.open(sandboxo_channel::Target::Agent).await.unwrap();
    stream.write_all(b"be").await.unwrap();
    assert_eq!(keeper.standing().borrow().build, "first");
    assert!(keeper.upgrade().await.unwrap());
    assert!(!keeper.upgrade().await.unwrap(), "it is done");
    stream.write_all(b"fore").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = String::new();
    soon("the echo", stream.read_to_string(&mut back)).await.unwrap();
    assert_eq!(back, "before");
    let now = keeper.standing().borrow().clone();
    let identity = Identity { boot_id: before, epoch: 2 };
    let expected =
        Standing { identity, build: "newer".into(), connected: true, replaced: 0, rejoined: 0 };
    assert_eq!((now, host.keeper_pid()), (expected, pid));
    kill(Pid::from_raw(sleeping.pid), Signal::SIGKILL).unwrap();
    let status = soon("the end", keeper.wait(sleeping.pid)).await.unwrap();
    assert_eq!(status.signal(), Some(9));
    kill(Pid::from_raw(agent.pid), Signal::SIGKILL).unwrap();
    keeper.shut_down().await.unwrap();
}

#[tokio::test]
async fn a_keeper_that_dies_on_its_way_to_another_build_is_replaced() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let agent = keeper.spawn(host.agent("a")).await.unwrap();
    let (pid, before) = (host.keeper_pid(), keeper.boot_id());
    drop((keeper, agent.channel));

    let dies = "case \" $* \" in *\" --resume \"*) kill -9 $$ ;; esac";
    let (keeper, mut held) = host.newer(dies).await;
    assert!(keeper.upgrade().await.unwrap());
    let now = keeper.standing().borrow().clone();
    assert_eq!((now.build.as_str(), now.replaced, now.identity.boot_id), ("newer", 1, before));
    assert_ne!(host.keeper_pid(), pid);
    echo(&host.tasks, held.remove(0).channel, keeper.epoch()).await;
    kill(Pid::from_raw(agent.pid), Signal::SIGKILL).unwrap();
    keeper.shut_down().await.unwrap();
}

#[tokio::test]
async fn a_keeper_that_can_not_become_another_build_goes_on() {
    let host = Host::new();
    let (keeper, _) = host.keeper().await;
    let agent = keeper.spawn(host.agent("a")).await.unwrap();
    let pid = host.keeper_pid();
    drop((keeper, agent.channel));

    let (keeper, mut held) = host.newer("exit 1").await;
    let error = keeper.upgrade().await.unwrap_err();
    let CallError::Refused(Failure::Unread { status: 256, .. }) = error else {
        panic!("{error:?}");
    };
    std::fs::remove_file(host.path("newer")).unwrap();
    let error = keeper.upgrade().await.unwrap_err();
    let CallError::Refused(Failure::Start { step: Step::Exec, errno: 2, .. }) = error else {
        panic!("{error:?}");
    };
    let now = keeper.standing().borrow().clone();
    assert_eq!((now.build.as_str(), now.replaced, now.connected), ("first", 0, true));
    assert_eq!(host.keeper_pid(), pid);
    echo(&host.tasks, held.remove(0).channel, keeper.epoch()).await;
    kill(Pid::from_raw(agent.pid), Signal::SIGKILL).unwrap();
    keeper.shut_down().await.unwrap();
}

/// A keeper of another protocol: welcomes whoever comes, and answers once.
async fn foreign(socket: PathBuf, answer: FromKeeper) -> ToKeeper {
    let play = move || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket_of(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&socket).unwrap()).unwrap();
        listen(&listener, Backlog::new(4).unwrap()).unwrap();
        let zone = accept(&listener).unwrap();
        let zone = zone.as_raw_fd();
        let hear = || {
            let mut bytes = vec![0; 4096];
            let length = recv(zone, &mut bytes, MsgFlags::empty()).unwrap();
            serde_json::from_slice::<ToKeeper>(&bytes[..length]).unwrap()
        };
        let say = |message: &FromKeeper| {
            let bytes = serde_json::to_vec(message).unwrap();
            send(zone, &bytes, MsgFlags::empty()).unwrap();
        };
        assert!(matches!(hear(), ToKeeper::Hello(_)));
        let identity = Identity { boot_id: "b".into(), epoch: 1 };
        say(&FromKeeper::Welcome { protocol: PROTOCOL - 1, identity, build: "old".into() });
        let asked = hear();
        std::fs::remove_file(socket).unwrap();
        say(&answer);
        asked
    };
    tokio::task::spawn_blocking(play).await.unwrap()
}

#[tokio::test]
async fn a_keeper_of_another_protocol_is_upgraded_first() {
    let host = Host::new();
    let upgrade =
        ToKeeper::Upgrade { call: 0, program: host.config().program, build: host.config().build };
    let failure = Failure::Unread { program: "/p".into(), format: 0, status: 256 };
    for answer in [FromKeeper::Failed { call: 0, failure }, FromKeeper::Done { call: 0 }] {
        let fails = matches!(answer, FromKeeper::Failed { .. });
        let socket = host.path("keeper.sock");
        let meeting = async {
            soon("it listens", async {
                while !socket.exists() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            Keeper::connect_or_start(host.config(), &host.tasks).await
        };
        let (asked, met) = tokio::join!(foreign(socket.clone(), answer), meeting);
        assert_eq!(asked, upgrade);
        match met {
            Err(KeeperError::Protocol { source: Failure::Unread { .. }, .. }) => assert!(fails),
            Err(other) => panic!("{other:?}"),
            // This one never was another program, so a new one has been started.
            Ok((keeper, _)) => {
                assert!(!fails);
                keeper.shut_down().await.unwrap();
            }
        }
    }
}
