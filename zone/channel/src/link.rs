//! Moves messages between a `Mux` and the socket, and wakes whoever waits for them.
//!
//! A system call of the agent costs 50 µs in gVisor. So sending is tried before waiting for
//! writability, writability is watched only while the socket is full (else each message that the
//! peer takes would wake us), and after a message others run before the socket is read again, so
//! that their answer leaves before the read that finds nothing.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv, send},
};
use parking_lot::Mutex;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Sleep, sleep},
};

use crate::{
    agent_end::AgentSide,
    frame::{MAX_MESSAGE, split},
    mux::{Event, Mux, ProtocolError, StreamKey},
    watch::{Watched, watch},
    zone_end::ZoneSide,
};

/// Where halving the message size stops.
const MIN_MESSAGE: usize = 16 * 1024;
/// How soon an agent looks again at a socket without a peer, and how slow it gets.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(50);

const REST: Duration = Duration::from_millis(5);
/// How often an agent that may be restored looks for who did it.
const NAP: Duration = Duration::from_millis(4);

/// Why a zone's end closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The sandbox is gone.
    PeerGone,
    /// The agent broke the protocol.
    Protocol(String),
    Io(io::ErrorKind),
    /// Nobody holds this end, or its driver was dropped.
    Dropped,
}

pub(crate) struct Link {
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) mux: Mux,
    pub(crate) side: Side,
    pub(crate) closed: Option<Closed>,
    wakers: BTreeMap<StreamKey, StreamWakers>,
    driver: Option<Waker>,
    /// An agent's: see `AgentEnd::look_too`.
    pub(crate) may_be_saved: bool,
}

pub(crate) enum Side {
    Zone(ZoneSide),
    Agent(AgentSide),
}

#[derive(Default)]
pub(crate) struct StreamWakers {
    pub(crate) read: Option<Waker>,
    pub(crate) write: Option<Waker>,
}

