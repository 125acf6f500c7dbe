//! The Connect protocol: error codes, codecs, and the envelope of streamed messages.
//! Pure; both the agent and its clients use it.

use std::{fmt, str::FromStr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Length of the flags and the size before each streamed message.
pub const HEADER: usize = 5;
const COMPRESSED: u8 = 0b01;
const END: u8 = 0b10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    Canceled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

const CODES: [(Code, &str, u16); 16] = [
    (Code::Canceled, "canceled", 499),
    (Code::Unknown, "unknown", 500),
    (Code::InvalidArgument, "invalid_argument", 400),
    (Code::DeadlineExceeded, "deadline_exceeded", 504),
    (Code::NotFound, "not_found", 404),
    (Code::AlreadyExists, "already_exists", 409),
    (Code::PermissionDenied, "permission_denied", 403),
    (Code::ResourceExhausted, "resource_exhausted", 429),
    (Code::FailedPrecondition, "failed_precondition", 400),
    (Code::Aborted, "aborted", 409),
    (Code::OutOfRange, "out_of_range", 400),
    (Code::Unimplemented, "unimplemented", 501),
    (Code::Internal, "internal", 500),
    (Code::Unavailable, "unavailable", 503),
    (Code::DataLoss, "data_loss", 500),
    (Code::Unauthenticated, "unauthenticated", 401),
];

impl Code {
    pub fn name(self) -> &'static str {
        CODES.iter().find(|(code, ..)| *code == self).map_or("unknown", |(_, name, _)| name)
    }

    /// The status of a unary answer that fails with this code.
    pub fn http_status(self) -> u16 {
        CODES.iter().find(|(code, ..)| *code == self).map_or(500, |(.., status)| *status)
    }

    /// What a client makes of an answer whose body is no Connect error.
    pub fn of_http_status(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502..=504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(name: &str) -> Result<Self, UnknownCode> {
        let found = CODES.iter().find(|(_, known, _)| *known == name);
        found.map(|(code, ..)| *code).ok_or_else(|| UnknownCode(name.into()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no Connect code")]
pub struct UnknownCode(String);

/// A failed call, as both ends see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    pub code: Code,
    #[serde(default)]
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The body of a unary answer.
    pub fn to_json(&self) -> Bytes {
        to_json(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Json,
    Proto,
}

/// What a `Content-Type` says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub codec: Codec,
    pub streamed: bool,
}

impl Form {
    pub fn of_content_type(value: &str) -> Option<Self> {
        let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (codec, streamed) = match essence.as_str() {
            "application/json" => (Codec::Json, false),
            "application/proto" => (Codec::Proto, false),
            "application/connect+json" => (Codec::Json, true),
            "application/connect+proto" => (Codec::Proto, true),
            _ => return None,
        };
        Some(Self { codec, streamed })
    }

    pub fn content_type(self) -> &'static str {
        match (self.codec, self.streamed) {
            (Codec::Json, false) => "application/json",
            (Codec::Proto, false) => "application/proto",
            (Codec::Json, true) => "application/connect+json",
            (Codec::Proto, true) => "application/connect+proto",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("the message is not valid JSON for its type: {0}")]
    Json(serde_json::Error),
    #[error("the message is not valid protobuf for its type: {0}")]
    Proto(prost::DecodeError),
}

impl Codec {
    pub fn decode<M: prost::Message + Default + DeserializeOwned>(
        self,
        bytes: &Bytes,
    ) -> Result<M, DecodeError> {
        match self {
            // Some clients send no body where all fields have their defaults.
            Self::Json if bytes.is_empty() => Ok(M::default()),
            Self::Json => serde_json::from_slice(bytes).map_err(DecodeError::Json),
            Self::Proto => M::decode(bytes.clone()).map_err(DecodeError::Proto),
        }
    }

    pub fn encode<M: prost::Message + Serialize>(self, message: &M) -> Bytes {
        match self {
            Self::Json => to_json(message),
            Self::Proto => message.encode_to_vec().into(),
        }
    }

    /// One message of a stream with its envelope.
    pub fn envelop<M: prost::Message + Serialize>(self, message: &M) -> Bytes {
        let mut out = Vec::with_capacity(HEADER + message.encoded_len() * 3 / 2);
        out.extend_from_slice(&[0; HEADER]);
        match self {
            Self::Json => write_json(message, &mut out),
            Self::Proto => {
                // A Vec grows; only fixed buffers can be too small.
                if message.encode(&mut out).is_err() {
                    out.truncate(HEADER);
                }
            }
        }
        seal(&mut out);
        out.into()
    }
}

/// The last envelope of a stream.
pub fn end_of_stream(outcome: Result<(), &Failure>) -> Bytes {
    #[derive(Serialize)]
    struct End<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Failure>,
    }
    let payload = to_json(&End { error: outcome.err() });
    envelope(END, &payload)
}

fn envelope(flags: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER + payload.len());
    out.put_u8(flags);
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_slice(payload);
    out.freeze()
}

fn seal(out: &mut [u8]) {
    let length = u32::try_from(out.len() - HEADER).unwrap_or(u32::MAX);
    if let Some(header) = out.get_mut(1..HEADER) {
        header.copy_from_slice(&length.to_be_bytes());
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    let mut out = Vec::new();
    write_json(value, &mut out);
    out.into()
}

#[expect(clippy::expect_used, reason = "messages have string keys and a Vec takes all bytes")]
fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("messages have string keys and a Vec takes all bytes");
}

/// Something that came in on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    Message(Bytes),
    /// Nothing follows.
    End(Result<(), Failure>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("the message is compressed, and no compression was agreed on")]
    Compressed,
    #[error("a message of {length} bytes is larger than the limit of {limit}")]
    TooLarge { length: usize, limit: usize },
    #[error("the end of the stream is not JSON")]
    BadEnd,
    #[error("the stream ended within a message")]
    Cut,
}

/// Takes bytes as they come and gives whole envelopes.
#[derive(Debug)]
pub struct Envelopes {
    buffer: BytesMut,
    limit: usize,
}

impl Envelopes {
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// `None`: more bytes are needed.
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end")]
    pub fn next(&mut self) -> Option<Result<Envelope, EnvelopeError>> {
        let (&[flags, a, b, c, d], _) = self.buffer.split_first_chunk::<HEADER>()?;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > self.limit {
            return Some(Err(EnvelopeError::TooLarge { length, limit: self.limit }));
        }
        if flags & COMPRESSED != 0 {
            return Some(Err(EnvelopeError::Compressed));
        }
        if self.buffer.len() < HEADER + length {
            return None;
        }
        self.buffer.advance(HEADER);
        let payload = self.buffer.split_to(length).freeze();
        if flags & END == 0 {
            return Some(Ok(Envelope::Message(payload)));
        }
        Some(parse_end(&payload).map(Envelope::End))
    }

    /// The bytes have ended.
    pub fn finish(&self) -> Result<(), EnvelopeError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(EnvelopeError::Cut) }
    }
}

