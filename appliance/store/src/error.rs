//! What can go wrong with the file.

use std::{io, path::PathBuf, sync::Arc};

use crate::{DecodeError, schema::Table};

/// Cheap to clone: all writes that shared a failed commit get it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the disk with the records is full")]
    DiskFull,
    #[error("use the database")]
    Database(#[source] Arc<redb::Error>),
    #[error("read row {key:?} of {table:?}")]
    Row {
        table: Table,
        key: String,
        #[source]
        source: Arc<DecodeError>,
    },
    /// The process is stopping.
    #[error("the store is closed")]
    Closed,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another appliance{} uses {dir}", .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Locked { dir: PathBuf, pid: Option<u32> },
    #[error("open {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the records were written by a newer version (format {found}, this one knows up to {known})"
    )]
    TooNew { found: u32, known: u32 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        let error = error.into();
        if is_full(&error) { Self::DiskFull } else { Self::Database(Arc::new(error)) }
    }
}

fn is_full(error: &redb::Error) -> bool {
    let redb::Error::Io(error) = error else { return false };
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
