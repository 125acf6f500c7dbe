//! The records on disk: the truth for what *should* be. Zones report what *is*.
//!
//! Everything here is durable once its write has been answered: records, and the feed of their
//! changes. Samples, logs and whatever else may be lost in a crash do not belong here.
#![forbid(unsafe_code)]

mod changes;
mod codec;
#[cfg(test)]
mod crash;
mod error;
#[cfg(feature = "test-support")]
pub mod fake;
mod lock;
mod overlay;
mod schema;
mod store;
mod tables;
mod transaction;
mod writer;

pub use changes::{Change, Changed, Lagged};
pub use codec::DecodeError;
pub use error::{OpenError, StoreError};
pub use store::Store;
pub use tables::Record;
pub use transaction::{Read, ReadTx, WriteTx};
