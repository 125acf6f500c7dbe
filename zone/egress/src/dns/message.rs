//! As much of a DNS message as a forwarder must understand (RFC 1035, 4.1).

use std::net::Ipv4Addr;

use sandboxo_zone_protocol::HostName;
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QTYPE, Question, TYPE,
    rdata::{A, RData},
};

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: u8 = 63;

/// What a client asks: a whole message with one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    bytes: Vec<u8>,
    question_end: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Query(Query),
    /// To be answered with this.
    Refused(Vec<u8>),
    /// Not even an answer can be made of it.
    Nonsense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Failure {
    /// There is such a name, but nothing of what is asked.
    Nothing = 0,
    Format = 1,
    Server = 2,
    NoSuchName = 3,
    NotImplemented = 4,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Also that there is no such name.
    Answer,
    /// This resolver can't or won't; another one may.
    TryAnother,
}

impl Asked {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Self::Nonsense };
        if header[2] & 0x80 != 0 {
            return Self::Nonsense;
        }
        if header[2] & 0x78 != 0 {
            return Self::Refused(fail(header, &[], Failure::NotImplemented));
        }
        match (count(header), question_end(bytes)) {
            (1, Some(question_end)) => Self::Query(Query { bytes: bytes.to_vec(), question_end }),
            _ => Self::Refused(fail(header, &[], Failure::Format)),
        }
    }
}

impl Query {
    pub(super) fn id(&self) -> [u8; 2] {
        self.bytes.first_chunk().copied().unwrap_or_default()
    }

    pub(super) fn with_id(&self, id: [u8; 2]) -> Vec<u8> {
        with_id(self.bytes.clone(), id)
    }

    /// `None`: it isn't the answer to this question under this id.
    pub(super) fn judge(&self, id: [u8; 2], answer: &[u8]) -> Option<Verdict> {
        let header = answer.first_chunk::<HEADER>()?;
        if answer.first_chunk::<2>() != Some(&id) || header[2] & 0x80 == 0 {
            return None;
        }
        let verdict = match header[3] & 0x0f {
            // no error; no such name
            0 | 3 => Verdict::Answer,
            _ => Verdict::TryAnother,
        };
        match count(header) {
            // An error may come without the question.
            0 if verdict == Verdict::TryAnother => Some(verdict),
            1 => answer
                .get(HEADER..self.question_end)
                .is_some_and(|question| question.eq_ignore_ascii_case(self.question()))
                .then_some(verdict),
            _ => None,
        }
    }

    pub(super) fn fail(&self, failure: Failure) -> Vec<u8> {
        let header = self.bytes.first_chunk().copied().unwrap_or_default();
        fail(&header, self.question(), failure)
    }

    /// The type that is asked for, and the name in it that a host can have.
    pub(super) fn subject(&self) -> (QTYPE, Option<HostName>) {
        let Ok(packet) = Packet::parse(&self.bytes) else { return (QTYPE::ANY, None) };
        let asked = packet.questions.first();
        let name = asked.and_then(|it| it.qname.to_string().parse().ok());
        (asked.map_or(QTYPE::ANY, |it| it.qtype), name)
    }

    fn question(&self) -> &[u8] {
        self.bytes.get(HEADER..self.question_end).unwrap_or_default()
    }
}

/// All that is ever read of a message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read(bytes: &[u8]) {
    addresses(bytes);
    if let Asked::Query(query) = Asked::read(bytes) {
        query.subject();
        query.judge(query.id(), bytes);
    }
}

/// A question for a host's IPv4 addresses.
pub(super) fn question(name: &HostName) -> Option<Query> {
    let mut packet = Packet::new_query(0);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name.as_str()).ok()?;
    packet.questions.push(Question::new(name, TYPE::A.into(), CLASS::IN.into(), false));
    match Asked::read(&packet.build_bytes_vec().ok()?) {
        Asked::Query(query) => Some(query),
        Asked::Refused(_) | Asked::Nonsense => None,
    }
}

/// The IPv4 addresses in an answer, and whether there was no room for all of them.
pub(super) fn addresses(answer: &[u8]) -> (Vec<Ipv4Addr>, bool) {
    let Ok(packet) = Packet::parse(answer) else { return (Vec::new(), true) };
    let addresses = packet.answers.iter().filter_map(|record| {
        let RData::A(A { address }) = record.rdata else { return None };
        Some(address.into())
    });
    (addresses.collect(), packet.has_flags(PacketFlag::TRUNCATION))
}

pub(super) fn with_id(mut message: Vec<u8>, id: [u8; 2]) -> Vec<u8> {
    if let Some(place) = message.first_chunk_mut() {
        *place = id;
    }
    message
}

fn count(header: &[u8; HEADER]) -> u16 {
    u16::from_be_bytes([header[4], header[5]])
}

/// Where the first question ends. A name in a question is never compressed: nothing is before it.
fn question_end(bytes: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        let length = *bytes.get(at)?;
        at += 1;
        if length == 0 {
            break;
        }
        if length > LONGEST_LABEL {
            return None;
        }
        at += usize::from(length);
        // The zero that ends it counts.
        if at - HEADER + 1 > LONGEST_NAME {
            return None;
        }
    }
    // type and class
    let end = at + 4;
    (bytes.len() >= end).then_some(end)
}

