//! The records on disk.
#![forbid(unsafe_code)]

use std::path::Path;

#[derive(Clone)]
pub struct Store {}

impl Store {
    /// `dir/records.redb`, and `dir/lock`, which refuses a second appliance.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        todo!()
    }

    pub fn in_memory() -> Result<Self, OpenError> {
        todo!()
    }

    /// Waits for what is being written. Call it last.
    pub async fn close(&self) {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another appliance uses {0}")]
    Locked(std::path::PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database failed")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}
