//! `sudo` without set-user-id programs, which gVisor has not: a program called `sudo` that is this
//! one asks the agent, which is root, to run the command.
//!
//! The caller's standard files go along, so output is the caller's own; on a terminal the command
//! gets one of its own, which `sudo` relays. Whom the kernel says the caller is decides.

pub(crate) mod broker;
pub(crate) mod client;
mod terminal;

use std::{collections::BTreeMap, os::unix::net::SocketAddr};

use serde::{Deserialize, Serialize};

/// An abstract name: it needs no folder, and nobody can put a file in its place.
const SOCKET: &[u8] = b"sandboxo-sudo";

/// First a length, then this as JSON; with the first byte come the three standard files.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    user: String,
    command: Vec<String>,
    folder: Folder,
    environment: BTreeMap<String, String>,
    /// Whether the first file is a terminal that is to be the session's.
    terminal: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Folder {
    At(String),
    Home,
}

/// More than the kernel takes as arguments and environment.
const MAX_REQUEST: u32 = 4 << 20;

/// One byte, and for the first two a number in four more; for the last a text to the end.
const EXITED: u8 = 0;
const SIGNALED: u8 = 1;
const REFUSED: u8 = 2;

fn address() -> std::io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(SOCKET)
}
