//! The bytes of keys and rows. A row begins with the number of its format.
//!
//! Within one sandbox keys sort by time; a second tree has them all in the order of time.

use std::collections::BTreeMap;

use sandboxo_model::{Level, LogEntry};
use sandboxo_zone_protocol::{Measured, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Owner;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Log,
    Sample,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Log => b'l',
            Self::Sample => b's',
        }
    }
}

const FORMAT: u8 = 1;

/// What all keys of a sandbox begin with.
pub(crate) fn prefix(kind: Kind, owner: &Owner) -> Vec<u8> {
    let mut key = vec![kind.byte()];
    key.extend_from_slice(format!("{}{}", owner.team, owner.sandbox.label()).as_bytes());
    key
}

/// Time and number, with which a key ends.
const MOMENT: usize = 16;

pub(crate) fn prefix_of(key: &[u8]) -> &[u8] {
    key.split_at(key.len().saturating_sub(MOMENT)).0
}

/// What [`order`] says of the same row.
pub(crate) fn order_of(key: &[u8]) -> &[u8] {
    key.split_at(key.len().saturating_sub(MOMENT)).1
}

/// Sorts as the time does; microseconds, of which a thousand years fit.
pub(crate) fn time(at: Timestamp) -> [u8; 8] {
    u64::try_from(at.as_microsecond()).unwrap_or(0).to_be_bytes()
}

pub(crate) fn time_of(key: &[u8]) -> Option<Timestamp> {
    let micros = u64::from_be_bytes(*key.first_chunk()?);
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

/// `number` tells rows of one moment apart.
pub(crate) fn key(kind: Kind, owner: &Owner, at: Timestamp, number: u64) -> Vec<u8> {
    let mut key = prefix(kind, owner);
    key.extend_from_slice(&time(at));
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Names a row in the order of time.
pub(crate) fn order(at: Timestamp, number: u64) -> [u8; MOMENT] {
    let mut order = [0; MOMENT];
    let (first, second) = order.split_at_mut(8);
    first.copy_from_slice(&time(at));
    second.copy_from_slice(&number.to_be_bytes());
    order
}

/// The size, then the key.
pub(crate) fn ordered(key: &[u8], bytes: u64) -> Vec<u8> {
    let mut value = u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    value.extend_from_slice(key);
    value
}

pub(crate) fn of_ordered(value: &[u8]) -> Option<(u64, &[u8])> {
    let (bytes, key) = value.split_first_chunk()?;
    Some((u64::from(u32::from_be_bytes(*bytes)), key))
}

#[derive(Serialize, Deserialize)]
struct LogRow {
    at: Timestamp,
    level: String,
    logger: String,
    message: String,
    fields: BTreeMap<String, String>,
}

pub(crate) fn of_log(entry: &LogEntry) -> Vec<u8> {
    let LogEntry { at, level, logger, message, fields } = entry;
    let row = LogRow {
        at: *at,
        level: level.name().to_owned(),
        logger: logger.clone(),
        message: message.clone(),
        fields: fields.clone(),
    };
    let mut bytes = vec![FORMAT];
    if serde_json::to_writer(&mut bytes, &row).is_err() {
        // Its keys are texts, and a Vec takes all bytes; an unreadable row would be passed over.
    }
    bytes
}

pub(crate) fn to_log(bytes: &[u8]) -> Option<LogEntry> {
    let (&FORMAT, json) = bytes.split_first()? else { return None };
    let LogRow { at, level, logger, message, fields } = serde_json::from_slice(json).ok()?;
    Some(LogEntry { at, level: level.parse::<Level>().ok()?, logger, message, fields })
}

/// A sandbox has one every five seconds, so they are short.
pub(crate) fn of_sample(sample: &Measured) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&time(sample.at));
    bytes.extend_from_slice(&sample.cpu_used_percent.to_be_bytes());
    for number in [
        sample.memory_used_bytes,
        sample.memory_total_bytes,
        sample.memory_cache_bytes,
        sample.disk_used_bytes,
        sample.disk_total_bytes,
    ] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

pub(crate) fn to_sample(bytes: &[u8]) -> Option<Measured> {
    let (&FORMAT, rest) = bytes.split_first()? else { return None };
    let (_, numbers) = rest.split_first_chunk::<8>()?;
    let (cpu, mut numbers) = numbers.split_first_chunk::<4>()?;
    let mut next = || {
        let (number, rest) = numbers.split_first_chunk::<8>()?;
        numbers = rest;
        Some(u64::from_be_bytes(*number))
    };
    Some(Measured {
        at: time_of(rest)?,
        cpu_used_percent: f32::from_be_bytes(*cpu),
        memory_used_bytes: next()?,
        memory_total_bytes: next()?,
        memory_cache_bytes: next()?,
        disk_used_bytes: next()?,
        disk_total_bytes: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            team: "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse().unwrap(),
            sandbox: "sbx_loc_0123456789abcdefgk7q".parse().unwrap(),
        }
    }

    fn at() -> Timestamp {
        "2026-01-02T03:04:05.678901Z".parse().unwrap()
    }

    /// Bytes that were written once are read for ever.
    #[test]
    fn a_log_row_has_these_bytes() {
        let entry = LogEntry {
            at: at(),
            level: Level::Warn,
            logger: "sandbox".into(),
            message: "ended".into(),
            fields: [("reason".to_owned(), "crashed".to_owned())].into(),
        };
        let bytes = b"\x01{\"at\":\"2026-01-02T03:04:05.678901Z\",\"level\":\"warn\",\
            \"logger\":\"sandbox\",\"message\":\"ended\",\"fields\":{\"reason\":\"crashed\"}}";
        assert_eq!(String::from_utf8_lossy(&of_log(&entry)), String::from_utf8_lossy(bytes));
        assert_eq!(to_log(bytes), Some(entry));
        assert_eq!(to_log(b"\x02{}"), None);
        assert_eq!(to_log(b""), None);
    }

    #[test]
    fn a_sample_has_these_bytes() {
        let sample = Measured {
            at: at(),
            cpu_used_percent: 1.5,
            memory_used_bytes: 1,
            memory_total_bytes: 2,
            memory_cache_bytes: 3,
            disk_used_bytes: 4,
            disk_total_bytes: 5,
        };
        let bytes = b"\x01\x00\x06\x47\x5e\xf6\x57\x4f\x35\x3f\xc0\0\0\
            \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05";
        assert_eq!(of_sample(&sample), bytes);
        assert_eq!(to_sample(bytes), Some(sample));
        assert_eq!(to_sample(&bytes[..20]), None);
    }

    #[test]
    fn keys_sort_by_time_within_a_sandbox() {
        let later = Timestamp::from_microsecond(at().as_microsecond() + 1).unwrap();
        let keys = [
            key(Kind::Log, &owner(), Timestamp::UNIX_EPOCH, 9),
            key(Kind::Log, &owner(), at(), 1),
            key(Kind::Log, &owner(), at(), 2),
            key(Kind::Log, &owner(), later, 0),
            key(Kind::Sample, &owner(), at(), 0),
        ];
        assert!(keys.is_sorted());
        assert!(keys[..4].iter().all(|key| key.starts_with(&prefix(Kind::Log, &owner()))));
        assert_eq!(time_of(&order(at(), 7)), Some(at()));
        assert_eq!(order_of(&keys[1]), order(at(), 1));
        assert_eq!(prefix_of(&keys[1]), prefix(Kind::Log, &owner()));
        assert_eq!(of_ordered(&ordered(b"key", 77)), Some((77, &b"key"[..])));
    }
}
