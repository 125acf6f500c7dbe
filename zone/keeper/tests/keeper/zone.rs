//! A zone as simple as can be: one call at a time.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
    },
};
use sandboxo_keeper::{
    protocol::{
        Failure, FromKeeper, Greeting, Identity, Label, Launch, MAX_MESSAGE, PROTOCOL, Stdin,
        ToKeeper,
    },
    wire::{self, Receiver},
};

pub(crate) struct Zone {
    socket: OwnedFd,
    receiver: Receiver,
    pub(crate) identity: Identity,
    pub(crate) build: String,
    pub(crate) held: BTreeMap<String, (String, OwnedFd)>,
    exits: BTreeMap<i32, i32>,
}

pub(crate) const DETACHED: &[u8] = b"detached";

impl Zone {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::connect_as(path, None)
    }

    pub(crate) fn connect_as(path: &Path, resume: Option<Identity>) -> Self {
        let mut zone = Self {
            socket: dial(path),
            receiver: Receiver::new(MAX_MESSAGE),
            identity: Identity { boot_id: String::new(), epoch: 0 },
            build: String::new(),
            held: BTreeMap::new(),
            exits: BTreeMap::new(),
        };
        let greeting = Greeting { protocol: PROTOCOL, detached: DETACHED.into(), resume };
        zone.say(&ToKeeper::Hello(greeting), &[]);
        let FromKeeper::Welcome { protocol: PROTOCOL, identity, build } = zone.hear().0 else {
            panic!()
        };
        zone.identity = identity;
        zone.build = build;
        loop {
            match zone.hear() {
                (FromKeeper::Holding { held }, channels) => {
                    assert_eq!(held.len(), channels.len());
                    for (Label { label, meta }, channel) in held.into_iter().zip(channels) {
                        zone.held.insert(label, (meta, channel));
                    }
                }
                (FromKeeper::Ready, _) => return zone,
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn say(&mut self, message: &ToKeeper, descriptors: &[BorrowedFd<'_>]) {
        wire::send(&self.socket, &serde_json::to_vec(message).unwrap(), descriptors).unwrap();
    }

    pub(crate) fn hear(&mut self) -> (FromKeeper, Vec<OwnedFd>) {
        readable(&self.socket);
        let packet = self.receiver.receive(&self.socket).unwrap();
        (serde_json::from_slice(packet.bytes).unwrap(), packet.descriptors)
    }

    pub(crate) fn answer(&mut self) -> (FromKeeper, Vec<OwnedFd>) {
        loop {
            match self.hear() {
                (FromKeeper::Exited { pid, status }, _) => {
                    self.exits.insert(pid, status);
                }
                answer => return answer,
            }
        }
    }

    pub(crate) fn spawn(&mut self, launch: Launch) -> Result<(i32, Option<OwnedFd>), Failure> {
        self.spawn_in(launch, &[])
    }

    pub(crate) fn spawn_in(
        &mut self,
        launch: Launch,
        netns: &[BorrowedFd<'_>],
    ) -> Result<(i32, Option<OwnedFd>), Failure> {
        self.say(&ToKeeper::Spawn { call: 7, launch: Box::new(launch) }, netns);
        match self.answer() {
            (FromKeeper::Spawned { call: 7, pid }, channels) => {
                Ok((pid, channels.into_iter().next()))
            }
            (FromKeeper::Failed { call: 7, failure }, _) => Err(failure),
            (other, _) => panic!("{other:?}"),
        }
    }

    pub(crate) fn done(&mut self, message: &ToKeeper, descriptors: &[BorrowedFd<'_>]) {
        self.say(message, descriptors);
        assert!(matches!(self.answer(), (FromKeeper::Done { .. }, _)));
    }

    /// The keeper has gone without a word.
    pub(crate) fn closed(&mut self) {
        readable(&self.socket);
        let packet = self.receiver.receive(&self.socket);
        assert!(packet.is_ok_and(|packet| packet.bytes.is_empty()));
    }

    pub(crate) fn exit_of(&mut self, pid: i32) -> i32 {
        loop {
            if let Some(status) = self.exits.remove(&pid) {
                return status;
            }
            match self.hear() {
                (FromKeeper::Exited { pid, status }, _) => drop(self.exits.insert(pid, status)),
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn dial(path: &Path) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    connect(socket.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    socket
}

pub(crate) fn readable(fd: impl AsFd) {
    let mut set = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut set, PollTimeout::from(10_000_u16)).unwrap();
    assert_eq!(ready, 1, "nothing came");
}

/// The next message of a channel; empty once its other end is closed.
pub(crate) fn read(channel: &OwnedFd) -> Vec<u8> {
    readable(channel);
    let mut bytes = vec![0; 1024];
    let length = recv(channel.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
    bytes.truncate(length);
    bytes
}

pub(crate) fn write(channel: &OwnedFd, bytes: &[u8]) {
    assert_eq!(send(channel.as_raw_fd(), bytes, MsgFlags::empty()), Ok(bytes.len()));
}

/// Until nothing more fits.
pub(crate) fn stuff(channel: &OwnedFd) -> usize {
    let message = vec![1; 32 * 1024];
    let mut count = 0;
    loop {
        match send(channel.as_raw_fd(), &message, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => count += 1,
            Err(Errno::EAGAIN) => return count,
            Err(errno) => panic!("{errno}"),
        }
    }
}

pub(crate) fn launch(label: &str, program: &str, args: &[&str], log: &Path) -> Launch {
    Launch {
        label: Label { label: label.into(), meta: format!("about {label}") },
        program: program.into(),
        args: args.iter().map(|&arg| arg.into()).collect(),
        env: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
        stdin: Stdin::Null,
        log: log.into(),
        cgroups: Vec::new(),
        netns: false,
        oom_score_adj: None,
        binds: Vec::new(),
        processors: Vec::new(),
    }
}

/// Answers each message of its channel with `>` and the message.
pub(crate) fn echo(label: &str, log: &Path) -> Launch {
    let program = "import os\nwhile m := os.read(0, 1024): os.write(0, b'>' + m)";
    let mut launch = launch(label, "/usr/bin/python3", &["-c", program], log);
    launch.stdin = Stdin::Channel;
    launch
}
