//! Two machines joined by a pipe that loses nothing, and one alone against nonsense.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    frame::{DETACHED_MESSAGE, MAX_MESSAGE},
    words::Claim,
};

/// Two ends, and the messages between them.
struct Pair {
    zone: Mux,
    agent: Mux,
    to_agent: VecDeque<Vec<u8>>,
    to_zone: VecDeque<Vec<u8>>,
    limit: usize,
    seen_by_zone: Vec<Event>,
    seen_by_agent: Vec<Event>,
}

fn hello() -> Hello {
    Hello { version: "test".into(), claimed: None }
}

impl Pair {
    fn new() -> Self {
        Self {
            zone: Mux::zone(1),
            agent: Mux::agent(),
            to_agent: VecDeque::new(),
            to_zone: VecDeque::new(),
            limit: MAX_MESSAGE,
            seen_by_zone: Vec::new(),
            seen_by_agent: Vec::new(),
        }
    }

    fn greeted() -> Self {
        let mut pair = Self::new();
        pair.settle();
        pair.seen_by_zone.clear();
        pair.seen_by_agent.clear();
        pair
    }

    /// One message from each end into the pipe, if there is one.
    fn emit(&mut self, from_zone: bool) {
        let (mux, pipe) = if from_zone {
            (&mut self.zone, &mut self.to_agent)
        } else {
            (&mut self.agent, &mut self.to_zone)
        };
        let mut message = Vec::new();
        mux.fill(&mut message, self.limit);
        assert!(message.len() <= self.limit);
        if !message.is_empty() {
            pipe.push_back(message);
        }
    }

    /// One message out of the pipe.
    fn deliver(&mut self, to_agent: bool) {
        let (mux, pipe) = if to_agent {
            (&mut self.agent, &mut self.to_agent)
        } else {
            (&mut self.zone, &mut self.to_zone)
        };
        if let Some(message) = pipe.pop_front() {
            mux.receive(&message).unwrap();
        }
        self.events();
    }

    /// Agent: greets back and accepts.
    fn events(&mut self) {
        while let Some(event) = self.agent.next_event() {
            if let Event::Greeted { session } = &event {
                self.agent.welcome(*session, &hello());
            } else if let Event::Offered { key, .. } = &event {
                self.agent.accept(*key);
            }
            self.seen_by_agent.push(event);
        }
        while let Some(event) = self.zone.next_event() {
            self.seen_by_zone.push(event);
        }
    }

    /// Until nothing moves by itself.
    fn settle(&mut self) {
        loop {
            self.emit(true);
            self.emit(false);
            if self.to_agent.is_empty() && self.to_zone.is_empty() {
                return;
            }
            self.deliver(true);
            self.deliver(false);
        }
    }

    fn side(&mut self, zone: bool) -> &mut Mux {
        if zone { &mut self.zone } else { &mut self.agent }
    }
}

fn read_some(mux: &mut Mux, key: StreamKey, most: usize) -> Result<Vec<u8>, Read> {
    let mut bytes = Vec::new();
    match mux.read(key, most, |some| bytes.extend_from_slice(some)) {
        Read::Bytes(count) => {
            assert_eq!(count, bytes.len());
            Ok(bytes)
        }
        nothing @ (Read::Empty | Read::End | Read::Broken) => Err(nothing),
    }
}

#[derive(Debug, Clone)]
enum Act {
    Open,
    Write { zone: bool, stream: usize, length: usize },
    Finish { zone: bool, stream: usize },
    Read { zone: bool, stream: usize, most: usize },
    Close { zone: bool, stream: usize },
    Emit { zone: bool },
    Deliver { to_agent: bool },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let stream = 0..6_usize;
    let act = prop_oneof![
        2 => Just(Act::Open),
        8 => (any::<bool>(), stream.clone(), 1..200_000_usize)
            .prop_map(|(zone, stream, length)| Act::Write { zone, stream, length }),
        1 => (any::<bool>(), stream.clone())
            .prop_map(|(zone, stream)| Act::Finish { zone, stream }),
        8 => (any::<bool>(), stream.clone(), 1..100_000_usize)
            .prop_map(|(zone, stream, most)| Act::Read { zone, stream, most }),
        1 => (any::<bool>(), stream).prop_map(|(zone, stream)| Act::Close { zone, stream }),
        8 => any::<bool>().prop_map(|zone| Act::Emit { zone }),
        8 => any::<bool>().prop_map(|to_agent| Act::Deliver { to_agent }),
    ];
    prop::collection::vec(act, 1..150)
}

