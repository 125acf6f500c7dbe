//! The data plane: which sandbox a request is for, and its bytes there and back.
//!
//! `target` decides from host, path and headers; `door` asks control and opens a stream;
//! `forward` speaks HTTP over it; `refusal` says why not. One port serves both planes: what is
//! not a sandbox's goes to the control plane's router.
#![forbid(unsafe_code)]

mod body;
mod door;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod header;
mod host;
mod last_words;
mod refusal;
mod secure;
mod serve;
mod signature;
mod target;

pub use door::{FrontDoor, FrontDoorConfig, Site};
pub use host::Domains;
pub use serve::{Peer, ServeConfig, serve};
