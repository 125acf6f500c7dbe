//! Decides what goes out and what came in; does no I/O and knows no time.
//!
//! ```text
//! zone:   Greeting ── Welcome of my epoch ──► Talking
//! agent:  Detached ── Hello ──► Greeted ── welcome() ──► Talking ── Detached ──► Detached
//!                                 ▲ a Hello in any phase starts a new session ▲
//! ```
//!
//! A session ends with all its streams. In `Greeting` a zone discards what arrives (it was meant
//! for the zone before); in `Greeted` an agent holds back what it has to say, so that nothing it
//! says is discarded.

mod half;

use std::collections::{BTreeMap, VecDeque};

use half::StreamState;

use crate::{
    frame::{Frame, FrameError, HEADER, encoded},
    words::{Hello, Refusal, Request, Response, Target},
};

/// What a sender may have under way on one stream.
pub const WINDOW: u32 = 256 * 1024;
/// Streams that may exist at once; the memory a peer can make us hold is this times the window.
pub const MAX_STREAMS: usize = 1024;

/// A writer waits when it has so much that is not yet in a message.
const SEND_BUFFER: usize = 128 * 1024;
/// What one stream gets of a message before the next has its turn.
const QUANTUM: usize = 32 * 1024;
/// Credit is given in steps of this, so that a reader of small pieces doesn't answer each.
const CREDIT_STEP: u32 = WINDOW / 4;
/// Frames other than data that may wait for a peer that doesn't read.
const MAX_CONTROL: usize = 4 * MAX_STREAMS;
/// Only data can be cut again for a socket that takes less, so all else stays below this.
const PART: usize = 8 * 1024;
/// A request is small but for the environment it carries.
const MAX_REQUEST: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Zone,
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting { epoch: u64 },
    Detached,
    Greeted { epoch: u64 },
    Talking,
}

/// A stream of one session. An old one names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    pub(crate) session: u64,
    pub(crate) id: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Agent: a zone greets. Answer with `welcome(session)`.
    Greeted {
        session: u64,
    },
    /// Agent: nobody listens until the next greeting.
    Detached,
    /// All streams of earlier sessions are gone.
    Cleared,
    /// Zone: the agent answered the greeting.
    Welcome(Hello),
    /// Agent.
    Asked {
        session: u64,
        id: u32,
        request: Request,
    },
    /// Zone.
    Answered {
        id: u32,
        response: Response,
    },
    /// Agent: accept or refuse it.
    Offered {
        key: StreamKey,
        target: Target,
    },
    /// Zone.
    Opened(StreamKey),
    Refused(StreamKey, Refusal),
    Readable(StreamKey),
    Writable(StreamKey),
    /// The peer let go of it.
    Broken(StreamKey),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("frame {0} can't come from this side")]
    WrongSide(&'static str),
    #[error("stream {0} is already open")]
    StreamInUse(u32),
    #[error("stream {stream} sent {bytes} bytes and may send {allowed}")]
    CreditExceeded { stream: u32, bytes: usize, allowed: u32 },
    #[error("stream {0} was given more credit than a window")]
    TooMuchCredit(u32),
    #[error("stream {0} sends after its end")]
    AfterFinish(u32),
    #[error("a request of more than {MAX_REQUEST} bytes")]
    RequestTooLong,
    #[error("parts of request {0} in another")]
    MixedRequests(u32),
    #[error("the greeting can't be read")]
    BadHello(#[source] serde_json::Error),
    #[error("the answer to request {id} can't be read")]
    BadResponse { id: u32, source: serde_json::Error },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("too many wait for the peer")]
    TooMany,
    #[error("it is too long")]
    TooLong,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted(usize),
    /// `Writable` follows.
    Full,
    /// The peer does not read any more, or this side said that it has finished.
    Broken,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    /// `Readable` or `Broken` follows.
    Empty,
    End,
    Broken,
}

pub(crate) struct Mux {
    role: Role,
    phase: Phase,
    session: u64,
    streams: BTreeMap<u32, StreamState>,
    next_stream: u32,
    next_request: u32,
    /// Encoded frames; they go before data.
    control: VecDeque<Vec<u8>>,
    /// Streams with something to send, each once.
    ready: VecDeque<u32>,
    /// The parts of a request whose end has not come.
    partial: Option<(u32, Vec<u8>)>,
    events: VecDeque<Event>,
}

impl Mux {
    pub(crate) fn zone(epoch: u64) -> Self {
        let mut mux = Self::new(Role::Zone, Phase::Greeting { epoch });
        mux.control.push_back(encoded(&Frame::Hello { epoch }));
        mux
    }