/// What one end of one stream has done.
#[derive(Default, Clone, Copy)]
struct Done {
    written: usize,
    read: usize,
    finished: bool,
    closed: bool,
    /// It lost unread bytes, so the other end may see a break.
    ended: bool,
}

/// The n-th byte that this end of this stream writes.
fn byte(key: StreamKey, zone: bool, at: usize) -> u8 {
    (at / 7 + key.id as usize * 31 + usize::from(zone) * 97).to_le_bytes()[0]
}

struct Play {
    pair: Pair,
    keys: Vec<StreamKey>,
    done: BTreeMap<(StreamKey, bool), Done>,
}

impl Play {
    fn new(limit: usize) -> Self {
        let mut pair = Pair::new();
        pair.limit = limit;
        Self { pair, keys: Vec::new(), done: BTreeMap::new() }
    }

    /// A stream that this end has. The agent has it once it was offered.
    fn pick(&self, zone: bool, stream: usize) -> Option<StreamKey> {
        let key = *self.keys.get(stream % self.keys.len().max(1))?;
        let offered =
            |event: &Event| matches!(event, Event::Offered { key: k, .. } if k.id == key.id);
        let there = zone || self.pair.seen_by_agent.iter().any(offered);
        let key = if zone { key } else { StreamKey { session: self.pair.agent.session(), ..key } };
        let closed = self.done.get(&(key_of(key), zone)).is_some_and(|done| done.closed);
        (there && !closed).then_some(key)
    }

