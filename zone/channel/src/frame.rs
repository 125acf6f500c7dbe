//! The bytes of a frame: kind, stream, length, payload; integers in network order.
//!
//! A message of the socket is a batch of whole frames, so whoever takes a channel over never meets
//! half a frame.

use crate::words::{Refusal, Target};

/// A longer message is slower to come by than two of these, and over 208 KiB default sockets refuse.
pub const MAX_MESSAGE: usize = 128 * 1024;
pub(crate) const HEADER: usize = 9;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REQUEST: u8 = 3;
const REQUEST_PART: u8 = 4;
const RESPONSE: u8 = 5;
const OPEN: u8 = 6;
const OPENED: u8 = 7;
const REFUSED: u8 = 8;
const DATA: u8 = 9;
const CREDIT: u8 = 10;
const FINISH: u8 = 11;
const RESET: u8 = 12;
const DETACHED: u8 = 13;

/// Written into a channel by whoever sees that its zone is gone.
pub const DETACHED_MESSAGE: [u8; HEADER] = [DETACHED, 0, 0, 0, 0, 0, 0, 0, 0];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Zone to agent: a new session begins.
    Hello {
        epoch: u64,
    },
    /// Agent to zone: the answer to `Hello`; `hello` is JSON.
    Welcome {
        epoch: u64,
        hello: &'a [u8],
    },
    /// Zone to agent. The body is JSON, after the bodies of earlier parts.
    Request {
        id: u32,
        body: &'a [u8],
    },
    RequestPart {
        id: u32,
        body: &'a [u8],
    },
    Response {
        id: u32,
        body: &'a [u8],
    },
    /// Zone to agent.
    Open {
        stream: u32,
        target: Target,
    },
    Opened {
        stream: u32,
    },
    Refused {
        stream: u32,
        refusal: Refusal,
    },
    Data {
        stream: u32,
        bytes: &'a [u8],
    },
    /// The reader has room for so many bytes more.
    Credit {
        stream: u32,
        amount: u32,
    },
    /// No more data comes from this side.
    Finish {
        stream: u32,
    },
    /// This side neither sends nor reads any more.
    Reset {
        stream: u32,
    },
    Detached,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("{length} bytes are no frame header")]
    ShortHeader { length: usize },
    #[error("a frame of {wanted} payload bytes has {present}")]
    ShortPayload { wanted: usize, present: usize },
    #[error("frame kind {0} is unknown")]
    UnknownKind(u8),
    #[error("a frame of kind {kind} can't have a payload of {length} bytes")]
    BadPayload { kind: u8, length: usize },
    #[error("refusal {0} is unknown")]
    UnknownRefusal(u8),
}

