//! What a closure given to `Store::read` or `Store::write` can do.

use std::ops::Bound;

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, WriteTransaction};
use sandboxo_model::SandboxRecord;
use sandboxo_zone_protocol::SandboxId;

use crate::{
    Record, StoreError,
    overlay::{Overlay, Row, Source, Staged},
    schema::Table,
    tables,
};

type Bytes = &'static [u8];
type ReadTable = ReadOnlyTable<Bytes, Bytes>;
type WriteTable<'txn> = redb::Table<'txn, Bytes, Bytes>;

/// A consistent view.
pub struct ReadTx<'a> {
    transaction: &'a ReadTransaction,
    open: Vec<(Table, ReadTable)>,
}

/// Atomic on its own: when the closure fails, nothing of it is committed.
pub struct WriteTx<'a> {
    overlay: Overlay<'a>,
}

/// Reading, in either kind. A write sees what it has written.
pub trait Read: AsSource {
    fn get<R: Record>(&mut self, id: &R::Id) -> Result<Option<R>, StoreError> {
        tables::get(self.source(), id)
    }

    /// All of them, in key order.
    fn all<R: Record>(&mut self) -> Result<Vec<R>, StoreError> {
        tables::all(self.source(), R::TABLE)
    }

    /// Live or dead.
    fn sandbox(&mut self, id: SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        tables::sandbox::find(self.source(), id)
    }

    fn live_sandboxes(&mut self) -> Result<Vec<SandboxRecord>, StoreError> {
        tables::all(self.source(), Table::Sandboxes)
    }

    fn ended_sandboxes(&mut self) -> Result<Vec<SandboxRecord>, StoreError> {
        tables::all(self.source(), Table::EndedSandboxes)
    }

    /// The last change that a reader of the feed has dealt with.
    fn cursor(&mut self, reader: &str) -> Result<Option<u64>, StoreError> {
        tables::cursor(self.source(), reader)
    }
}

/// Seals [`Read`].
pub trait AsSource {
    #[doc(hidden)]
    fn source(&mut self) -> &mut dyn Source;
}

impl<T: AsSource> Read for T {}

impl AsSource for ReadTx<'_> {
    fn source(&mut self) -> &mut dyn Source {
        self
    }
}

impl AsSource for WriteTx<'_> {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.overlay
    }
}

impl<'a> WriteTx<'a> {
    pub(crate) fn new(base: &'a mut dyn Source) -> Self {
        Self { overlay: Overlay::new(base) }
    }

    pub(crate) fn overlay(&mut self) -> &mut Overlay<'a> {
        &mut self.overlay
    }

    pub(crate) fn into_staged(self) -> Staged {
        self.overlay.into_staged()
    }
}

impl<'a> ReadTx<'a> {
    pub(crate) fn new(transaction: &'a ReadTransaction) -> Self {
        Self { transaction, open: Vec::new() }
    }

    fn table(&mut self, table: Table) -> Result<&ReadTable, StoreError> {
        let open = self.open.iter().position(|(open, _)| *open == table);
        let at = open.unwrap_or(self.open.len());
        if open.is_none() {
            self.open.push((table, self.transaction.open_table(table.definition())?));
        }
        self.open.get(at).map(|(_, open)| open).ok_or(StoreError::Closed)
    }
}

impl Source for ReadTx<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get(self.table(table)?, key)
    }

    fn rows(
        &mut self,
        table: Table,
        after: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        rows(self.table(table)?, after, limit)
    }
}

/// The tables of one commit, opened once each, however many closures share it.
pub(crate) struct Tables<'txn> {
    transaction: &'txn WriteTransaction,
    open: Vec<(Table, WriteTable<'txn>)>,
}

impl<'txn> Tables<'txn> {
    pub(crate) fn new(transaction: &'txn WriteTransaction) -> Self {
        Self { transaction, open: Vec::new() }
    }

    fn table(&mut self, table: Table) -> Result<&mut WriteTable<'txn>, StoreError> {
        let open = self.open.iter().position(|(open, _)| *open == table);
        let at = open.unwrap_or(self.open.len());
        if open.is_none() {
            self.open.push((table, self.transaction.open_table(table.definition())?));
        }
        self.open.get_mut(at).map(|(_, open)| open).ok_or(StoreError::Closed)
    }

    pub(crate) fn create(&mut self, table: Table) -> Result<(), StoreError> {
        self.table(table).map(drop)
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.table(table)?.insert(key, value)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.table(table)?.remove(key)?;
        Ok(())
    }

    pub(crate) fn apply(&mut self, staged: &Staged) -> Result<(), StoreError> {
        for ((table, key), value) in staged {
            match value {
                Some(value) => self.put(*table, key, value)?,
                None => self.remove(*table, key)?,
            }
        }
        Ok(())
    }
}

impl Source for Tables<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get(self.table(table)?, key)
    }

    fn rows(
        &mut self,
        table: Table,
        after: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        rows(self.table(table)?, after, limit)
    }
}

fn get(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(table.get(key)?.map(|value| value.value().to_owned()))
}

fn rows(
    table: &impl ReadableTable<Bytes, Bytes>,
    after: Bound<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    table
        .range::<&[u8]>((after, Bound::Unbounded))?
        .take(limit)
        .map(|row| row.map(|(key, value)| (key.value().to_owned(), value.value().to_owned())))
        .collect::<Result<_, _>>()
        .map_err(StoreError::from)
}
