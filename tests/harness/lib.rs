//! Starts the real binary for a test, speaks to it as an SDK does, and leaves nothing on the host.
#![forbid(unsafe_code)]

mod appliance;
mod client;
mod host;

pub use appliance::Appliance;
pub use client::{Client, Output, id};
pub use host::{Traces, eventually};