impl<'a> Frame<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { epoch } => put(out, HELLO, 0, &[&epoch.to_be_bytes()]),
            Self::Welcome { epoch, hello } => {
                put(out, WELCOME, 0, &[&epoch.to_be_bytes(), hello]);
            }
            Self::Request { id, body } => put(out, REQUEST, id, &[body]),
            Self::RequestPart { id, body } => put(out, REQUEST_PART, id, &[body]),
            Self::Response { id, body } => put(out, RESPONSE, id, &[body]),
            Self::Open { stream, target } => {
                let port = match target {
                    Target::Agent => 0,
                    Target::Port(port) => port,
                };
                put(out, OPEN, stream, &[&port.to_be_bytes()]);
            }
            Self::Opened { stream } => put(out, OPENED, stream, &[]),
            Self::Refused { stream, refusal } => {
                let code = match refusal {
                    Refusal::PortClosed => 1,
                    Refusal::TooMany => 2,
                };
                put(out, REFUSED, stream, &[&[code]]);
            }
            Self::Data { stream, bytes } => put(out, DATA, stream, &[bytes]),
            Self::Credit { stream, amount } => put(out, CREDIT, stream, &[&amount.to_be_bytes()]),
            Self::Finish { stream } => put(out, FINISH, stream, &[]),
            Self::Reset { stream } => put(out, RESET, stream, &[]),
            Self::Detached => put(out, DETACHED, 0, &[]),
        }
    }

    /// The first frame of a message, and what follows it.
    pub(crate) fn parse(message: &'a [u8]) -> Result<(Self, &'a [u8]), FrameError> {
        let Some((header, rest)) = message.split_first_chunk::<HEADER>() else {
            return Err(FrameError::ShortHeader { length: message.len() });
        };
        let [kind, s0, s1, s2, s3, l0, l1, l2, l3] = *header;
        let id = u32::from_be_bytes([s0, s1, s2, s3]);
        let wanted = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(wanted) else {
            return Err(FrameError::ShortPayload { wanted, present: rest.len() });
        };
        Ok((Self::from_parts(kind, id, payload)?, rest))
    }

    fn from_parts(kind: u8, id: u32, payload: &'a [u8]) -> Result<Self, FrameError> {
        let bad = || FrameError::BadPayload { kind, length: payload.len() };
        let empty = || if payload.is_empty() { Ok(()) } else { Err(bad()) };
        Ok(match kind {
            HELLO => Self::Hello { epoch: u64::from_be_bytes(exactly(payload).ok_or_else(bad)?) },
            WELCOME => {
                let (epoch, hello) = payload.split_first_chunk::<8>().ok_or_else(bad)?;
                Self::Welcome { epoch: u64::from_be_bytes(*epoch), hello }
            }
            REQUEST => Self::Request { id, body: payload },
            REQUEST_PART => Self::RequestPart { id, body: payload },
            RESPONSE => Self::Response { id, body: payload },
            OPEN => {
                let target = match u16::from_be_bytes(exactly(payload).ok_or_else(bad)?) {
                    0 => Target::Agent,
                    port => Target::Port(port),
                };
                Self::Open { stream: id, target }
            }
            OPENED => empty().map(|()| Self::Opened { stream: id })?,
            REFUSED => {
                let refusal = match exactly(payload).ok_or_else(bad)? {
                    [1] => Refusal::PortClosed,
                    [2] => Refusal::TooMany,
                    [other] => return Err(FrameError::UnknownRefusal(other)),
                };
                Self::Refused { stream: id, refusal }
            }
            DATA if payload.is_empty() => return Err(bad()),
            DATA => Self::Data { stream: id, bytes: payload },
            CREDIT => {
                let amount = u32::from_be_bytes(exactly(payload).ok_or_else(bad)?);
                Self::Credit { stream: id, amount }
            }
            FINISH => empty().map(|()| Self::Finish { stream: id })?,
            RESET => empty().map(|()| Self::Reset { stream: id })?,
            DETACHED => empty().map(|()| Self::Detached)?,
            unknown => return Err(FrameError::UnknownKind(unknown)),
        })
    }
}

/// The same frames in messages of at most `limit` bytes, for a socket that refuses longer ones.
/// Only data can be cut; another frame that is too long stays alone.
pub(crate) fn split(message: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, FrameError> {
    let limit = limit.max(2 * HEADER);
    let mut messages = Vec::new();
    let mut current = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (frame, after) = Frame::parse(rest)?;
        let pieces = if let Frame::Data { stream, bytes } = frame {
            let piece = |bytes| encoded(&Frame::Data { stream, bytes });
            bytes.chunks(limit - HEADER).map(piece).collect()
        } else {
            vec![encoded(&frame)]
        };
        rest = after;
        for piece in pieces {
            if !current.is_empty() && current.len() + piece.len() > limit {
                messages.push(std::mem::take(&mut current));
            }
            current.extend_from_slice(&piece);
        }
    }
    if !current.is_empty() {
        messages.push(current);
    }
    Ok(messages)
}

pub(crate) fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn exactly<const N: usize>(payload: &[u8]) -> Option<[u8; N]> {
    payload.try_into().ok()
}

