//! Tests on a disk that forgets, and on one that fails.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::StorageBackend;
use sandboxo_model::TeamRecord;
use sandboxo_zone_protocol::{SystemRandom, TeamId};

use crate::{Read as _, Store, StoreError, store::database, tables::golden};

/// What a power cut leaves: everything up to the n-th sync, and nothing behind it.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    survives: Vec<u8>,
    syncs: usize,
    cut_after: usize,
    full: bool,
}

#[derive(Debug, Clone, Default)]
struct Backend(Arc<Mutex<Disk>>);

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
        self.0.lock().bytes.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.syncs += 1;
        if disk.syncs <= disk.cut_after {
            disk.survives = disk.bytes.clone();
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
        Ok(())
    }
}

impl Backend {
    fn holding(bytes: Vec<u8>, cut_after: usize) -> Self {
        let disk = Disk { survives: bytes.clone(), bytes, cut_after, ..Disk::default() };
        Self(Arc::new(Mutex::new(disk)))
    }

    fn open(&self) -> Store {
        let backend = self.clone();
        Store::with(Box::new(move || database(backend.clone())), None).unwrap()
    }
}

async fn put(store: &Store, name: String) -> Result<(), StoreError> {
    let record = TeamRecord { id: TeamId::random(&SystemRandom), name, created_at: golden::time() };
    store
        .write(move |tx| {
            tx.put(&record);
            Ok::<_, StoreError>(())
        })
        .await
}

async fn names(store: &Store) -> Vec<String> {
    let teams = store.read(|tx| tx.all::<TeamRecord>()).await.unwrap();
    let mut names: Vec<_> = teams.into_iter().map(|team| team.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_power_cut_loses_nothing_that_was_answered() {
    let fresh = Backend::holding(Vec::new(), usize::MAX);
    drop(fresh.open());
    let empty = fresh.0.lock().survives.clone();
    for cut_after in 0..40 {
        let backend = Backend::holding(empty.clone(), cut_after);
        let store = backend.open();
        let mut answered_before_cut = 0;
        for n in 0..12 {
            put(&store, format!("{n:02}")).await.unwrap();
            if backend.0.lock().syncs <= cut_after {
                answered_before_cut = n + 1;
            }
        }
        drop(store);
        let survivor = Backend::holding(backend.0.lock().survives.clone(), usize::MAX).open();
        let names = names(&survivor).await;
        assert!(names.len() >= answered_before_cut, "cut after sync {cut_after}: {names:?}");
        // A prefix: what is there is there in the order in which it was written.
        let expected: Vec<_> = (0..names.len()).map(|n| format!("{n:02}")).collect();
        assert_eq!(names, expected, "cut after sync {cut_after}");
        // The feed and the records were cut at the same commit.
        let changes = survivor.changes(0, 100).await.unwrap().unwrap();
        assert_eq!(changes.len(), names.len());
        put(&survivor, "after".into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_recovers() {
    let backend = Backend::holding(Vec::new(), usize::MAX);
    let store = backend.open();
    put(&store, "1".into()).await.unwrap();
    backend.0.lock().full = true;
    assert!(matches!(put(&store, "2".into()).await, Err(StoreError::DiskFull)));
    assert!(put(&store, "3".into()).await.is_err());
    backend.0.lock().full = false;
    put(&store, "4".into()).await.unwrap();
    assert_eq!(names(&store).await, ["1", "4"]);
}
