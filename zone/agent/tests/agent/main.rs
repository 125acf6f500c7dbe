//! The agent as its clients meet it: the program on a port of this host, run as root.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "helpers of tests; a test that can't go on should stop"
)]

mod access;
mod files;
mod filesystem;
mod harness;
mod processes;
mod readers;
mod terminals;
mod watching;
mod wire;
mod zone;
