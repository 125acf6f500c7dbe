//! The keeper's one loop: whatever its descriptors say is done in turn.

mod upgrade;

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, SockFlag, accept4, send},
};

use upgrade::Asking;

use crate::{
    args::Args,
    book::Book,
    log,
    mounts::Views,
    protocol::{Failure, FromKeeper, Greeting, Launch, MAX_MESSAGE, PROTOCOL, Stdin, ToKeeper},
    setup::Sockets,
    spawn::{self, Starting},
    state::Zone,
    wire::{self, Packet, Receiver},
};

/// A zone that leaves so many messages unread is none.
const MOST_UNREAD: usize = 4096;
/// How long to leave a listener alone that gives errors, in milliseconds.
const PAUSE: u16 = 100;

pub(crate) struct Server {
    args: Args,
    sockets: Sockets,
    book: Book<Rc<OwnedFd>>,
    connection: Option<Connection>,
    connections: u64,
    starting: Vec<Launching>,
    /// Labels of channels that were too full to be told that the zone is gone.
    untold: BTreeSet<String>,
    detached: Vec<u8>,
    receiver: Receiver,
    views: Views,
    asking: Option<Asking>,
    accept_later: bool,
    ending: bool,
}

struct Connection {
    number: u64,
    socket: OwnedFd,
    zone: Zone,
    outbox: VecDeque<(Vec<u8>, Vec<Rc<OwnedFd>>)>,
}

