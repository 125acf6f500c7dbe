//! What a fuzzer does with an end of the channel: a peer that sends anything at any time, and a
//! holder that does anything with what comes.

use crate::{
    frame::{Frame, MAX_MESSAGE, encoded, split},
    mux::{Event, MAX_STREAMS, Mux, Read, StreamKey, Write},
    words::{Hello, Refusal, Request, Response, Target},
};

pub fn zone(data: &[u8]) {
    play(Mux::zone(1), Side::Zone, Script(data));
}

pub fn agent(data: &[u8]) {
    play(Mux::agent(), Side::Agent, Script(data));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Zone,
    Agent,
}

/// Bytes that say what happens next.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn upto(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Few enough for the fuzzer to meet the same stream again.
const STREAMS: usize = 8;

fn play(mut mux: Mux, side: Side, mut script: Script<'_>) {
    let mut keys: Vec<StreamKey> = Vec::new();
    while let Some(step) = script.byte() {
        let which = usize::from(step >> 4) % STREAMS;
        let key = keys.get(which).copied();
        match step % 16 {
            0 => {
                let length = script.byte().map_or(0, usize::from) * 4;
                receive(&mut mux, side, script.upto(length));
            }
            1..=5 => {
                // A frame with the right length, so that the fuzzer need not find it.
                let kind = script.byte().unwrap_or_default() % 16;
                let length = script.byte().map_or(0, usize::from);
                let payload = script.upto(length);
                let mut frame = vec![kind, 0, 0, 0, u8::try_from(which).unwrap_or_default()];
                frame.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_be_bytes());
                frame.extend_from_slice(payload);
                receive(&mut mux, side, &frame);
            }
            6 if side == Side::Zone => {
                let port = script.byte().map_or(0, u16::from);
                let target = if port == 0 { Target::Agent } else { Target::Port(port) };
                keys.extend(mux.open(target).ok());
            }
            7 if side == Side::Zone => drop(mux.ask(&Request::Ping)),
            8 | 9 => {
                let length = script.byte().map_or(0, usize::from) * 1024;
                if let Some(key) = key
                    && let Write::Accepted(count) = mux.write(key, &vec![7; length])
                {
                    assert!(count <= length, "more was taken than was given");
                }
            }
            10 | 11 => {
                let most = script.byte().map_or(0, usize::from) * 1024 + 1;
                if let Some(key) = key {
                    let mut seen = 0;
                    let read = mux.read(key, most, |bytes| seen = bytes.len());
                    assert!(seen <= most && (read == Read::Bytes(seen) || seen == 0));
                }
            }
            12 => key.into_iter().for_each(|key| mux.finish(key)),
            13 => key.into_iter().for_each(|key| mux.close(key)),
            _ => send(&mut mux, usize::from(step >> 4)),
        }
        events(&mut mux, &mut keys, step);
        if keys.len() > STREAMS {
            keys.drain(..keys.len() - STREAMS);
        }
    }
    // Whatever happened, it comes to an end.
    for _ in 0..4 * MAX_STREAMS {
        send(&mut mux, 0);
    }
}

/// As the link does it: a zone gives up on an agent that breaks the protocol, an agent waits for
/// the next greeting.
fn receive(mux: &mut Mux, side: Side, message: &[u8]) {
    if mux.receive(message).is_err() {
        match side {
            Side::Zone => *mux = Mux::zone(1),
            Side::Agent => mux.detach(),
        }
    }
}

fn events(mux: &mut Mux, keys: &mut Vec<StreamKey>, step: u8) {
    while let Some(event) = mux.next_event() {
        match event {
            Event::Greeted { session } => {
                mux.welcome(session, &Hello { version: String::new(), claimed: None });
            }
            Event::Offered { key, .. } if step & 0x80 == 0 => {
                mux.accept(key);
                keys.push(key);
            }
            Event::Offered { key, .. } => mux.refuse(key, Refusal::PortClosed),
            Event::Asked { session, id, .. } => mux.answer(session, id, &Response::Pong),
            Event::Detached
            | Event::Cleared
            | Event::Welcome(_)
            | Event::Answered { .. }
            | Event::Opened(_)
            | Event::Refused(..)
            | Event::Readable(_)
            | Event::Writable(_)
            | Event::Broken(_) => {}
        }
    }
}

/// What goes out is whole frames, also when the socket wants shorter messages.
fn send(mux: &mut Mux, shorter: usize) {
    let limit = MAX_MESSAGE >> (shorter % 4);
    let mut message = Vec::new();
    mux.fill(&mut message, limit);
    let frames = whole(&message);
    if let Some(parts) = split(&message, 16 * 1024).ok().filter(|parts| parts.len() > 1) {
        assert_eq!(parts.iter().map(|part| whole(part)).sum::<usize>(), frames);
    }
}

/// The bytes of payload and the frames that carry nothing.
fn whole(message: &[u8]) -> usize {
    let (mut rest, mut said) = (message, 0);
    while !rest.is_empty() {
        let Ok((frame, after)) = Frame::parse(rest) else {
            assert!(rest.is_empty(), "a message of half a frame");
            break;
        };
        assert_eq!(encoded(&frame).len(), rest.len() - after.len());
        said += if let Frame::Data { bytes, .. } = frame { bytes.len() } else { 1 };
        rest = after;
    }
    said
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_breaks_neither_end() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "channel_zone", zone);
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "channel_agent", agent);
    }
}
