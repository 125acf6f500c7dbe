//! A descriptor that the runtime watches.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

#[expect(unsafe_code, reason = "the runtime asks for a promise about the descriptor's life")]
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open, and stays the same description, until it is dropped; the
    // `AsyncFd` owns it and gives it to nobody.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(Into::into)
}

/// One's own descriptor, watched for what comes in, for as long as that is wanted.
pub(crate) struct Watched {
    // Goes before the descriptor does.
    readable: Option<AsyncFd<Number>>,
    fd: OwnedFd,
}

pub(crate) struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Watched {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { readable: Some(watch_number(fd.as_raw_fd())?), fd })
    }

    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// `None` after it could not be watched again.
    pub(crate) fn readable(&self) -> Option<&AsyncFd<Number>> {
        self.readable.as_ref()
    }

    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        self.fd.as_fd().try_clone_to_owned()
    }

    pub(crate) fn again(&mut self) {
        self.readable = None;
        self.readable = watch_number(self.fd.as_raw_fd()).ok();
    }
}

#[expect(unsafe_code, reason = "the runtime asks for a promise about the descriptor's life")]
fn watch_number(number: RawFd) -> io::Result<AsyncFd<Number>> {
    // SAFETY: only `Watched` calls this, which holds the descriptor for longer than the watch.
    unsafe { AsyncFd::register_with_interest(Number(number), Interest::READABLE) }
        .map_err(Into::into)
}