fn put(out: &mut Vec<u8>, kind: u8, id: u32, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    #[expect(clippy::cast_possible_truncation, reason = "a frame is never longer than a message")]
    let length = length as u32;
    out.push(kind);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    for part in payload {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<(Frame<'static>, &'static [u8])> {
        vec![
            (Frame::Hello { epoch: 258 }, b"\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\x01\x02"),
            (
                Frame::Welcome { epoch: 1, hello: b"{}" },
                b"\x02\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x01{}",
            ),
            (Frame::Request { id: 7, body: b"x" }, b"\x03\0\0\0\x07\0\0\0\x01x"),
            (Frame::RequestPart { id: 7, body: b"x" }, b"\x04\0\0\0\x07\0\0\0\x01x"),
            (Frame::Response { id: 7, body: b"" }, b"\x05\0\0\0\x07\0\0\0\0"),
            (Frame::Open { stream: 1, target: Target::Agent }, b"\x06\0\0\0\x01\0\0\0\x02\0\0"),
            (
                Frame::Open { stream: 1, target: Target::Port(8080) },
                b"\x06\0\0\0\x01\0\0\0\x02\x1f\x90",
            ),
            (Frame::Opened { stream: 1 }, b"\x07\0\0\0\x01\0\0\0\0"),
            (
                Frame::Refused { stream: 1, refusal: Refusal::PortClosed },
                b"\x08\0\0\0\x01\0\0\0\x01\x01",
            ),
            (
                Frame::Refused { stream: 1, refusal: Refusal::TooMany },
                b"\x08\0\0\0\x01\0\0\0\x01\x02",
            ),
            (Frame::Data { stream: 256, bytes: b"abc" }, b"\x09\0\0\x01\0\0\0\0\x03abc"),
            (Frame::Credit { stream: 1, amount: 65536 }, b"\x0a\0\0\0\x01\0\0\0\x04\0\x01\0\0"),
            (Frame::Finish { stream: 1 }, b"\x0b\0\0\0\x01\0\0\0\0"),
            (Frame::Reset { stream: 1 }, b"\x0c\0\0\0\x01\0\0\0\0"),
            (Frame::Detached, &DETACHED_MESSAGE),
        ]
    }

    #[test]
    fn every_kind_has_these_bytes_and_comes_back() {
        for (frame, bytes) in samples() {
            assert_eq!(encoded(&frame), bytes, "{frame:?}");
            assert_eq!(Frame::parse(bytes), Ok((frame, &[][..])));
        }
    }

    #[test]
    fn a_frame_cut_anywhere_is_refused() {
        for (_, bytes) in samples() {
            for cut in 0..bytes.len() {
                assert!(Frame::parse(&bytes[..cut]).is_err(), "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn malformed_frames_are_refused_by_kind() {
        use FrameError as E;
        for (why, bytes, expected) in [
            ("no kind 0", &b"\0\0\0\0\0\0\0\0\0"[..], E::UnknownKind(0)),
            ("no kind 14", b"\x0e\0\0\0\0\0\0\0\0", E::UnknownKind(14)),
            ("hello needs 8", b"\x01\0\0\0\0\0\0\0\x01x", E::BadPayload { kind: 1, length: 1 }),
            ("welcome needs 8", b"\x02\0\0\0\0\0\0\0\x01x", E::BadPayload { kind: 2, length: 1 }),
            ("open needs 2", b"\x06\0\0\0\0\0\0\0\x01x", E::BadPayload { kind: 6, length: 1 }),
            ("finish is bare", b"\x0b\0\0\0\0\0\0\0\x01x", E::BadPayload { kind: 11, length: 1 }),
            ("data isn't bare", b"\x09\0\0\0\x01\0\0\0\0", E::BadPayload { kind: 9, length: 0 }),
            ("refusal 3", b"\x08\0\0\0\x01\0\0\0\x01\x03", E::UnknownRefusal(3)),
            (
                "a huge length",
                b"\x09\0\0\0\x01\xff\xff\xff\xffx",
                E::ShortPayload { wanted: 0xffff_ffff, present: 1 },
            ),
        ] {
            assert_eq!(Frame::parse(bytes), Err(expected), "{why}");
        }
    }

    fn data_of(messages: &[Vec<u8>]) -> (Vec<u8>, usize) {
        let (mut data, mut others) = (Vec::new(), 0);
        for message in messages {
            let mut rest = &message[..];
            while !rest.is_empty() {
                let (frame, after) = Frame::parse(rest).unwrap();
                rest = after;
                if let Frame::Data { bytes, .. } = frame {
                    data.extend_from_slice(bytes);
                } else {
                    others += 1;
                }
            }
        }
        (data, others)
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Ok((frame, after)) = Frame::parse(rest) {
                prop_assert_eq!(encoded(&frame), &rest[..rest.len() - after.len()]);
                rest = after;
                if rest.is_empty() { break; }
            }
        }

        #[test]
        fn a_split_message_says_the_same(
            sizes in prop::collection::vec(1usize..9000, 1..8),
            limit in 100usize..5000,
        ) {
            let mut message = Vec::new();
            for (stream, size) in (1..).zip(&sizes) {
                Frame::Data { stream, bytes: &vec![7; *size] }.encode(&mut message);
                Frame::Finish { stream }.encode(&mut message);
            }
            let parts = split(&message, limit).unwrap();
            prop_assert!(parts.iter().all(|part| part.len() <= limit));
            prop_assert_eq!(data_of(&parts), data_of(&[message]));
        }
    }
}
