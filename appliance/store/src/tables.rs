//! Keys and values of each record, one file per record.

mod build;
#[cfg(test)]
pub(crate) mod golden;
mod hex;
pub(crate) mod idempotency;
mod key;
pub(crate) mod sandbox;
mod secret;
mod snapshot;
mod team;
mod template;
mod volume;
mod zone;

use std::{ops::Bound, str::FromStr, sync::Arc};

use sandboxo_zone_protocol::Timestamp;

use crate::{
    DecodeError, StoreError, WriteTx,
    overlay::{Row, Source},
    schema::Table,
};

/// Something with an id and a row of its own. The row format is private to its file here.
pub trait Record: Sized + Send + 'static {
    type Id: Send;
    #[doc(hidden)]
    const TABLE: Table;

    fn key(id: &Self::Id) -> Vec<u8>;
    fn id(&self) -> Self::Id;
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

impl WriteTx<'_> {
    pub fn put<R: Plain>(&mut self, record: &R) {
        self.overlay().put(R::TABLE, R::key(&record.id()), record.encode());
    }

    pub fn remove<R: Plain>(&mut self, id: &R::Id) {
        self.overlay().remove(R::TABLE, R::key(id));
    }

    /// Remembers how far a reader of the feed has come.
    pub fn set_cursor(&mut self, reader: &str, sequence: u64) {
        self.overlay().put(Table::Cursors, reader.into(), sequence.to_be_bytes().into());
    }

    /// The feed is no longer kept for this reader.
    pub fn remove_cursor(&mut self, reader: &str) {
        self.overlay().remove(Table::Cursors, reader.into());
    }
}

/// A record that is in one table, without an index.
pub trait Plain: Record {}

pub(crate) fn get<R: Record>(source: &mut dyn Source, id: &R::Id) -> Result<Option<R>, StoreError> {
    let key = R::key(id);
    match source.get(R::TABLE, &key)? {
        Some(value) => decode(R::TABLE, &key, &value).map(Some),
        None => Ok(None),
    }
}

pub(crate) fn all<R: Record>(source: &mut dyn Source, table: Table) -> Result<Vec<R>, StoreError> {
    source
        .rows(table, Bound::Unbounded, usize::MAX)?
        .iter()
        .map(|(key, value)| decode(table, key, value))
        .collect()
}

pub(crate) fn decode<R: Record>(table: Table, key: &[u8], value: &[u8]) -> Result<R, StoreError> {
    let record = R::decode(value).map_err(|error| bad_row(table, key, error))?;
    if R::key(&record.id()) == key {
        Ok(record)
    } else {
        Err(bad_row(table, key, DecodeError::Key))
    }
}

pub(crate) fn bad_row(table: Table, key: &[u8], error: DecodeError) -> StoreError {
    let key = key.escape_ascii().to_string();
    StoreError::Row { table, key, source: Arc::new(error) }
}

pub(crate) fn parse_key<T: FromStr>(key: &[u8]) -> Result<T, DecodeError> {
    std::str::from_utf8(key).ok().and_then(|text| text.parse().ok()).ok_or(DecodeError::Key)
}

pub(crate) fn parse_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn number(
    source: &mut dyn Source,
    table: Table,
    key: &[u8],
) -> Result<Option<u64>, StoreError> {
    let Some(value) = source.get(table, key)? else { return Ok(None) };
    let not_a_number = || bad_row(table, key, DecodeError::Value("not a number".into()));
    parse_number(&value).map(Some).ok_or_else(not_a_number)
}

pub(crate) fn cursor(source: &mut dyn Source, reader: &str) -> Result<Option<u64>, StoreError> {
    number(source, Table::Cursors, reader.as_bytes())
}

pub(crate) fn cursors(source: &mut dyn Source) -> Result<Vec<u64>, StoreError> {
    let rows = source.rows(Table::Cursors, Bound::Unbounded, usize::MAX)?;
    Ok(rows.iter().filter_map(|(_, value)| parse_number(value)).collect())
}

/// A key of an index by time: eight bytes that sort as the time does, then the record's key.
fn time_key(at: Timestamp, key: &[u8]) -> Vec<u8> {
    let sortable = at.as_microsecond().cast_unsigned() ^ (1 << 63);
    let mut bytes = sortable.to_be_bytes().to_vec();
    bytes.extend(key);
    bytes
}

/// Keys of the records whose time in the index is before `before`, and the index rows' own.
fn due(
    source: &mut dyn Source,
    index: Table,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let end = time_key(before, &[]);
    let rows = source.rows(index, Bound::Unbounded, limit)?;
    let due = rows.into_iter().map(|(key, _)| key).take_while(|key| *key < end);
    Ok(due.filter_map(|key| Some((key.get(8..)?.to_vec(), key))).collect())
}
