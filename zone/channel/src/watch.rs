//! A descriptor that the runtime watches.

use std::{io, os::fd::OwnedFd};

use tokio::io::{Interest, unix::AsyncFd};

#[expect(unsafe_code, reason = "the runtime asks for a promise about the descriptor's life")]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, and stays the same description, until it is dropped; the
    // `AsyncFd` owns it and gives it to nobody.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}
