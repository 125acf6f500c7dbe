//! The trees on the disk, and what happens when they can't be read.

use std::{
    io,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::Timestamp;

use crate::{
    keep::{Aged, Bounds, going},
    row,
};

/// sled's own default is a gigabyte.
const CACHE_BYTES: u64 = 8 << 20;
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
        let mut held = 0;
        for value in order.iter().values() {
            held += row::of_ordered(&value?).map_or(0, |(bytes, _)| bytes);
        }
        Ok(Self { database, rows, order, held })
    }

    pub(crate) fn put(&mut self, put: &Put) -> Result<(), DiskError> {
        let number = self.database.generate_id()?;
        let key = row::key(put.kind, &put.owner, put.at, number);
        // The key is in both trees.
        let bytes = (2 * key.len() + put.value.len() + 20) as u64;
        self.order.insert(row::order(put.at, number), row::ordered(&key, bytes))?;
        self.rows.insert(key, put.value.as_slice())?;
        self.held += bytes;
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

    /// How many rows went.
    pub(crate) fn evict(&mut self, bounds: &Bounds, now: Timestamp) -> Result<usize, DiskError> {
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
                    self.held = self.held.saturating_sub(bytes);
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
