//! Starts the real binary for a test, speaks to it as an SDK does, and leaves nothing on the host.
#![forbid(unsafe_code)]

mod appliance;
mod client;
mod host;
mod outside;
mod registry;
mod scaled;
mod shared;
mod stream;

pub use appliance::Appliance;
pub use client::{Client, Output, id};
pub use host::{Traces, eventually};
pub use outside::Outside;
pub use registry::Registry;
pub use scaled::scaled;
pub use shared::Shared;
pub use stream::{Heard, Stream};