fn parse_end(payload: &[u8]) -> Result<Result<(), Failure>, EnvelopeError> {
    #[derive(Deserialize)]
    struct End {
        error: Option<Failure>,
    }
    // A stream may end with an empty payload.
    if payload.is_empty() {
        return Ok(Ok(()));
    }
    let end: End = serde_json::from_slice(payload).or(Err(EnvelopeError::BadEnd))?;
    Ok(end.error.map_or(Ok(()), Err))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::process::{ProcessEvent, StartResponse, process_event};

    #[test]
    fn each_code_has_its_name_and_status() {
        for (code, name, status) in CODES {
            assert_eq!(code.name(), name);
            assert_eq!(code.http_status(), status);
            assert_eq!(name.parse(), Ok(code));
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{name}\""));
        }
        assert!("no_such_code".parse::<Code>().is_err());
    }

    #[test]
    fn a_content_type_says_codec_and_shape() {
        for (value, form) in [
            ("application/json", Some((Codec::Json, false))),
            ("application/json; charset=utf-8", Some((Codec::Json, false))),
            ("Application/Proto", Some((Codec::Proto, false))),
            ("application/connect+json", Some((Codec::Json, true))),
            ("application/connect+proto", Some((Codec::Proto, true))),
            ("application/grpc", None),
            ("", None),
        ] {
            let form = form.map(|(codec, streamed)| Form { codec, streamed });
            assert_eq!(Form::of_content_type(value), form, "{value}");
        }
    }

    #[test]
    fn the_end_of_a_stream_has_these_bytes() {
        assert_eq!(&end_of_stream(Ok(()))[..], b"\x02\0\0\0\x02{}");
        let failure = Failure::new(Code::NotFound, "process with pid 7 not found");
        assert_eq!(
            &end_of_stream(Err(&failure))[..],
            &b"\x02\0\0\0\x47{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 7 not found\"}}"[..]
        );
    }

    fn start(pid: u32) -> StartResponse {
        let event = process_event::Event::Start(process_event::StartEvent { pid });
        StartResponse { event: Some(ProcessEvent { event: Some(event) }) }
    }

    #[test]
    fn a_message_has_these_bytes_in_each_codec() {
        assert_eq!(
            &Codec::Json.envelop(&start(7))[..],
            b"\0\0\0\0\x1d{\"event\":{\"start\":{\"pid\":7}}}"
        );
        assert_eq!(&Codec::Proto.envelop(&start(7))[..], b"\0\0\0\0\x06\x0a\x04\x0a\x02\x08\x07");
    }

    #[test]
    fn what_is_wrong_with_a_stream_is_told_apart() {
        for (bytes, wanted) in [
            (&b"\x01\0\0\0\x01x"[..], EnvelopeError::Compressed),
            (b"\0\xff\xff\xff\xff", EnvelopeError::TooLarge { length: 0xffff_ffff, limit: 16 }),
            (b"\x02\0\0\0\x01x", EnvelopeError::BadEnd),
        ] {
            let mut envelopes = Envelopes::new(16);
            envelopes.push(bytes);
            assert_eq!(envelopes.next(), Some(Err(wanted)));
        }
        let mut cut = Envelopes::new(16);
        cut.push(b"\0\0\0\0\x02x");
        assert_eq!(cut.next(), None);
        assert_eq!(cut.finish(), Err(EnvelopeError::Cut));
    }

    proptest! {
        #[test]
        fn messages_come_back_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            piece in 1usize..40,
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                stream.extend_from_slice(&envelope(0, message));
            }
            stream.extend_from_slice(&end_of_stream(Ok(())));
            let (mut envelopes, mut seen) = (Envelopes::new(64), Vec::new());
            for bytes in stream.chunks(piece) {
                envelopes.push(bytes);
                while let Some(envelope) = envelopes.next() {
                    seen.push(envelope.unwrap());
                }
            }
            envelopes.finish().unwrap();
            prop_assert_eq!(seen.pop(), Some(Envelope::End(Ok(()))));
            let sent: Vec<_> = messages.into_iter().map(|m| Envelope::Message(m.into())).collect();
            prop_assert_eq!(seen, sent);
        }
    }
}
