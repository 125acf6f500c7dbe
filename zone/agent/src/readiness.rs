//! Waiting until a file can be read or written.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

use nix::sys::{inotify::Inotify, signalfd::SignalFd};
use tokio::io::{Interest, unix::AsyncFd};

/// What keeps its descriptor open, and the same, as long as it lives.
#[derive(Clone)]
pub(crate) enum Held {
    File(Arc<File>),
    Inotify(Arc<Inotify>),
    Signals(Arc<SignalFd>),
}

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> RawFd {
        use std::os::fd::AsFd;
        match self {
            Self::File(file) => file.as_raw_fd(),
            Self::Inotify(inotify) => inotify.as_fd().as_raw_fd(),
            Self::Signals(signals) => signals.as_raw_fd(),
        }
    }
}

#[expect(unsafe_code, reason = "the event loop must be told that the descriptor stays")]
pub(crate) fn watch(held: Held, interest: Interest) -> io::Result<AsyncFd<Held>> {
    // SAFETY: each variant owns its descriptor and lets nobody exchange it.
    unsafe { AsyncFd::register_with_interest(held, interest) }.map_err(Into::into)
}
