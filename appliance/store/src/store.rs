//! Opening, reading, writing.

use std::{
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    panic::resume_unwind,
    path::Path,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use redb::{
    Database, ReadableDatabase as _,
    backends::{FileBackend, InMemoryBackend},
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    Change, Lagged, OpenError, ReadTx, StoreError, WriteTx, changes,
    lock::Lock,
    schema::{FORMAT, Table},
    tables,
    transaction::Tables,
    writer::{self, Closure, Outcome, Writer},
};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    /// Or why it could not be opened again after an I/O error, which makes redb refuse everything
    /// until it is.
    database: RwLock<Result<Database, StoreError>>,
    open: Opener,
    writer: Writer,
    /// The blocking tasks that drain the writer, for `close`.
    writing: Mutex<Vec<JoinHandle<()>>>,
    last_change: watch::Sender<u64>,
    _lock: Option<Lock>,
}

type Opener = Box<dyn Fn() -> Result<Database, StoreError> + Send + Sync>;

/// redb's own default is a gigabyte.
const CACHE_BYTES: usize = 16 << 20;

const FORMAT_KEY: &[u8] = b"format";

impl Store {
    /// Makes `dir` (0700) if it is missing. `dir/lock` refuses a second appliance; the records
    /// are in `dir/records.redb` (0600: they hold tokens).
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::File { path, source }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
        let lock = Lock::take(dir)?;
        let path = dir.join("records.redb");
        let create = move || -> io::Result<std::fs::File> {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
        };
        let open = move || {
            let file = create().map_err(redb::StorageError::Io)?;
            database(FileBackend::new(file)?)
        };
        Self::with(Box::new(open), Some(lock))
    }

    /// Gone with its last clone.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::with(Box::new(|| database(InMemoryBackend::new())), None)
    }

    pub(crate) fn with(open: Opener, lock: Option<Lock>) -> Result<Self, OpenError> {
        let database = open()?;
        let last = prepare(&database)?;
        let inner = Inner {
            database: RwLock::new(Ok(database)),
            open,
            writer: Writer::default(),
            writing: Mutex::default(),
            last_change: watch::Sender::new(last),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The closure sees one consistent state.
    pub async fn read<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: FnOnce(&mut ReadTx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let read = tokio::task::spawn_blocking(move || {
            inner.try_again();
            let database = inner.database.read();
            let transaction =
                database.as_ref().map_err(Clone::clone)?.begin_read().map_err(StoreError::from)?;
            closure(&mut ReadTx::new(&transaction))
        });
        match read.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_stopping) => Err(StoreError::Closed.into()),
        }
    }

    /// Answers once it is on disk. Atomic: a closure that fails or panics leaves nothing, and
    /// does not harm those that share its commit. Goes on when the future is dropped.
    pub async fn write<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        F: FnOnce(&mut WriteTx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (job, answer) = Closure::new(closure);
        if self.inner.writer.push(Box::new(job)) {
            let inner = Arc::clone(&self.inner);
            let writing = tokio::task::spawn_blocking(move || inner.commit_waiting());
            let mut tasks = self.inner.writing.lock();
            tasks.retain(|task| !task.is_finished());
            tasks.push(writing);
        }
        match answer.await {
            Ok(Outcome::Done(result)) => result,
            Ok(Outcome::NotCommitted(error)) => Err(error.into()),
            Ok(Outcome::Panicked(panic)) => resume_unwind(panic),
            Err(_stopping) => Err(StoreError::Closed.into()),
        }
    }

    /// Up to `limit` changes behind `cursor`, in order.
    pub async fn changes(
        &self,
        cursor: u64,
        limit: usize,
    ) -> Result<Result<Vec<Change>, Lagged>, StoreError> {
        self.read(move |tx| changes::read(tx, cursor, limit)).await
    }

    /// The sequence number of the last change; wakes with each commit.
    pub fn last_change(&self) -> watch::Receiver<u64> {
        self.inner.last_change.subscribe()
    }

    /// Waits for what is being written. Call it last: the file is let go of with the last clone.
    pub async fn close(&self) {
        loop {
            let tasks = std::mem::take(&mut *self.inner.writing.lock());
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                if task.await.is_err() {
                    tracing::error!("a commit panicked");
                }
            }
        }
    }
}

impl Inner {
    fn commit_waiting(&self) {
        self.writer.drain(|mut batch| {
            let committed = self.commit(&mut batch);
            if let Err(error) = &committed {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    writes = batch.len(),
                    "commit failed"
                );
                self.reopen();
            }
            if let Ok(Some(last)) = committed {
                self.last_change.send_replace(last);
            }
            for job in batch {
                job.answer(committed.clone().map(drop));
            }
        });
    }

    fn commit(&self, batch: &mut [Box<dyn writer::Job>]) -> Result<Option<u64>, StoreError> {
        self.try_again();
        let database = self.database.read();
        writer::commit(database.as_ref().map_err(Clone::clone)?, batch)
    }

    fn try_again(&self) {
        if self.database.read().is_err() {
            self.reopen();
        }
    }

    /// Waits for the readers, since the file can be open only once.
    fn reopen(&self) {
        let mut database = self.database.write();
        *database = Err(StoreError::Closed);
        *database = (self.open)();
        if let Err(error) = &*database {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the records can't be opened again; trying when they are needed"
            );
        }
    }
}

pub(crate) fn database(backend: impl redb::StorageBackend) -> Result<Database, StoreError> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?)
}

/// Makes the tables, so that readers find them. Gives the last sequence number.
fn prepare(database: &Database) -> Result<u64, OpenError> {
    let transaction = database.begin_write().map_err(StoreError::from)?;
    let last = {
        let mut tables = Tables::new(&transaction);
        for table in Table::ALL {
            tables.create(table)?;
        }
        match tables::number(&mut tables, Table::Meta, FORMAT_KEY)? {
            Some(found) if found > u64::from(FORMAT) => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                return Err(OpenError::TooNew { found, known: FORMAT });
            }
            Some(_) => {}
            None => {
                tables.put(Table::Meta, FORMAT_KEY, &u64::from(FORMAT).to_be_bytes())?;
            }
        }
        changes::last(&mut tables)?
    };
    transaction.commit().map_err(StoreError::from)?;
    Ok(last)
}
