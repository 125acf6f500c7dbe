//! What the agent in a sandbox and its clients say to each other: the messages of the process and
//! filesystem services, and the Connect protocol around them.
#![forbid(unsafe_code)]

pub mod connect;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod timestamp;

/// Messages of `process.Process`.
#[expect(clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod process {
    include!("gen/process.rs");
    include!("gen/process.serde.rs");
}

/// Messages of `filesystem.Filesystem`.
#[expect(clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod filesystem {
    include!("gen/filesystem.rs");
    include!("gen/filesystem.serde.rs");
}

pub use timestamp::Timestamp;