    pub(crate) fn agent() -> Self {
        Self::new(Role::Agent, Phase::Detached)
    }

    fn new(role: Role, phase: Phase) -> Self {
        Self {
            role,
            phase,
            session: 0,
            streams: BTreeMap::new(),
            next_stream: 1,
            next_request: 1,
            control: VecDeque::new(),
            ready: VecDeque::new(),
            partial: None,
            events: VecDeque::new(),
        }
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// Frames other than data wait to be sent.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    // What this side wants.

    /// Zone: asks for a stream. Data may be written at once; it is for the refused to throw away.
    pub(crate) fn open(&mut self, target: Target) -> Result<StreamKey, Refused> {
        if self.streams.len() >= MAX_STREAMS || self.control.len() >= MAX_CONTROL {
            return Err(Refused::TooMany);
        }
        let id = self.next_stream;
        self.next_stream = self.next_stream.wrapping_add(1);
        self.streams.insert(id, StreamState::new());
        self.control.push_back(encoded(&Frame::Open { stream: id, target }));
        Ok(StreamKey { session: self.session, id })
    }

    /// Agent: the answers to `Offered`. An answer of an older session is for nobody.
    pub(crate) fn accept(&mut self, key: StreamKey) {
        if self.live(key).is_some() {
            self.control.push_back(encoded(&Frame::Opened { stream: key.id }));
        }
    }

    pub(crate) fn refuse(&mut self, key: StreamKey, refusal: Refusal) {
        if let Some(stream) = self.live(key) {
            let broken = stream.broken;
            self.streams.remove(&key.id);
            if !broken {
                self.control.push_back(encoded(&Frame::Refused { stream: key.id, refusal }));
            }
        }
    }

    /// Agent: the answer to `Greeted`.
    pub(crate) fn welcome(&mut self, session: u64, hello: &Hello) {
        if let (Phase::Greeted { epoch }, true) = (self.phase, session == self.session) {
            self.phase = Phase::Talking;
            let hello = json(hello);
            self.control.push_front(encoded(&Frame::Welcome { epoch, hello: &hello }));
        }
    }

    /// Zone.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<u32, Refused> {
        if self.control.len() >= MAX_CONTROL {
            return Err(Refused::TooMany);
        }
        let body = json(request);
        if body.len() > MAX_REQUEST {
            return Err(Refused::TooLong);
        }
        let id = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        let mut rest = &body[..];
        while let Some((part, after)) = rest.split_at_checked(PART) {
            self.control.push_back(encoded(&Frame::RequestPart { id, body: part }));
            rest = after;
        }
        self.control.push_back(encoded(&Frame::Request { id, body: rest }));
        Ok(id)
    }

    /// Agent: the answer to `Asked`.
    pub(crate) fn answer(&mut self, session: u64, id: u32, response: &Response) {
        if session != self.session || self.phase == Phase::Detached {
            return;
        }
        let mut body = json(response);
        if body.len() > PART {
            body = json(&Response::Refused("the answer is too long".into()));
        }
        self.control.push_back(encoded(&Frame::Response { id, body: &body }));
    }

    pub(crate) fn write(&mut self, key: StreamKey, bytes: &[u8]) -> Write {
        let Some(stream) = self.live(key) else { return Write::Broken };
        if stream.broken || stream.outgoing.end_asked() {
            return Write::Broken;
        }
        if bytes.is_empty() {
            return Write::Accepted(0);
        }
        let accepted = stream.outgoing.push(bytes, SEND_BUFFER);
        if accepted == 0 {
            return Write::Full;
        }
        self.make_ready(key.id);
        Write::Accepted(accepted)
    }

    /// No more data; what was written goes out first.
    pub(crate) fn finish(&mut self, key: StreamKey) {
        let Some(stream) = self.live(key) else { return };
        if !stream.broken && stream.outgoing.ask_end() {
            self.make_ready(key.id);
        }
    }

    /// Hands up to `most` bytes to `take`. What came before a reset can still be read.
    pub(crate) fn read(&mut self, key: StreamKey, most: usize, take: impl FnOnce(&[u8])) -> Read {
        let Some(stream) = self.live(key) else { return Read::Broken };
        let taken = stream.incoming.take(most, take);
        if taken > 0 {
            if !stream.broken
                && let Some(amount) = stream.incoming.credit_due(CREDIT_STEP)
            {
                self.control.push_back(encoded(&Frame::Credit { stream: key.id, amount }));
            }
            return Read::Bytes(taken);
        }
        if stream.incoming.ended() {
            Read::End
        } else if stream.broken {
            Read::Broken
        } else {
            Read::Empty
        }
    }