fn fail(header: &[u8; HEADER], question: &[u8], failure: Failure) -> Vec<u8> {
    let questions = u8::from(!question.is_empty());
    // The operation and "recursion desired" as asked; "recursion available".
    let flags = [0x80 | (header[2] & 0x79), 0x80 | failure as u8];
    let mut message = Vec::with_capacity(HEADER + question.len());
    message.extend([header[0], header[1], flags[0], flags[1], 0, questions, 0, 0, 0, 0, 0, 0]);
    message.extend(question);
    message
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A question for the address of a name.
    pub(in crate::dns) fn ask(id: [u8; 2], name: &str) -> Vec<u8> {
        let mut message = vec![id[0], id[1], 0x01, 0x20, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, 1, 0, 1]);
        message
    }

    /// The answer to it, with as many bytes of addresses as asked for.
    pub(in crate::dns) fn answer(asked: &[u8], rcode: u8, size: usize) -> Vec<u8> {
        let mut message = asked.to_vec();
        message[2] |= 0x80;
        message[3] = 0x80 | rcode;
        message.resize(message.len() + size, 7);
        message
    }

    fn query(bytes: &[u8]) -> Query {
        let Asked::Query(query) = Asked::read(bytes) else { panic!("{bytes:?}") };
        query
    }

    #[test]
    fn what_is_a_question() {
        let good = ask([1, 2], "example.com");
        assert_eq!(query(&good).id(), [1, 2]);
        // An additional record (EDNS) after the question stays.
        let mut more = good.clone();
        more[11] = 1;
        more.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        assert_eq!(query(&more).with_id([9, 9])[2..], more[2..]);

        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Asked::read(&bytes)
        };
        let refused = |flags: u8, rcode: u8| {
            Asked::Refused(vec![1, 2, 0x80 | flags, 0x80 | rcode, 0, 0, 0, 0, 0, 0, 0, 0])
        };
        for (why, read, expected) in [
            ("empty", Asked::read(&[]), Asked::Nonsense),
            ("half a header", Asked::read(&good[..11]), Asked::Nonsense),
            ("an answer", changed(2, 0x81), Asked::Nonsense),
            ("a status request", changed(2, 0x11), refused(0x11, 4)),
            ("no question", changed(5, 0), refused(1, 1)),
            ("two questions", changed(5, 2), refused(1, 1)),
            ("cut in the name", Asked::read(&good[..20]), refused(1, 1)),
            ("cut in the class", Asked::read(&good[..good.len() - 1]), refused(1, 1)),
            ("a compressed name", changed(12, 0xc0), refused(1, 1)),
            (
                "a name that is too long",
                Asked::read(&ask([1, 2], &["x"; 128].join("."))),
                refused(1, 1),
            ),
        ] {
            assert_eq!(read, expected, "{why}");
        }
        query(&ask([1, 2], &["x"; 127].join(".")));
    }

    #[test]
    fn what_is_an_answer() {
        let asked = query(&ask([1, 2], "example.com"));
        let sent = asked.with_id([7, 8]);
        let upper = answer(&ask([7, 8], "EXAMPLE.com"), 0, 0);
        let other = answer(&ask([7, 8], "example.org"), 0, 0);
        let mut bare = answer(&sent[..12], 1, 0);
        bare[5] = 0;
        let mut bare_success = bare.clone();
        bare_success[3] = 0x80;
        for (why, bytes, expected) in [
            ("plain", answer(&sent, 0, 16), Some(Verdict::Answer)),
            ("no such name", answer(&sent, 3, 0), Some(Verdict::Answer)),
            ("the resolver failed", answer(&sent, 2, 0), Some(Verdict::TryAnother)),
            ("the resolver won't", answer(&sent, 5, 0), Some(Verdict::TryAnother)),
            ("in other letters", upper, Some(Verdict::Answer)),
            ("an error without the question", bare, Some(Verdict::TryAnother)),
            ("a success without the question", bare_success, None),
            ("to another question", other, None),
            ("under another id", answer(&asked.with_id([7, 9]), 0, 0), None),
            ("a question", sent.clone(), None),
            ("cut", answer(&sent, 0, 0)[..20].to_vec(), None),
        ] {
            assert_eq!(asked.judge([7, 8], &bytes), expected, "{why}");
        }
    }

    #[test]
    fn a_failure_repeats_the_question() {
        let asked = ask([1, 2], "example.com");
        let failed = query(&asked).fail(Failure::Server);
        assert_eq!(failed[..4], [1, 2, 0x81, 0x82]);
        assert_eq!(failed[4..12], [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(failed[12..], asked[12..]);
        assert_eq!(query(&asked).judge([1, 2], &failed), Some(Verdict::TryAnother));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            reply in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            match Asked::read(&bytes) {
                Asked::Query(query) => {
                    prop_assert_eq!(query.with_id(query.id()), bytes);
                    let _: Option<Verdict> = query.judge([0, 0], &reply);
                }
                Asked::Refused(answer) => prop_assert_eq!(&answer[..2], &bytes[..2]),
                Asked::Nonsense => {}
            }
        }

        #[test]
        fn a_changed_question_is_another(at in 12usize..24, to in any::<u8>()) {
            let asked = query(&ask([1, 2], "example.com"));
            let mut bytes = answer(&asked.with_id([1, 2]), 0, 0);
            let same = bytes[at].eq_ignore_ascii_case(&to);
            bytes[at] = to;
            prop_assert_eq!(asked.judge([1, 2], &bytes).is_some(), same);
        }
    }
}
