//! For tests of others: a store whose disk is full when they say so.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::{OpenError, Store, store::database};

/// A disk in memory.
#[derive(Debug, Clone, Default)]
pub struct FakeDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    full: bool,
}

impl FakeDisk {
    pub fn open(&self) -> Result<Store, OpenError> {
        let disk = self.clone();
        Store::with(Box::new(move || database(disk.clone())), None)
    }

    /// Nothing is written any more, or everything again.
    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }
}

impl StorageBackend for FakeDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock();
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|at| disk.bytes.get(at..at.checked_add(out.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.lock().bytes.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.0.lock().full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|at| disk.bytes.get_mut(at..at.checked_add(data.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(data);
        Ok(())
    }
}
