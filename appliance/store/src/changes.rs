//! The change feed: every commit appends what it changed, and each reader goes on from its own
//! cursor. Nobody polls records, nobody is called back.
//!
//! A row is `[format, kind, length of key (2), key, value…]`; no value is a tombstone. The value
//! is the record's row as it stands in its table.

use std::ops::Bound;

use sandboxo_model::{
    ApiKeyRecord, IdempotencyRecord, SandboxRecord, SecretRecord, SnapshotRecord, TeamRecord,
    TemplateRecord, VolumeRecord, ZoneRecord,
};
use sandboxo_zone_protocol::{
    ApiKeyId, SandboxId, SecretId, TeamId, TemplateId, VolumeId, ZoneName,
};

use crate::{
    DecodeError, Record, StoreError,
    overlay::{Source, Staged},
    schema::Table,
    tables::{self, parse_key},
    transaction::Tables,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Grows by one with each change, over all restarts.
    pub sequence: u64,
    pub changed: Changed,
}

/// What a record is now; dead sandboxes are records too, until they are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    Sandbox(Box<SandboxRecord>),
    SandboxRemoved(SandboxId),
    Template(Box<TemplateRecord>),
    TemplateRemoved(TemplateId),
    Snapshot(Box<SnapshotRecord>),
    SnapshotRemoved(TemplateId),
    Volume(VolumeRecord),
    VolumeRemoved(VolumeId),
    Secret(SecretRecord),
    SecretRemoved(SecretId),
    Team(TeamRecord),
    TeamRemoved(TeamId),
    ApiKey(ApiKeyRecord),
    ApiKeyRemoved(ApiKeyId),
    Zone(ZoneRecord),
    ZoneRemoved(ZoneName),
    Idempotency(IdempotencyRecord),
    IdempotencyRemoved { team: TeamId, key: String },
}

/// The changes behind this cursor were trimmed: read all records, and go on from `last`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the feed no longer has what follows")]
pub struct Lagged {
    pub last: u64,
}

const FORMAT: u8 = 1;

/// Kept for readers without a cursor in the store, such as a page that was just reloaded.
const KEEP: u64 = 1024;
/// Kept for the slowest reader at most.
const KEEP_AT_MOST: u64 = 65_536;
/// How many are removed with one commit, besides as many as it adds.
const TRIM_BATCH: usize = 256;

const LAST: &[u8] = b"last_change";

/// Numbers are in the file: they stay.
fn kind(table: Table) -> Option<u8> {
    match table {
        Table::Sandboxes | Table::EndedSandboxes => Some(1),
        Table::Templates => Some(2),
        Table::Teams => Some(3),
        Table::ApiKeys => Some(4),
        Table::Zones => Some(5),
        Table::Idempotency => Some(6),
        Table::Snapshots => Some(7),
        Table::Volumes => Some(8),
        Table::Secrets => Some(9),
        // A build is of interest to whoever waits for it, and what it makes is a snapshot's change.
        Table::Builds
        | Table::BuildLogs
        | Table::Layers
        | Table::EndedByTime
        | Table::IdempotencyByTime
        | Table::Changes
        | Table::Cursors
        | Table::Meta => None,
    }
}

/// Appends what a closure has staged, and trims. Gives the last sequence number.
pub(crate) fn append(tables: &mut Tables<'_>, staged: &Staged) -> Result<u64, StoreError> {
    let before = last(tables)?;
    let mut sequence = before;
    for ((table, key), value) in staged {
        let Some(kind) = kind(*table) else { continue };
        let moved = *table == Table::Sandboxes
            && value.is_none()
            && matches!(staged.get(&(Table::EndedSandboxes, key.clone())), Some(Some(_)));
        if moved {
            continue;
        }
        sequence += 1;
        let mut row = vec![FORMAT, kind];
        row.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
        row.extend(key);
        row.extend(value.iter().flatten());
        tables.put(Table::Changes, &sequence.to_be_bytes(), &row)?;
    }
    if sequence != before {
        tables.put(Table::Meta, LAST, &sequence.to_be_bytes())?;
        trim(tables, sequence, sequence - before)?;
    }
    Ok(sequence)
}

pub(crate) fn last(source: &mut dyn Source) -> Result<u64, StoreError> {
    tables::number(source, Table::Meta, LAST).map(Option::unwrap_or_default)
}