    fn done(&mut self, key: StreamKey, zone: bool) -> &mut Done {
        self.done.entry((key_of(key), zone)).or_default()
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Open => {
                if self.keys.len() < 6 {
                    self.keys.push(self.pair.zone.open(Target::Agent).unwrap());
                }
            }
            Act::Write { zone, stream, length } => {
                let Some(key) = self.pick(zone, stream) else { return };
                let done = *self.done(key, zone);
                let bytes: Vec<u8> =
                    (done.written..done.written + length).map(|at| byte(key, zone, at)).collect();
                match self.pair.side(zone).write(key, &bytes) {
                    Write::Accepted(count) => {
                        assert!(!done.finished, "a finished end takes nothing");
                        self.done(key, zone).written += count;
                    }
                    Write::Full => {}
                    Write::Broken => {
                        let other = *self.done(key, !zone);
                        assert!(done.finished || other.closed);
                    }
                }
            }
            Act::Finish { zone, stream } => {
                let Some(key) = self.pick(zone, stream) else { return };
                self.pair.side(zone).finish(key);
                self.done(key, zone).finished = true;
            }
            Act::Read { zone, stream, most } => {
                let Some(key) = self.pick(zone, stream) else { return };
                self.read(key, zone, most);
            }
            Act::Close { zone, stream } => {
                let Some(key) = self.pick(zone, stream) else { return };
                self.pair.side(zone).close(key);
                self.done(key, zone).closed = true;
            }
            Act::Emit { zone } => self.pair.emit(zone),
            Act::Deliver { to_agent } => self.pair.deliver(to_agent),
        }
    }

    /// `true`: there may be more.
    fn read(&mut self, key: StreamKey, zone: bool, most: usize) -> bool {
        let writer = *self.done(key, !zone);
        let read = self.done(key, zone).read;
        match read_some(self.pair.side(zone), key, most) {
            Ok(bytes) => {
                for (at, found) in (read..).zip(&bytes) {
                    assert_eq!(*found, byte(key, !zone, at), "byte {at} of {key:?}");
                }
                self.done(key, zone).read += bytes.len();
                assert!(self.done(key, zone).read <= writer.written);
                true
            }
            Err(Read::End) => {
                assert!(writer.finished, "an end nobody made");
                assert_eq!(read, writer.written, "an end before the last byte");
                self.done(key, zone).ended = true;
                false
            }
            Err(Read::Broken) => {
                assert!(writer.closed, "a break nobody made");
                false
            }
            Err(Read::Empty | Read::Bytes(_)) => false,
        }
    }

    /// Everybody reads what there is, until nothing moves.
    fn drain(&mut self) {
        loop {
            self.pair.settle();
            let mut moved = false;
            for stream in 0..self.keys.len() {
                for zone in [true, false] {
                    if let Some(key) = self.pick(zone, stream) {
                        moved |= self.read(key, zone, usize::MAX);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }
}

/// Both ends' names of one stream, as one.
fn key_of(key: StreamKey) -> StreamKey {
    StreamKey { session: 0, id: key.id }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_stream_delivers_its_bytes_in_order(
        acts in acts(),
        limit in prop_oneof![Just(MAX_MESSAGE), 16_384..MAX_MESSAGE],
    ) {
        let mut play = Play::new(limit);
        for act in &acts {
            play.act(act);
        }
        play.drain();
        for key in play.keys.clone() {
            for zone in [true, false] {
                let (reader, writer) = (*play.done(key, zone), *play.done(key, !zone));
                // Without a shutdown a close may throw away; with one, or none, all arrives.
                if !reader.closed && (!writer.closed || writer.finished) {
                    prop_assert_eq!(reader.read, writer.written, "{:?} zone={}", key, zone);
                    prop_assert_eq!(reader.ended, writer.finished);
                }
            }
        }
        // Nothing is remembered of streams that both ends have let go.
        for stream in 0..play.keys.len() {
            for zone in [true, false] {
                play.act(&Act::Close { zone, stream });
            }
        }
        play.pair.settle();
        prop_assert!(play.pair.zone.streams.is_empty());
        prop_assert!(play.pair.agent.streams.is_empty());
    }

    #[test]
    fn a_new_epoch_drops_everything_before_it(acts in acts()) {
        let mut play = Play::new(MAX_MESSAGE);
        for act in &acts {
            play.act(act);
        }
        // What is in the pipe stays there; the zone is another.
        let mut pair = play.pair;
        pair.zone = Mux::zone(2);
        pair.seen_by_zone.clear();
        let old: Vec<_> = pair.agent.streams.keys().copied().collect();
        let session = pair.agent.session();
        let fresh = pair.zone.open(Target::Port(7)).unwrap();
        prop_assert_eq!(pair.zone.write(fresh, b"fresh"), Write::Accepted(5));
        pair.settle();
        prop_assert_eq!(&pair.seen_by_zone[..2], &[Event::Welcome(hello()), Event::Opened(fresh)]);
        for id in old {
            let key = StreamKey { session, id };
            prop_assert_eq!(pair.agent.write(key, b"x"), Write::Broken);
            prop_assert_eq!(read_some(&mut pair.agent, key, 10), Err(Read::Broken));
        }
        let accepted = StreamKey { session: pair.agent.session(), ..fresh };
        prop_assert_eq!(read_some(&mut pair.agent, accepted, 10), Ok(b"fresh".to_vec()));
        prop_assert_eq!(pair.agent.streams.len(), 1);
    }

    #[test]
    fn a_zone_survives_whatever_an_agent_sends(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..20),
        frames in prop::collection::vec((1_u8..14, 0_u32..4, 0_u32..12), 0..40),
    ) {
        let mut zone = Mux::zone(1);
        let welcome = Frame::Welcome { epoch: 1, hello: br#"{"version":"","claimed":null}"# };
        zone.receive(&encoded(&welcome)).unwrap();
        for _ in 0..3 {
            let key = zone.open(Target::Agent).unwrap();
            zone.write(key, b"data");
        }
        // Well-formed frames reach further than noise.
        for (kind, stream, length) in frames {
            let mut message = vec![kind];
            message.extend(stream.to_be_bytes());
            message.extend(length.to_be_bytes());
            message.resize(message.len() + length as usize, 1);
            drop(zone.receive(&message));
        }
        for message in messages {
            drop(zone.receive(&message));
        }
        let mut out = Vec::new();
        zone.fill(&mut out, MAX_MESSAGE);
        prop_assert!(zone.streams.len() <= 3);
    }
}

#[test]
fn a_writer_stops_at_the_window_and_goes_on_with_credit() {
    let mut pair = Pair::greeted();
    let key = pair.zone.open(Target::Agent).unwrap();
    let mut sent = 0;
    loop {
        match pair.zone.write(key, &[0; 10_000]) {
            Write::Accepted(count) => sent += count,
            Write::Full => {
                let before = pair.seen_by_zone.len();
                pair.settle();
                if pair.seen_by_zone.len() == before {
                    break;
                }
            }
            Write::Broken => panic!(),
        }
    }
    assert_eq!(sent, WINDOW as usize);
    let there = StreamKey { session: pair.agent.session(), ..key };
    read_some(&mut pair.agent, there, CREDIT_STEP as usize - 1).unwrap();
    pair.settle();
    assert_eq!(pair.zone.write(key, b"x"), Write::Full);
    read_some(&mut pair.agent, there, 1).unwrap();
    pair.seen_by_zone.clear();
    pair.settle();
    assert_eq!(pair.seen_by_zone, [Event::Writable(key)]);
    assert_eq!(pair.zone.write(key, &vec![0; 100_000]), Write::Accepted(CREDIT_STEP as usize));
}

#[test]
fn a_small_stream_does_not_wait_for_a_large_one() {
    let mut pair = Pair::greeted();
    let (large, small) =
        (pair.zone.open(Target::Agent).unwrap(), pair.zone.open(Target::Agent).unwrap());
    assert_eq!(pair.zone.write(large, &vec![0; WINDOW as usize]), Write::Accepted(SEND_BUFFER));
    assert_eq!(pair.zone.write(small, b"small"), Write::Accepted(5));
    pair.emit(true);
    pair.deliver(true);
    let there = StreamKey { session: pair.agent.session(), ..small };
    assert_eq!(read_some(&mut pair.agent, there, 10), Ok(b"small".to_vec()));
}

#[test]
fn an_agent_says_nothing_before_its_welcome() {
    let mut pair = Pair::new();
    let key = pair.zone.open(Target::Port(1)).unwrap();
    pair.emit(true);
    let message = pair.to_agent.pop_front().unwrap();
    pair.agent.receive(&message).unwrap();
    assert_eq!(pair.agent.next_event(), Some(Event::Cleared));
    let session = pair.agent.session();
    assert_eq!(pair.agent.next_event(), Some(Event::Greeted { session }));
    let there = StreamKey { session, ..key };
    let offered = Event::Offered { key: there, target: Target::Port(1) };
    assert_eq!(pair.agent.next_event(), Some(offered));
    pair.agent.accept(there);
    pair.agent.write(there, b"early");
    pair.emit(false);
    assert!(pair.to_zone.is_empty());
    pair.agent.welcome(session, &hello());
    pair.settle();
    let expected = [Event::Welcome(hello()), Event::Opened(key), Event::Readable(key)];
    assert_eq!(pair.seen_by_zone, expected);
}

#[test]
fn detached_ends_streams_and_silences_the_agent() {
    let mut pair = Pair::greeted();
    let key = pair.zone.open(Target::Agent).unwrap();
    pair.settle();
    pair.seen_by_agent.clear();
    let there = StreamKey { session: pair.agent.session(), ..key };
    assert_eq!(pair.agent.write(there, b"lost"), Write::Accepted(4));
    pair.agent.receive(&DETACHED_MESSAGE).unwrap();
    pair.agent.receive(&DETACHED_MESSAGE).unwrap();
    pair.events();
    assert_eq!(pair.seen_by_agent, [Event::Cleared, Event::Detached]);
    assert_eq!(pair.agent.write(there, b"x"), Write::Broken);
    pair.agent.answer(there.session, 1, &Response::Pong);
    pair.emit(false);
    assert!(pair.to_zone.is_empty());
}

#[test]
fn a_long_request_comes_in_parts_and_is_answered_once() {
    let mut pair = Pair::greeted();
    let value = "v".repeat(3 * MAX_MESSAGE);
    let request = Request::Claim(Claim {
        sandbox_id: "s".into(),
        template_id: "t".into(),
        env: [("E".to_owned(), value)].into(),
        hostname: "h".into(),
        agent_token: Some("token".into()),
        user: "u".into(),
        workdir: Some("/w".into()),
        nameservers: vec!["10.0.0.1".parse().unwrap()],
        pids: 5,
        authority: Some("one".into()),
    });
    let id = pair.zone.ask(&request).unwrap();
    pair.settle();
    let session = pair.agent.session();
    assert_eq!(pair.seen_by_agent, [Event::Asked { session, id, request: request.clone() }]);
    pair.agent.answer(session, id, &Response::Claimed);
    // Nobody is there who asked this in an older session.
    pair.agent.answer(session - 1, 77, &Response::Pong);
    pair.settle();
    assert_eq!(pair.seen_by_zone, [Event::Answered { id, response: Response::Claimed }]);
    let Request::Claim(mut claim) = request else { panic!() };
    claim.workdir = Some("x".repeat(MAX_REQUEST));
    assert_eq!(pair.zone.ask(&Request::Claim(claim)), Err(Refused::TooLong));
}

#[test]
fn an_unknown_request_is_refused_by_the_machine() {
    let mut pair = Pair::greeted();
    pair.agent.receive(&encoded(&Frame::Request { id: 5, body: br#"{"dance":1}"# })).unwrap();
    pair.settle();
    let [Event::Answered { id: 5, response: Response::Refused(why) }] = &pair.seen_by_zone[..]
    else {
        panic!("{:?}", pair.seen_by_zone);
    };
    assert!(why.contains("unknown request"), "{why}");
}

#[test]
fn breaches_of_the_protocol_are_told_apart() {
    let open = |zone: &mut Mux| {
        let mut pair_frame = Vec::new();
        zone.open(Target::Agent).unwrap();
        zone.fill(&mut pair_frame, MAX_MESSAGE);
    };
    let long = vec![0; WINDOW as usize / 2 + 1];
    let data = Frame::Data { stream: 1, bytes: &long };
    let too_much = Frame::Credit { stream: 1, amount: 1 };
    let finish = Frame::Finish { stream: 1 };
    let wrong = Frame::Open { stream: 9, target: Target::Agent };
    for (why, frames, expected) in [
        (
            "more than the window",
            &[data, data][..],
            "stream 1 sent 131073 bytes and may send 131071",
        ),
        ("credit that was not taken", &[too_much], "stream 1 was given more credit than a window"),
        ("data after the end", &[finish, data], "stream 1 sends after its end"),
        ("an agent that opens", &[wrong], "frame open can't come from this side"),
        (
            "an agent that greets",
            &[Frame::Hello { epoch: 1 }],
            "frame hello can't come from this side",
        ),
        (
            "an answer that isn't one",
            &[Frame::Response { id: 3, body: b"?" }],
            "the answer to request 3 can't be read",
        ),
    ] {
        let mut zone = Mux::zone(1);
        let welcome = Frame::Welcome { epoch: 1, hello: br#"{"version":"","claimed":null}"# };
        zone.receive(&encoded(&welcome)).unwrap();
        open(&mut zone);
        let result = frames.iter().try_for_each(|frame| zone.receive(&encoded(frame)));
        assert_eq!(result.unwrap_err().to_string(), expected, "{why}");
    }
}
