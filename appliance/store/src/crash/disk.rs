//! A disk for tests: its power can be cut at any sync, it can tear what was not synced, and it can
//! be full.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::{Store, store::database};

/// What a disk writes as a whole.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Disk {
    bytes: Vec<u8>,
    /// What was there at the last sync before the cut.
    stable: Vec<u8>,
    /// What was written between that sync and the next: the disk may have any of it.
    loose: Vec<Loose>,
    pub(super) syncs: usize,
    cut_after: usize,
    pub(super) full: bool,
}

#[derive(Debug)]
enum Loose {
    Length(usize),
    Sector { at: usize, bytes: Vec<u8> },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Backend(pub(super) Arc<Mutex<Disk>>);

impl Disk {
    fn may_tear(&self) -> bool {
        self.syncs == self.cut_after
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let disk = self.0.lock();
        let bytes = disk.bytes.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        let mut disk = self.0.lock();
        disk.bytes.resize(len, 0);
        if disk.may_tear() {
            disk.loose.push(Loose::Length(len));
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.syncs += 1;
        if disk.syncs <= disk.cut_after {
            disk.stable = disk.bytes.clone();
            disk.loose.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let mut disk = self.0.lock();
        if disk.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let to = disk.bytes.get_mut(at..at + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(data);
        if disk.may_tear() {
            let sectors = data.chunks(SECTOR).enumerate();
            disk.loose.extend(
                sectors
                    .map(|(n, bytes)| Loose::Sector { at: at + n * SECTOR, bytes: bytes.to_vec() }),
            );
        }
        Ok(())
    }
}

impl Backend {
    /// Loses what is written after the `cut_after`th sync, without saying so.
    pub(super) fn holding(bytes: Vec<u8>, cut_after: usize) -> Self {
        let disk = Disk { stable: bytes.clone(), bytes, cut_after, ..Disk::default() };
        Self(Arc::new(Mutex::new(disk)))
    }

    pub(super) fn open(&self) -> Store {
        let backend = self.clone();
        Store::with(Box::new(move || database(backend.clone())), None).unwrap()
    }

    /// All of the power cut's loss: nothing behind the last sync is there.
    pub(super) fn after_the_cut(&self) -> Vec<u8> {
        self.0.lock().stable.clone()
    }

    /// Of what was not synced, those sectors are there that `is_there` says, in any order.
    pub(super) fn torn(&self, mut is_there: impl FnMut(usize) -> bool) -> Vec<u8> {
        let disk = self.0.lock();
        let mut bytes = disk.stable.clone();
        for loose in &disk.loose {
            match loose {
                Loose::Length(length) => bytes.resize(*length, 0),
                Loose::Sector { at, bytes: written } if is_there(*at) => {
                    if let Some(to) = bytes.get_mut(*at..at + written.len()) {
                        to.copy_from_slice(written);
                    }
                }
                Loose::Sector { .. } => {}
            }
        }
        bytes
    }
}