impl Link {
    pub(crate) fn new(mux: Mux, side: Side) -> Arc<Self> {
        let state = State {
            mux,
            side,
            closed: None,
            wakers: BTreeMap::new(),
            driver: None,
            may_be_saved: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Looks, and changes nothing that has to be sent or told.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Changes something, then wakes the driver, which sends it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, driver) = {
            let mut state = self.state.lock();
            (change(&mut state), state.driver.take())
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    /// Like `change`; the driver is woken only if `change` says so.
    pub(crate) fn change_if<T>(&self, change: impl FnOnce(&mut State) -> (T, bool)) -> T {
        let (result, driver) = {
            let mut state = self.state.lock();
            let (result, sends) = change(&mut state);
            (result, if sends { state.driver.take() } else { None })
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    pub(crate) fn close(&self, why: Closed) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(why);
            wake.extend(state.driver.take());
            state.wake_all(&mut wake);
            if let Side::Zone(zone) = &mut state.side {
                zone.lost();
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

impl State {
    pub(crate) fn wakers(&mut self, key: StreamKey) -> &mut StreamWakers {
        self.wakers.entry(key).or_default()
    }

    pub(crate) fn forget(&mut self, key: StreamKey) {
        self.wakers.remove(&key);
    }

    fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for wakers in std::mem::take(&mut self.wakers).into_values() {
            wake.extend(wakers.read);
            wake.extend(wakers.write);
        }
    }

    fn deliver(&mut self, wake: &mut Vec<Waker>) {
        while let Some(event) = self.mux.next_event() {
            match event {
                Event::Readable(key) => {
                    wake.extend(self.wakers.get_mut(&key).and_then(|wakers| wakers.read.take()));
                }
                Event::Writable(key) => {
                    wake.extend(self.wakers.get_mut(&key).and_then(|wakers| wakers.write.take()));
                }
                Event::Broken(key) => {
                    if let Some(wakers) = self.wakers.remove(&key) {
                        wake.extend(wakers.read);
                        wake.extend(wakers.write);
                    }
                    if let Side::Zone(zone) = &mut self.side {
                        zone.broken(key);
                    }
                }
                Event::Cleared => self.wake_all(wake),
                event @ (Event::Welcome(_)
                | Event::Answered { .. }
                | Event::Opened(_)
                | Event::Refused(..)) => {
                    if let Side::Zone(zone) = &mut self.side {
                        zone.handle(event);
                    }
                }
                event @ (Event::Greeted { .. }
                | Event::Detached
                | Event::Asked { .. }
                | Event::Offered { .. }) => {
                    if let Side::Agent(agent) = &mut self.side {
                        wake.extend(agent.handle(event));
                    }
                }
            }
        }
    }
}

/// The future of one end. A zone's ends when the channel does; an agent's never.
pub(crate) struct Driver {
    link: Arc<Link>,
    socket: Watched,
    /// Registered only while the socket is full.
    writable: Option<AsyncFd<OwnedFd>>,
    inbox: Box<[u8]>,
    /// A message that the socket has not taken yet, and the session it belongs to.
    outbox: Vec<u8>,
    /// What is left of a message that was too long.
    pieces: Vec<Vec<u8>>,
    limit: usize,
    /// Not to send before its end.
    rest: Option<Pin<Box<Sleep>>>,
    /// An agent without a peer looks again then.
    look: Option<(Pin<Box<Sleep>>, Duration)>,
    /// An agent that may be restored looks then too.
    nap: Option<Pin<Box<Sleep>>>,
    immortal: bool,
}

enum Received {
    Message,
    Nothing,
    Gone(Errno),
}

impl Driver {
    pub(crate) fn new(fd: OwnedFd, link: Arc<Link>, immortal: bool) -> io::Result<Self> {
        Ok(Self {
            link,
            socket: Watched::new(fd)?,
            writable: None,
            inbox: vec![0; MAX_MESSAGE].into_boxed_slice(),
            outbox: Vec::new(),
            pieces: Vec::new(),
            limit: MAX_MESSAGE,
            rest: None,
            look: None,
            nap: None,
            immortal,
        })
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        if self.link.look(|state| state.closed.is_some()) {
            return Poll::Ready(Closed::Dropped);
        }
        if let Err(errno) = self.send_all(cx) {
            if !self.immortal {
                return Poll::Ready(gone(errno));
            }
            self.peer_gone(cx, FIRST_LOOK);
        }
        match self.receive_one(cx) {
            Ok(Received::Message) => {
                self.look = None;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Received::Nothing) => Poll::Pending,
            Ok(Received::Gone(errno)) if !self.immortal => Poll::Ready(gone(errno)),
            Ok(Received::Gone(_)) => {
                let pause = self.look.as_ref().map_or(FIRST_LOOK, |(_, pause)| {
                    (*pause + *pause / 16 + Duration::from_micros(100)).min(LAST_LOOK)
                });
                self.look = None;
                self.peer_gone(cx, pause);
                Poll::Pending
            }
            Err(error) if !self.immortal => Poll::Ready(Closed::Protocol(error.to_string())),
            // Only a greeting makes sense after words that made none.
            Err(_) => {
                self.detach();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Ends the session; the next one may begin on another socket under the same number.
    fn peer_gone(&mut self, cx: &mut Context<'_>, pause: Duration) {
        self.detach();
        if self.look.is_none() {
            self.look = Some((Box::pin(sleep(pause)), pause));
        }
        if let Some((sleep, _)) = &mut self.look
            && sleep.as_mut().poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
    }

    fn detach(&mut self) {
        self.with_state(|state| state.mux.detach());
        self.drop_outbox();
    }

    fn drop_outbox(&mut self) {
        self.outbox.clear();
        self.pieces.clear();
        self.writable = None;
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut wake = Vec::new();
        let result = {
            let mut state = self.link.state.lock();
            let result = change(&mut state);
            state.deliver(&mut wake);
            result
        };
        wake.into_iter().for_each(Waker::wake);
        result
    }

    fn send_all(&mut self, cx: &mut Context<'_>) -> Result<(), Errno> {
        loop {
            if self.outbox.is_empty() {
                self.next_outbox(cx);
            }
            if self.outbox.is_empty() {
                return Ok(());
            }
            if let Some(rest) = &mut self.rest {
                if rest.as_mut().poll(cx).is_pending() {
                    return Ok(());
                }
                self.rest = None;
            }
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            // The guard comes first: what becomes writable after it is not cleared with it.
            let full = match &self.writable {
                None => None,
                Some(writable) => match writable.poll_write_ready(cx) {
                    Poll::Ready(guard) => Some(guard.map_err(|error| errno_of(&error))?),
                    Poll::Pending => return Ok(()),
                },
            };
            match send(self.socket.number(), &self.outbox, flags) {
                Ok(_) => {
                    self.outbox.clear();
                    self.writable = None;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EMSGSIZE) if self.limit > MIN_MESSAGE => {
                    self.limit = (self.limit / 2).max(MIN_MESSAGE);
                    self.cut_outbox();
                }
                Err(Errno::EAGAIN) => match full {
                    Some(mut guard) => guard.clear_ready(),
                    None => self.watch_writable()?,
                },
                // No event tells when the kernel has memory again.
                Err(Errno::ENOBUFS | Errno::ENOMEM) => {
                    self.rest = Some(Box::pin(sleep(REST)));
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Takes the next message, and leaves word how to be told of later ones.
    fn next_outbox(&mut self, cx: &mut Context<'_>) {
        if let Some(piece) = self.pieces.pop() {
            self.outbox = piece;
            return;
        }
        let (mut outbox, limit) = (std::mem::take(&mut self.outbox), self.limit);
        self.with_state(|state| {
            state.mux.fill(&mut outbox, limit);
            if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
                state.driver = Some(cx.waker().clone());
            }
        });
        if outbox.is_empty() && outbox.capacity() > MIN_MESSAGE {
            outbox = Vec::new();
        }
        self.outbox = outbox;
    }

    fn cut_outbox(&mut self) {
        // What we encoded can be parsed.
        if let Ok(mut pieces) = split(&self.outbox, self.limit) {
            pieces.reverse();
            self.pieces.append(&mut pieces);
            self.outbox.clear();
        }
    }

    /// A descriptor of its own, since the runtime has one interest for each.
    fn watch_writable(&mut self) -> Result<(), Errno> {
        let watched = self.socket.copy().and_then(|fd| watch(fd, Interest::WRITABLE));
        self.writable = Some(watched.map_err(|error| errno_of(&error))?);
        Ok(())
    }

    fn receive_one(&mut self, cx: &mut Context<'_>) -> Result<Received, ProtocolError> {
        if let Some((sleep, _)) = &mut self.look {
            // Without a peer the time tells, not the socket.
            if sleep.as_mut().poll(cx).is_pending() {
                return Ok(Received::Nothing);
            }
            return match self.receive_now()? {
                Received::Nothing => Ok(Received::Gone(Errno::EAGAIN)),
                found @ (Received::Message | Received::Gone(_)) => Ok(found),
            };
        }
        match self.look_too(cx)? {
            Received::Nothing => {}
            found @ (Received::Message | Received::Gone(_)) => return Ok(found),
        }
        loop {
            let Some(readable) = self.socket.readable() else { return Ok(Received::Nothing) };
            let mut guard = match readable.poll_read_ready(cx) {
                Poll::Pending => return Ok(Received::Nothing),
                Poll::Ready(Ok(guard)) => guard,
                Poll::Ready(Err(error)) => return Ok(Received::Gone(errno_of(&error))),
            };
            let flags = MsgFlags::MSG_DONTWAIT;
            match recv(self.socket.number(), &mut self.inbox, flags) {
                Err(Errno::EAGAIN) => guard.clear_ready(),
                result => return self.take(result),
            }
        }
    }

    /// After a restore gVisor may tell of nothing that comes in at the host's sockets: which of
    /// their parts it has loaded by the time it begins to watch them is a matter of luck.
    fn look_too(&mut self, cx: &mut Context<'_>) -> Result<Received, ProtocolError> {
        let may_be_saved = self.link.look(|state| state.may_be_saved);
        if !may_be_saved && self.socket.readable().is_some() {
            self.nap = None;
            return Ok(Received::Nothing);
        }
        let nap = self.nap.get_or_insert_with(|| Box::pin(sleep(NAP)));
        if nap.as_mut().poll(cx).is_pending() {
            return Ok(Received::Nothing);
        }
        self.nap = None;
        cx.waker().wake_by_ref();
        self.receive_now()
    }

    fn receive_now(&mut self) -> Result<Received, ProtocolError> {
        let result = recv(self.socket.number(), &mut self.inbox, MsgFlags::MSG_DONTWAIT);
        if result == Err(Errno::EAGAIN) { Ok(Received::Nothing) } else { self.take(result) }
    }

    fn take(&mut self, result: Result<usize, Errno>) -> Result<Received, ProtocolError> {
        match result {
            Ok(0) => Ok(Received::Gone(Errno::EPIPE)),
            Err(Errno::EINTR) => Ok(Received::Message),
            Err(errno) => Ok(Received::Gone(errno)),
            Ok(length) => {
                let message = self.inbox.get(..length).unwrap_or_default();
                let mut wake = Vec::new();
                let (result, same_session) = {
                    let mut state = self.link.state.lock();
                    let before = state.mux.session();
                    let result = state.mux.receive(message);
                    let same = before == state.mux.session();
                    state.deliver(&mut wake);
                    (result, same)
                };
                wake.into_iter().for_each(Waker::wake);
                if !same_session {
                    // It was for a zone that is gone.
                    self.drop_outbox();
                    if self.immortal {
                        // Whoever is new may have restored the sandbox; this makes gVisor watch.
                        self.socket.again();
                    }
                }
                result.map(|()| Received::Message)
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_once(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(why) => {
                self.link.close(why);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.link.close(Closed::Dropped);
    }
}

fn gone(errno: Errno) -> Closed {
    if matches!(errno, Errno::EPIPE | Errno::ECONNRESET) {
        Closed::PeerGone
    } else {
        Closed::Io(io::Error::from(errno).kind())
    }
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
