//! What a keeper hands to the program that it becomes: a line with the format's number, then JSON.
//! Descriptors are numbers, which stay what they are in the process.

use std::{collections::BTreeSet, os::fd::RawFd, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::protocol::{Identity, Label};

/// Grows when a field changes its meaning or one is needed that older programs don't write.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) met: bool,
    pub(crate) held: Vec<Held>,
    /// Started, and not yet reaped.
    pub(crate) commands: Vec<i32>,
    pub(crate) starting: Vec<Launching>,
    pub(crate) detached: Vec<u8>,
    pub(crate) untold: Vec<String>,
    pub(crate) listener: RawFd,
    pub(crate) lock: RawFd,
    pub(crate) connections: u64,
    pub(crate) connection: Option<Connection>,
    /// The call that is answered by having read this.
    pub(crate) call: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    #[serde(flatten)]
    pub(crate) label: Label,
    pub(crate) channel: RawFd,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launching {
    pub(crate) pid: i32,
    pub(crate) program: PathBuf,
    pub(crate) cgroups: Vec<PathBuf>,
    pub(crate) report: RawFd,
    pub(crate) call: u64,
    pub(crate) connection: u64,
    pub(crate) label: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) socket: RawFd,
    pub(crate) zone: Zone,
    /// Not yet sent, oldest first.
    pub(crate) outbox: Vec<Unsent>,
}

/// Who is at the other end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Zone {
    Silent,
    Greeted,
    /// Speaks another protocol.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unsent {
    pub(crate) message: String,
    pub(crate) descriptors: Vec<RawFd>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("it does not begin with a number")]
    NoFormat,
    #[error("it has format {0}, and this program reads {FORMAT}")]
    Format(u32),
    #[error("it makes no sense")]
    Words(#[from] serde_json::Error),
}

/// Whether this program takes over what another writes in this format.
pub(crate) fn reads(format: u32) -> bool {
    format == FORMAT
}

impl State {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StateError> {
        let mut text = format!("{FORMAT}\n").into_bytes();
        serde_json::to_writer(&mut text, self)?;
        Ok(text)
    }

    pub(crate) fn decode(text: &[u8]) -> Result<Self, StateError> {
        let line = text.iter().position(|byte| *byte == b'\n').ok_or(StateError::NoFormat)?;
        let (number, rest) = text.split_at(line);
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        match number.ok_or(StateError::NoFormat)? {
            format if reads(format) => Ok(serde_json::from_slice(rest)?),
            format => Err(StateError::Format(format)),
        }
    }

    /// All that must stay open.
    pub(crate) fn descriptors(&self) -> BTreeSet<RawFd> {
        let unsent = self.connection.iter().flat_map(|connection| &connection.outbox);
        [self.listener, self.lock]
            .into_iter()
            .chain(self.held.iter().map(|held| held.channel))
            .chain(self.starting.iter().map(|launching| launching.report))
            .chain(self.connection.iter().map(|connection| connection.socket))
            .chain(unsent.flat_map(|unsent| unsent.descriptors.iter().copied()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the first program that could do this wrote it.
    const GOLDEN_1: &str = concat!(
        "1\n",
        r#"{"identity":{"boot_id":"b","epoch":4},"met":true,"#,
        r#""held":[{"label":"a","meta":"about a","channel":7}],"commands":[41,42],"#,
        r#""starting":[{"pid":42,"program":"/bin/x","cgroups":["/c"],"report":8,"call":5,"#,
        r#""connection":2,"label":"a"}],"detached":[13],"untold":["a"],"listener":3,"lock":4,"#,
        r#""connections":2,"connection":{"socket":5,"zone":"greeted","#,
        r#""outbox":[{"message":"{}","descriptors":[7,9]}]},"call":6}"#,
    );

    fn full() -> State {
        State {
            identity: Identity { boot_id: "b".into(), epoch: 4 },
            met: true,
            held: vec![Held {
                label: Label { label: "a".into(), meta: "about a".into() },
                channel: 7,
            }],
            commands: vec![41, 42],
            starting: vec![Launching {
                pid: 42,
                program: "/bin/x".into(),
                cgroups: vec!["/c".into()],
                report: 8,
                call: 5,
                connection: 2,
                label: Some("a".into()),
            }],
            detached: vec![13],
            untold: vec!["a".into()],
            listener: 3,
            lock: 4,
            connections: 2,
            connection: Some(Connection {
                socket: 5,
                zone: Zone::Greeted,
                outbox: vec![Unsent { message: "{}".into(), descriptors: vec![7, 9] }],
            }),
            call: 6,
        }
    }

    #[test]
    fn every_format_that_was_ever_written_is_read() {
        assert_eq!(String::from_utf8(full().encode().unwrap()).unwrap(), GOLDEN_1);
        assert_eq!(State::decode(GOLDEN_1.as_bytes()).unwrap(), full());
    }

    #[test]
    fn what_is_of_another_format_is_not_guessed_at() {
        for (text, expected) in [
            ("", "it does not begin with a number"),
            ("{}", "it does not begin with a number"),
            ("x\n{}", "it does not begin with a number"),
            ("2\n{}", "it has format 2, and this program reads 1"),
            ("1\n{}", "it makes no sense"),
        ] {
            assert_eq!(State::decode(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn every_descriptor_stays_open_once() {
        assert_eq!(full().descriptors(), BTreeSet::from([3, 4, 5, 7, 8, 9]));
    }
}