/// Up to `limit` changes behind `cursor`.
pub(crate) fn read(
    source: &mut dyn Source,
    cursor: u64,
    limit: usize,
) -> Result<Result<Vec<Change>, Lagged>, StoreError> {
    let last = last(source)?;
    let rows = source.rows(Table::Changes, Bound::Excluded(&cursor.to_be_bytes()), limit)?;
    let mut changes = Vec::with_capacity(rows.len());
    for (key, row) in rows {
        changes
            .push(parse(&key, &row).map_err(|error| tables::bad_row(Table::Changes, &key, error))?);
    }
    // A cursor from the future is one of another file.
    let follows = match changes.first() {
        Some(first) => first.sequence == cursor + 1,
        None => cursor == last || limit == 0,
    };
    Ok(if follows { Ok(changes) } else { Err(Lagged { last }) })
}

fn trim(tables: &mut Tables<'_>, last: u64, added: u64) -> Result<(), StoreError> {
    let slowest = tables::cursors(tables)?.into_iter().min();
    let floor = trim_to(last, slowest);
    let limit = TRIM_BATCH.saturating_add(usize::try_from(added).unwrap_or(usize::MAX));
    let oldest = tables.rows(Table::Changes, Bound::Unbounded, limit)?;
    for (key, _) in oldest {
        if tables::parse_number(&key).is_none_or(|sequence| sequence <= floor) {
            tables.remove(Table::Changes, &key)?;
        } else {
            break;
        }
    }
    Ok(())
}

/// Up to which sequence number changes can go.
fn trim_to(last: u64, slowest: Option<u64>) -> u64 {
    let wanted = slowest.map_or(last, |slowest| slowest.min(last));
    wanted.min(last.saturating_sub(KEEP)).max(last.saturating_sub(KEEP_AT_MOST))
}

fn parse(sequence: &[u8], row: &[u8]) -> Result<Change, DecodeError> {
    let bad = || DecodeError::Value("not a change".into());
    let sequence = tables::parse_number(sequence).ok_or_else(bad)?;
    let (&[format, kind, high, low], rest) = row.split_first_chunk().ok_or_else(bad)?;
    if format != FORMAT {
        return Err(DecodeError::Format(format));
    }
    let (key, value) =
        rest.split_at_checked(usize::from(u16::from_be_bytes([high, low]))).ok_or_else(bad)?;
    let changed = match (kind, value) {
        (1, []) => Changed::SandboxRemoved(parse_key(key)?),
        (1, _) => Changed::Sandbox(Box::new(SandboxRecord::decode(value)?)),
        (2, []) => Changed::TemplateRemoved(parse_key(key)?),
        (2, _) => Changed::Template(Box::new(TemplateRecord::decode(value)?)),
        (3, []) => Changed::TeamRemoved(parse_key(key)?),
        (3, _) => Changed::Team(TeamRecord::decode(value)?),
        (4, []) => Changed::ApiKeyRemoved(parse_key(key)?),
        (4, _) => Changed::ApiKey(ApiKeyRecord::decode(value)?),
        (5, []) => Changed::ZoneRemoved(parse_key(key)?),
        (5, _) => Changed::Zone(ZoneRecord::decode(value)?),
        (6, []) => {
            let (team, key) = tables::idempotency::split(key)?;
            Changed::IdempotencyRemoved { team, key }
        }
        (6, _) => Changed::Idempotency(IdempotencyRecord::decode(value)?),
        (8, []) => Changed::VolumeRemoved(parse_key(key)?),
        (8, _) => Changed::Volume(VolumeRecord::decode(value)?),
        (9, []) => Changed::SecretRemoved(parse_key(key)?),
        (9, _) => Changed::Secret(SecretRecord::decode(value)?),
        (7, []) => Changed::SnapshotRemoved(parse_key(key)?),
        (7, _) => Changed::Snapshot(Box::new(SnapshotRecord::decode(value)?)),
        _ => return Err(bad()),
    };
    Ok(Change { sequence, changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_trimmed() {
        for (why, last, slowest, expected) in [
            ("young", 10, None, 0),
            ("young, and read", 10, Some(10), 0),
            ("nobody reads", 5000, None, 5000 - KEEP),
            ("all read", 5000, Some(5000), 5000 - KEEP),
            ("the slowest holds it", 5000, Some(7), 7),
            ("too slow", 100_000, Some(7), 100_000 - KEEP_AT_MOST),
            ("a cursor of another file", 5000, Some(9000), 5000 - KEEP),
        ] {
            assert_eq!(trim_to(last, slowest), expected, "{why}");
        }
    }
}