struct Launching {
    starting: Starting,
    call: u64,
    connection: u64,
    label: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("read what it says")]
    Receive(#[source] Errno),
    #[error("understand what it says")]
    Parse(#[source] serde_json::Error),
    #[error("it did not say hello first")]
    NoHello,
    #[error("it speaks another protocol, and asked for more than an upgrade")]
    Foreign,
    #[error("answer it")]
    Send(#[source] Errno),
    #[error("it does not read its answers")]
    Deaf,
}

/// What a descriptor in the poll set is for.
#[derive(Clone)]
enum Source {
    Signals,
    Listener,
    Connection,
    Starting(i32),
    Untold(String),
}

impl Server {
    pub(crate) fn new(args: Args, sockets: Sockets, book: Book<Rc<OwnedFd>>) -> Self {
        Self {
            args,
            sockets,
            book,
            connection: None,
            connections: 0,
            starting: Vec::new(),
            untold: BTreeSet::new(),
            detached: Vec::new(),
            receiver: Receiver::new(MAX_MESSAGE),
            views: Views::default(),
            asking: None,
            accept_later: false,
            ending: false,
        }
    }

    pub(crate) fn serve(&mut self) {
        // Some may have died while one program became another.
        self.reap();
        loop {
            for source in self.wait() {
                match source {
                    Source::Signals => self.reap(),
                    Source::Listener => self.accept(),
                    Source::Connection => self.talk(),
                    Source::Starting(pid) => self.settle(pid),
                    Source::Untold(label) => self.tell_detached(&label),
                }
            }
            let answered = self.connection.as_ref().is_none_or(|zone| zone.outbox.is_empty());
            if self.ending && answered {
                break;
            }
        }
        if let Err(error) = std::fs::remove_file(&self.args.socket) {
            log::error(&error);
        }
        log::line("ended as asked");
    }

    /// What there is to do. A death is told last, so that what a process reported comes first.
    fn wait(&mut self) -> Vec<Source> {
        let mut sources = Vec::new();
        let mut set = Vec::new();
        let mut add = |source, fd, flags| {
            sources.push(source);
            set.push(PollFd::new(fd, flags));
        };
        for one in &self.starting {
            add(Source::Starting(one.starting.pid), one.starting.report(), PollFlags::POLLIN);
        }
        for label in &self.untold {
            if let Some(channel) = self.book.get(label) {
                add(Source::Untold(label.clone()), channel.as_fd(), PollFlags::POLLOUT);
            }
        }
        match &self.connection {
            Some(connection) => {
                let mut flags = PollFlags::POLLIN;
                flags.set(PollFlags::POLLOUT, !connection.outbox.is_empty());
                add(Source::Connection, connection.socket.as_fd(), flags);
            }
            None if !self.accept_later => {
                add(Source::Listener, self.sockets.listener.as_fd(), PollFlags::POLLIN);
            }
            None => {}
        }
        add(Source::Signals, self.sockets.signals.as_fd(), PollFlags::POLLIN);
        let timeout = if std::mem::take(&mut self.accept_later) {
            PollTimeout::from(PAUSE)
        } else {
            PollTimeout::NONE
        };
        match poll(&mut set, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Vec::new(),
            // Without memory for the call there is some later.
            Err(errno) => {
                log::line(&format!("poll: {errno}"));
                self.accept_later = true;
                return Vec::new();
            }
        }
        let told = set.iter().map(|one| one.any().unwrap_or(true));
        sources.into_iter().zip(told).filter_map(|(source, told)| told.then_some(source)).collect()
    }

    fn accept(&mut self) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        match accept4(&self.sockets.listener, flags) {
            Ok(socket) => {
                self.connections += 1;
                self.connection = Some(Connection {
                    number: self.connections,
                    socket,
                    zone: Zone::Silent,
                    outbox: VecDeque::new(),
                });
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(errno) => {
                log::line(&format!("accept: {errno}"));
                self.accept_later = true;
            }
        }
    }

    fn talk(&mut self) {
        match self.hear().and_then(|more| self.flush().map(|()| more)) {
            Ok(true) => {}
            Ok(false) => self.zone_gone(None),
            Err(error) => self.zone_gone(Some(&error)),
        }
    }

    /// `false`: the zone has closed.
    fn hear(&mut self) -> Result<bool, ConnectionError> {
        let Some(connection) = &self.connection else { return Ok(true) };
        let (message, descriptors) = match self.receiver.receive(&connection.socket) {
            Err(Errno::EAGAIN) => return Ok(true),
            Err(Errno::ECONNRESET) | Ok(Packet { bytes: [], .. }) => return Ok(false),
            Err(errno) => return Err(ConnectionError::Receive(errno)),
            Ok(Packet { bytes, descriptors }) => {
                (serde_json::from_slice(bytes).map_err(ConnectionError::Parse)?, descriptors)
            }
        };
        match (connection.zone, &message) {
            (_, ToKeeper::Hello(_))
            | (Zone::Greeted, _)
            | (Zone::Foreign, ToKeeper::Upgrade { .. }) => {}
            (Zone::Silent, _) => return Err(ConnectionError::NoHello),
            (Zone::Foreign, _) => return Err(ConnectionError::Foreign),
        }
        match message {
            ToKeeper::Hello(greeting) => self.greet(greeting),
            ToKeeper::Hold { call, held } => {
                let present = descriptors.len();
                let result = if held.len() == present {
                    held.into_iter()
                        .zip(descriptors)
                        .try_for_each(|(label, channel)| self.book.hold(label, Rc::new(channel)))
                } else {
                    Err(Failure::Descriptors { expected: held.len(), present })
                };
                self.answer(call, result);
            }
            ToKeeper::Spawn { call, launch } => self.spawn(call, *launch, descriptors),
            ToKeeper::Release { call, label } => {
                self.book.release(&label);
                self.untold.remove(&label);
                self.answer(call, Ok(()));
            }
            ToKeeper::Upgrade { call, program, build } => self.upgrade(call, program, build),
            ToKeeper::ShutDown { call } => {
                self.answer(call, Ok(()));
                self.ending = true;
            }
        }
        Ok(true)
    }

    fn greet(&mut self, greeting: Greeting) {
        let same = greeting.protocol == PROTOCOL;
        if let Some(connection) = &mut self.connection {
            connection.zone = if same { Zone::Greeted } else { Zone::Foreign };
        }
        let build = self.args.build.clone();
        if !same {
            log::line(&format!("a zone of protocol {} is here", greeting.protocol));
            let identity = self.book.identity().clone();
            return self
                .say(&FromKeeper::Welcome { protocol: PROTOCOL, identity, build }, Vec::new());
        }
        let identity = self.book.greet(&greeting);
        log::line(&format!("zone here, epoch {}", identity.epoch));
        self.detached = greeting.detached;
        // The zone is here, so nobody has to be told that it isn't.
        self.untold.clear();
        self.say(&FromKeeper::Welcome { protocol: PROTOCOL, identity, build }, Vec::new());
        for (held, channels) in self.book.batches() {
            self.say(&FromKeeper::Holding { held }, channels);
        }
        self.say(&FromKeeper::Ready, Vec::new());
    }

    fn spawn(&mut self, call: u64, launch: Launch, mut descriptors: Vec<OwnedFd>) {
        let (expected, present) = (usize::from(launch.netns), descriptors.len());
        if expected != present {
            return self.answer(call, Err(Failure::Descriptors { expected, present }));
        }
        let holds = launch.stdin == Stdin::Channel;
        let label = launch.label.clone();
        let begun = if holds { self.book.check(&label) } else { Ok(()) }
            .and_then(|()| spawn::begin(launch, descriptors.pop(), &mut self.views));
        let begun = match begun {
            Ok(begun) => begun,
            Err(failure) => return self.answer(call, Err(failure)),
        };
        self.book.started(begun.starting.pid);
        let name = holds.then(|| label.label.clone());
        if let Some(channel) = begun.channel
            && let Err(failure) = self.book.hold(label, Rc::new(channel))
        {
            log::error(&failure);
        }
        let connection = self.connections;
        self.starting.push(Launching { starting: begun.starting, call, connection, label: name });
    }

    fn settle(&mut self, pid: i32) {
        let at = self.starting.iter().position(|one| one.starting.pid == pid);
        let Some(mut launching) = at.map(|at| self.starting.swap_remove(at)) else { return };
        let result = launching.starting.settle();
        let asks = self.asking.as_ref().is_some_and(|asking| asking.pid == pid);
        if asks && result.is_ok() {
            return;
        }
        let label = launching.label.as_deref();
        let channel = label.and_then(|label| self.book.get(label)).cloned();
        if result.is_err() {
            self.asking.take_if(|_| asks);
            self.book.ended(pid);
            if let Some(label) = label {
                self.book.release(label);
            }
        }
        // A zone that came meanwhile did not ask for it.
        if self.connection.as_ref().is_some_and(|zone| zone.number == launching.connection) {
            let call = launching.call;
            match result {
                Ok(()) => {
                    self.say(&FromKeeper::Spawned { call, pid }, channel.into_iter().collect());
                }
                Err(failure) => self.answer(call, Err(failure)),
            }
        }
        self.flush_or_part();
    }

    fn reap(&mut self) {
        while let Ok(Some(_)) = self.sockets.signals.read_signal() {}
        while let Some((pid, status)) = reap_one() {
            // It may have died on its way to the program.
            self.settle(pid);
            if let Some(asking) = self.asking.take_if(|asking| asking.pid == pid) {
                self.asked(asking, status);
            }
            if self.book.ended(pid) && self.is_greeted() {
                self.say(&FromKeeper::Exited { pid, status }, Vec::new());
            }
        }
        self.flush_or_part();
    }

    fn answer(&mut self, call: u64, result: Result<(), Failure>) {
        let message = match result {
            Ok(()) => FromKeeper::Done { call },
            Err(failure) => FromKeeper::Failed { call, failure },
        };
        self.say(&message, Vec::new());
    }

    fn is_greeted(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.zone == Zone::Greeted)
    }

    fn say(&mut self, message: &FromKeeper, channels: Vec<Rc<OwnedFd>>) {
        let Some(connection) = &mut self.connection else { return };
        match serde_json::to_vec(message) {
            Ok(bytes) => connection.outbox.push_back((bytes, channels)),
            Err(error) => log::error(&error),
        }
    }

    fn flush_or_part(&mut self) {
        if let Err(error) = self.flush() {
            self.zone_gone(Some(&error));
        }
    }

    fn flush(&mut self) -> Result<(), ConnectionError> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        while let Some((bytes, channels)) = connection.outbox.front() {
            let channels: Vec<BorrowedFd<'_>> =
                channels.iter().map(|channel| channel.as_fd()).collect();
            match wire::send(&connection.socket, bytes, &channels) {
                Ok(()) => drop(connection.outbox.pop_front()),
                Err(Errno::EAGAIN) if connection.outbox.len() > MOST_UNREAD => {
                    return Err(ConnectionError::Deaf);
                }
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(ConnectionError::Send(errno)),
            }
        }
        Ok(())
    }

    /// Agents must not wait for a zone that is gone.
    fn zone_gone(&mut self, error: Option<&ConnectionError>) {
        let Some(connection) = self.connection.take() else { return };
        let why = error.map_or_else(|| "it closed".to_owned(), |error| log::chain(error));
        log::line(&format!("zone gone: {why}"));
        // Only it would have heard the answer.
        self.stop_asking();
        if connection.zone == Zone::Greeted && !self.detached.is_empty() {
            for label in self.book.labels() {
                self.tell_detached(&label);
            }
        }
    }

    fn tell_detached(&mut self, label: &str) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let told =
            self.book.get(label).map(|channel| send(channel.as_raw_fd(), &self.detached, flags));
        if told == Some(Err(Errno::EAGAIN)) {
            self.untold.insert(label.to_owned());
        } else {
            self.untold.remove(label);
        }
    }
}

/// Any child of ours, and any orphan below us.
#[expect(unsafe_code, reason = "a real-time signal as the cause of death is an error to nix")]
fn reap_one() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: writes one integer.
    let pid = unsafe { nix::libc::waitpid(-1, &raw mut status, nix::libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}
