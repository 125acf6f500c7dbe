//! The trees on the disk, and what happens when they can't be read.

use std::{
    collections::BTreeMap,
    io,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::Timestamp;

use crate::{
    keep::{Aged, Bounds, cuts, going},
    row,
};

/// sled's own default is a gigabyte.
const CACHE_BYTES: u64 = 2 << 20;
/// What a crash may lose.
const FLUSH_MS: u64 = 1000;
/// Rows removed in one go.
const BATCH: usize = 4096;

pub(crate) struct Disk {
    database: sled::Db,
    rows: sled::Tree,
    order: sled::Tree,
    /// Bytes of rows and keys.
    held: u64,
    /// The same by what the keys begin with.
    holders: BTreeMap<Vec<u8>, u64>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("use the spool")]
    Sled(#[from] sled::Error),
    #[error("put a damaged spool aside")]
    Aside(#[source] io::Error),
    #[error("the spool's library gave up")]
    Panicked,
}

/// A row that is to be kept.
pub(crate) struct Put {
    pub(crate) kind: row::Kind,
    pub(crate) owner: crate::Owner,
    pub(crate) at: Timestamp,
    pub(crate) value: Vec<u8>,
}

impl Disk {
    /// A damaged one is renamed, and a new one takes its place.
    pub(crate) fn open(folder: &Path) -> Result<Self, DiskError> {
        let error = match guarded(folder, false) {
            Ok(disk) => return Ok(disk),
            // It may be whole: the disk is full, or somebody else has it open.
            Err(DiskError::Sled(sled::Error::Io(error))) if !is_damage(error.kind()) => {
                return Err(DiskError::Sled(sled::Error::Io(error)));
            }
            Err(error) => error,
        };
        let aside = folder.with_extension("damaged");
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            aside = %aside.display(),
            "the spool is damaged: logs and metrics begin anew"
        );
        put_aside(folder, &aside).map_err(DiskError::Aside)?;
        guarded(folder, false)
    }

    /// Gone when it is dropped.
    pub(crate) fn temporary() -> Result<Self, DiskError> {
        guarded(Path::new(""), true)
    }

    fn start(folder: PathBuf, temporary: bool) -> Result<Self, DiskError> {
        let config = sled::Config::new()
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(FLUSH_MS))
            .mode(sled::Mode::LowSpace);
        let config = if temporary { config.temporary(true) } else { config.path(folder) };
        let database = config.open()?;
        let (rows, order) = (database.open_tree("rows")?, database.open_tree("order")?);
        let mut disk = Self { database, rows, order, held: 0, holders: BTreeMap::new() };
        for value in disk.order.iter().values() {
            if let Some((bytes, key)) = row::of_ordered(&value?) {
                disk.held += bytes;
                *disk.holders.entry(row::prefix_of(key).to_vec()).or_default() += bytes;
            }
        }
        Ok(disk)
    }

    fn came(&mut self, key: &[u8], bytes: u64) {
        self.held += bytes;
        let prefix = row::prefix_of(key);
        match self.holders.get_mut(prefix) {
            Some(held) => *held += bytes,
            None => {
                self.holders.insert(prefix.to_vec(), bytes);
            }
        }
    }

    fn went(&mut self, key: &[u8], bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        let prefix = row::prefix_of(key);
        if let Some(held) = self.holders.get_mut(prefix) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.holders.remove(prefix);
            }
        }
    }

    pub(crate) fn put(&mut self, put: &Put) -> Result<(), DiskError> {
        let number = self.database.generate_id()?;
        let key = row::key(put.kind, &put.owner, put.at, number);
        let bytes = size(&key, &put.value);
        self.order.insert(row::order(put.at, number), row::ordered(&key, bytes))?;
        self.came(&key, bytes);
        self.rows.insert(key, put.value.as_slice())?;
        Ok(())
    }

    /// Rows of one sandbox from `from` on, or backward from it; as long as `take` wants more.
    pub(crate) fn each(
        &self,
        prefix: &[u8],
        from: Option<Timestamp>,
        backward: bool,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), DiskError> {
        let mut key = prefix.to_vec();
        key.extend(from.map(row::time).into_iter().flatten());
        if backward {
            // Everything of that moment belongs to it.
            key.extend_from_slice(&[0xff; 8]);
            if from.is_none() {
                key.extend_from_slice(&[0xff; 8]);
            }
            for found in self.rows.range(..=key).rev() {
                let (key, value) = found?;
                if !key.starts_with(prefix) || !take(&value) {
                    break;
                }
            }
        } else {
            for found in self.rows.range(key..) {
                let (key, value) = found?;
                if !key.starts_with(prefix) || !take(&value) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// How many rows went: the too old, then those of whoever holds most, then the oldest.
    pub(crate) fn evict(&mut self, bounds: &Bounds, now: Timestamp) -> Result<usize, DiskError> {
        let mut gone = self.sweep(&Bounds { bytes: u64::MAX, ..*bounds }, now)?;
        let holders = self.holders.iter().map(|(prefix, bytes)| (prefix.clone(), *bytes));
        for (prefix, bytes) in cuts(bounds, self.held, holders) {
            gone += self.cut(&prefix, bytes)?;
        }
        Ok(gone + self.sweep(bounds, now)?)
    }

    /// So many bytes of one's oldest rows.
    fn cut(&mut self, prefix: &[u8], bytes: u64) -> Result<usize, DiskError> {
        let aim = self.held.saturating_sub(bytes);
        let mut gone = 0;
        for found in self.rows.scan_prefix(prefix) {
            if self.held <= aim {
                break;
            }
            let (key, value) = found?;
            self.rows.remove(&key)?;
            self.order.remove(row::order_of(&key))?;
            self.went(&key, size(&key, &value));
            gone += 1;
        }
        Ok(gone)
    }

    fn sweep(&mut self, bounds: &Bounds, now: Timestamp) -> Result<usize, DiskError> {
        let mut gone = 0;
        loop {
            let mut oldest = Vec::new();
            for found in self.order.iter().take(BATCH) {
                oldest.push(found?);
            }
            let aged = oldest.iter().map(|(order, value)| Aged {
                at: row::time_of(order).unwrap_or_default(),
                bytes: row::of_ordered(value).map_or(0, |(bytes, _)| bytes),
            });
            let count = going(bounds, now, self.held, aged);
            for (order, value) in oldest.iter().take(count) {
                if let Some((bytes, key)) = row::of_ordered(value) {
                    self.rows.remove(key)?;
                    self.went(key, bytes);
                }
                self.order.remove(order)?;
            }
            gone += count;
            if count < BATCH {
                return Ok(gone);
            }
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn flush(&self) -> Result<(), DiskError> {
        self.database.flush()?;
        Ok(())
    }
}

/// Of a row; its key is in both trees.
fn size(key: &[u8], value: &[u8]) -> u64 {
    (2 * key.len() + value.len() + 20) as u64
}

/// On some kinds of damage sled panics instead of saying so.
fn guarded(folder: &Path, temporary: bool) -> Result<Disk, DiskError> {
    let folder = folder.to_owned();
    catch_unwind(|| Disk::start(folder, temporary)).unwrap_or(Err(DiskError::Panicked))
}

fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists
    )
}

/// The one before it goes: they are for whoever wants to look into the last.
fn put_aside(folder: &Path, aside: &Path) -> io::Result<()> {
    for old in [std::fs::remove_dir_all(aside), std::fs::remove_file(aside)] {
        match old {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    std::fs::rename(folder, aside)
}
