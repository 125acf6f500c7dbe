//! Tar archives that anybody has made: unpacked by their first bytes, and read entry by entry
//! within bounds.
#![forbid(unsafe_code)]

mod decode;
mod entries;

pub use decode::decoded;
pub use entries::{Metered, each};