    /// The holder lets go. What it finished still goes out; what it did not is thrown away.
    pub(crate) fn close(&mut self, key: StreamKey) {
        let Some(stream) = self.live(key) else { return };
        if stream.broken || (stream.incoming.end_came() && stream.outgoing.end_sent()) {
            self.streams.remove(&key.id);
        } else if stream.outgoing.end_asked() && !stream.outgoing.end_sent() {
            stream.abandoned = true;
            stream.incoming.discard();
        } else {
            self.streams.remove(&key.id);
            self.control.push_back(encoded(&Frame::Reset { stream: key.id }));
        }
    }

    /// Nobody listens: streams end, and nothing waits to be sent.
    pub(crate) fn detach(&mut self) {
        if self.phase != Phase::Detached {
            self.end_session(Phase::Detached);
            self.events.push_back(Event::Detached);
        }
    }

    // The wire.

    /// Fills `out` with the next message of at most `limit` bytes. It stays empty if there is
    /// nothing to say.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, limit: usize) {
        if matches!(self.phase, Phase::Detached | Phase::Greeted { .. }) {
            return;
        }
        while let Some(frame) = self.control.front() {
            if !out.is_empty() && out.len() + frame.len() > limit {
                return;
            }
            out.extend_from_slice(frame);
            self.control.pop_front();
        }
        // Data, and the finish and reset that may follow it.
        while limit.saturating_sub(out.len()) > 4 * HEADER
            && let Some(id) = self.ready.pop_front()
        {
            self.fill_from(id, out, limit);
        }
    }

    fn fill_from(&mut self, id: u32, out: &mut Vec<u8>, limit: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ready = false;
        let room = limit.saturating_sub(out.len()).saturating_sub(3 * HEADER);
        let was_full = stream.outgoing.was_refused();
        stream.outgoing.take(room.min(QUANTUM), |bytes| {
            Frame::Data { stream: id, bytes }.encode(out);
        });
        if !stream.outgoing.is_empty() {
            stream.ready = true;
            self.ready.push_back(id);
        } else if stream.outgoing.send_end() {
            Frame::Finish { stream: id }.encode(out);
            if stream.abandoned {
                if !stream.incoming.end_came() {
                    Frame::Reset { stream: id }.encode(out);
                }
                self.streams.remove(&id);
                return;
            }
        }
        if was_full && stream.outgoing.has_room(SEND_BUFFER) {
            stream.outgoing.forget_refusal();
            self.events.push_back(Event::Writable(StreamKey { session: self.session, id }));
        }
    }

    pub(crate) fn receive(&mut self, message: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = message;
        while !rest.is_empty() {
            let (frame, after) = Frame::parse(rest)?;
            self.receive_frame(frame)?;
            rest = after;
        }
        Ok(())
    }

    fn receive_frame(&mut self, frame: Frame<'_>) -> Result<(), ProtocolError> {
        match (self.phase, frame) {
            (Phase::Greeting { epoch: mine }, Frame::Welcome { epoch, hello }) if mine == epoch => {
                let hello = serde_json::from_slice(hello).map_err(ProtocolError::BadHello)?;
                self.phase = Phase::Talking;
                self.events.push_back(Event::Welcome(hello));
                return Ok(());
            }
            (Phase::Greeting { .. }, _) => return Ok(()),
            (Phase::Detached, frame) if !matches!(frame, Frame::Hello { .. }) => return Ok(()),
            _ => {}
        }
        match frame {
            Frame::Hello { epoch } => {
                self.only(Role::Agent, "hello")?;
                self.end_session(Phase::Greeted { epoch });
                self.events.push_back(Event::Greeted { session: self.session });
            }
            Frame::Welcome { .. } => self.only(Role::Zone, "welcome")?,
            Frame::Request { id, body } => {
                self.only(Role::Agent, "request")?;
                self.add_part(id, body)?;
                self.asked(id);
            }
            Frame::RequestPart { id, body } => {
                self.only(Role::Agent, "request")?;
                self.add_part(id, body)?;
            }
            Frame::Response { id, body } => {
                self.only(Role::Zone, "response")?;
                let response = serde_json::from_slice(body)
                    .map_err(|source| ProtocolError::BadResponse { id, source })?;
                self.events.push_back(Event::Answered { id, response });
            }
            Frame::Open { stream, target } => {
                self.only(Role::Agent, "open")?;
                self.offered(stream, target)?;
            }
            Frame::Opened { stream } => {
                self.only(Role::Zone, "opened")?;
                self.events.push_back(Event::Opened(self.key(stream)));
            }
            Frame::Refused { stream, refusal } => {
                self.only(Role::Zone, "refused")?;
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.break_off();
                    let key = self.key(stream);
                    self.events.push_back(Event::Refused(key, refusal));
                    self.events.push_back(Event::Broken(key));
                    self.forget_abandoned(stream);
                }
            }
            Frame::Data { stream, bytes } => self.data(stream, bytes)?,
            Frame::Credit { stream, amount } => self.credit(stream, amount)?,
            Frame::Finish { stream } => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.incoming.end();
                    self.events.push_back(Event::Readable(self.key(stream)));
                }
            }
            Frame::Reset { stream } => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.break_off();
                    self.events.push_back(Event::Broken(self.key(stream)));
                    self.forget_abandoned(stream);
                }
            }
            Frame::Detached => {
                self.only(Role::Agent, "detached")?;
                self.detach();
            }
        }
        Ok(())
    }

    fn add_part(&mut self, id: u32, body: &[u8]) -> Result<(), ProtocolError> {
        let (of, parts) = self.partial.get_or_insert_with(|| (id, Vec::new()));
        if *of != id {
            return Err(ProtocolError::MixedRequests(id));
        }
        if parts.len() + body.len() > MAX_REQUEST {
            return Err(ProtocolError::RequestTooLong);
        }
        parts.extend_from_slice(body);
        Ok(())
    }

    fn asked(&mut self, id: u32) {
        let body = self.partial.take().map(|(_, body)| body).unwrap_or_default();
        match serde_json::from_slice(&body) {
            Ok(request) => {
                self.events.push_back(Event::Asked { session: self.session, id, request });
            }
            // A newer zone may ask what this agent doesn't know.
            Err(error) => {
                let refusal = Response::Refused(format!("unknown request: {error}"));
                self.answer(self.session, id, &refusal);
            }
        }
    }

    fn offered(&mut self, id: u32, target: Target) -> Result<(), ProtocolError> {
        if self.streams.contains_key(&id) {
            return Err(ProtocolError::StreamInUse(id));
        }
        // Streams that the zone let go count here until their holder sees it.
        if self.streams.len() >= 2 * MAX_STREAMS {
            let refusal = Refusal::TooMany;
            self.control.push_back(encoded(&Frame::Refused { stream: id, refusal }));
            return Ok(());
        }
        self.streams.insert(id, StreamState::new());
        self.events.push_back(Event::Offered { key: self.key(id), target });
        Ok(())
    }

    fn data(&mut self, id: u32, bytes: &[u8]) -> Result<(), ProtocolError> {
        // Data of a stream that was let go here may still be under way.
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.incoming.end_came() {
            return Err(ProtocolError::AfterFinish(id));
        }
        let bytes_len = bytes.len();
        if let Err(allowed) = stream.incoming.push(bytes) {
            return Err(ProtocolError::CreditExceeded { stream: id, bytes: bytes_len, allowed });
        }
        if stream.abandoned {
            stream.incoming.discard();
        } else {
            self.events.push_back(Event::Readable(self.key(id)));
        }
        Ok(())
    }

    fn credit(&mut self, id: u32, amount: u32) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if !stream.outgoing.add_credit(amount) {
            return Err(ProtocolError::TooMuchCredit(id));
        }
        if stream.outgoing.was_refused() && stream.outgoing.has_room(SEND_BUFFER) {
            stream.outgoing.forget_refusal();
            self.events.push_back(Event::Writable(self.key(id)));
        }
        Ok(())
    }

    fn end_session(&mut self, phase: Phase) {
        self.phase = phase;
        self.session += 1;
        self.streams.clear();
        self.control.clear();
        self.ready.clear();
        self.partial = None;
        self.events.push_back(Event::Cleared);
    }

    fn forget_abandoned(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(|stream| stream.abandoned) {
            self.streams.remove(&id);
        }
    }

    fn make_ready(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.ready
        {
            stream.ready = true;
            self.ready.push_back(id);
        }
    }

    fn live(&mut self, key: StreamKey) -> Option<&mut StreamState> {
        if key.session == self.session { self.streams.get_mut(&key.id) } else { None }
    }

    fn key(&self, id: u32) -> StreamKey {
        StreamKey { session: self.session, id }
    }

    fn only(&self, role: Role, frame: &'static str) -> Result<(), ProtocolError> {
        if self.role == role { Ok(()) } else { Err(ProtocolError::WrongSide(frame)) }
    }
}

#[expect(clippy::expect_used, reason = "these words have string keys and no failing serializer")]
fn json(words: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(words).expect("words are JSON")
}

#[cfg(test)]
mod tests;
