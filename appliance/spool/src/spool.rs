//! What others hold: a queue that never makes them wait, and the disk behind it.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sandboxo_model::{Direction, LogEntry, LogQuery};
use sandboxo_zone_protocol::{Measured, Timestamp};

use crate::{
    Bounds, Owner,
    disk::{Disk, DiskError, Put},
    row::{self, Kind},
};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Spool {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None`: a temporary one.
    folder: Option<PathBuf>,
    bounds: Bounds,
    queue: Mutex<Queue>,
    /// `None`: it failed, and is opened again by `tend`. Locked by blocking tasks only.
    disk: Mutex<Option<Disk>>,
}

#[derive(Default)]
struct Queue {
    puts: VecDeque<Put>,
    bytes: usize,
    /// Since the last time that it was said.
    lost: u64,
    /// Somebody is on the way to empty it.
    draining: bool,
    closed: bool,
}

/// A disk that is slower than this loses lines, and not memory.
const QUEUE_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpoolError {
    /// Logged where it happened.
    #[error("the spool can't be read at the moment")]
    Unavailable,
}

impl Spool {
    /// Never fails: without a disk it keeps nothing until it has one.
    pub fn open(folder: &Path, bounds: Bounds) -> Self {
        let disk = Disk::open(folder).map_err(|error| told(&error)).ok();
        Self::new(Some(folder.to_owned()), bounds, disk)
    }

    /// Gone with its last clone; for tests.
    pub fn temporary() -> Self {
        Self::temporary_of(Bounds { bytes: 64 << 20, age: Duration::from_hours(24) })
    }

    fn temporary_of(bounds: Bounds) -> Self {
        Self::new(None, bounds, Disk::temporary().map_err(|error| told(&error)).ok())
    }

    fn new(folder: Option<PathBuf>, bounds: Bounds, disk: Option<Disk>) -> Self {
        let queue = Mutex::default();
        Self { inner: Arc::new(Inner { folder, bounds, queue, disk: Mutex::new(disk) }) }
    }

    pub fn log(&self, owner: Owner, entry: LogEntry) {
        let entry = entry.bounded();
        self.put(Put { kind: Kind::Log, owner, at: entry.at, value: row::of_log(&entry) });
    }

    pub fn sample(&self, owner: Owner, sample: &Measured) {
        let value = row::of_sample(sample);
        self.put(Put { kind: Kind::Sample, owner, at: sample.at, value });
    }

    fn put(&self, put: Put) {
        {
            let mut queue = self.inner.queue.lock();
            if queue.closed || queue.bytes + put.value.len() > QUEUE_BYTES {
                queue.lost += 1;
                return;
            }
            queue.bytes += put.value.len();
            queue.puts.push_back(put);
            if std::mem::replace(&mut queue.draining, true) {
                return;
            }
        }
        let inner = Arc::clone(&self.inner);
        drop(tokio::task::spawn_blocking(move || inner.drain(&mut inner.disk.lock())));
    }

    /// In the order that was asked for; what was put before is seen.
    pub async fn logs(&self, owner: Owner, query: LogQuery) -> Result<Vec<LogEntry>, SpoolError> {
        self.read(move |disk| {
            let mut found = Vec::new();
            if query.limit == 0 {
                return Ok(found);
            }
            let prefix = row::prefix(Kind::Log, &owner);
            let backward = query.direction == Direction::Backward;
            disk.each(&prefix, query.from, backward, |bytes| {
                found.extend(row::to_log(bytes).filter(|entry| query.wants(entry)));
                found.len() < query.limit
            })?;
            Ok(found)
        })
        .await
    }

    /// Oldest first.
    pub async fn samples(
        &self,
        owner: Owner,
        range: RangeInclusive<Timestamp>,
    ) -> Result<Vec<Measured>, SpoolError> {
        self.read(move |disk| {
            let mut found = Vec::new();
            let prefix = row::prefix(Kind::Sample, &owner);
            disk.each(&prefix, Some(*range.start()), false, |bytes| {
                let sample = row::to_sample(bytes);
                let is_past = sample.is_some_and(|sample| sample.at > *range.end());
                found.extend(sample.filter(|sample| range.contains(&sample.at)));
                !is_past
            })?;
            Ok(found)
        })
        .await
    }

    /// Removes what is too old or too much, and opens a disk that failed. Now and then.
    pub async fn tend(&self, now: Timestamp) {
        self.blocking(move |inner, disk| {
            let closed = inner.queue.lock().closed;
            if let (None, Some(folder), false) = (&disk, &inner.folder, closed) {
                *disk = Disk::open(folder).map_err(|error| told(&error)).ok();
            }
            inner.drain(disk);
            attempt(disk, |disk| {
                let gone = disk.evict(&inner.bounds, now)?;
                if gone > 0 {
                    tracing::debug!(gone, held = disk.held(), "the spool let go of its oldest");
                }
                Ok(())
            });
        })
        .await;
    }

    /// What was put is on the disk once it returns; later lines are lost.
    pub async fn close(&self) {
        self.blocking(|inner, disk| {
            inner.queue.lock().closed = true;
            inner.drain(disk);
            attempt(disk, |disk| disk.flush());
            *disk = None;
        })
        .await;
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, SpoolError> {
        let found = self.blocking(|inner, disk| {
            inner.drain(disk);
            attempt(disk, |disk| read(disk))
        });
        found.await.flatten().ok_or(SpoolError::Unavailable)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, &mut Option<Disk>) -> T + Send + 'static,
    ) -> Option<T> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner, &mut inner.disk.lock())).await.ok()
    }
}

impl Inner {
    fn drain(&self, disk: &mut Option<Disk>) {
        loop {
            let puts = {
                let mut queue = self.queue.lock();
                queue.bytes = 0;
                let lost = std::mem::take(&mut queue.lost);
                if lost > 0 {
                    tracing::warn!(lost, "more was put into the spool than it could take");
                }
                if queue.puts.is_empty() {
                    queue.draining = false;
                    return;
                }
                std::mem::take(&mut queue.puts)
            };
            attempt(disk, |disk| puts.iter().try_for_each(|put| disk.put(put)));
        }
    }
}

/// What fails once, fails until it is opened again.
fn attempt<T>(
    disk: &mut Option<Disk>,
    work: impl FnOnce(&mut Disk) -> Result<T, DiskError>,
) -> Option<T> {
    let done = work(disk.as_mut()?);
    if let Err(error) = &done {
        told(error);
        *disk = None;
    }
    done.ok()
}

fn told(error: &DiskError) {
    tracing::warn!(error = error as &dyn std::error::Error, "the spool keeps nothing for now");
}

#[cfg(test)]
#[path = "spool/tests.rs"]
mod tests;
