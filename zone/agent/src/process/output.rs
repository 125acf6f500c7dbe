//! One file of a process that the agent reads.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    sync::Arc,
};

use bytes::Bytes;
use nix::errno::Errno;
use tokio::io::{Interest, unix::AsyncFd};

use super::readers::Piece;
use crate::readiness::{Held, watch};

const PIPE_PIECE: usize = 32 * 1024;
const PTY_PIECE: usize = 16 * 1024;
/// So many pieces in a row, and everything else has its turn: a flood that nobody hears would
/// otherwise be all that the agent's one thread does.
const BURST: u8 = 4;

thread_local! {
    /// Read into first, so that a process that is silent holds no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIPE_PIECE].into());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stdout,
    Stderr,
    Pty,
}

pub(crate) struct Output {
    kind: Kind,
    /// `None` once nothing more comes.
    file: Option<Open>,
    /// Pieces since it last had none.
    burst: u8,
}

struct Open {
    file: Arc<File>,
    ready: AsyncFd<Held>,
}

impl Output {
    /// The file must not block.
    pub(crate) fn new(kind: Kind, fd: OwnedFd) -> io::Result<Self> {
        let file = Arc::new(File::from(fd));
        let ready = watch(Held::File(file.clone()), Interest::READABLE)?;
        Ok(Self { kind, file: Some(Open { file, ready }), burst: 0 })
    }

    pub(crate) fn none(kind: Kind) -> Self {
        Self { kind, file: None, burst: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// `None`: it has ended. Never resolves after that. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        let Some(open) = &self.file else { return std::future::pending().await };
        let limit = self.limit();
        if self.burst == BURST {
            self.burst = 0;
            tokio::task::yield_now().await;
        }
        loop {
            let Ok(mut ready) = open.ready.readable().await else { break };
            match read(&open.file, limit) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    // Less than was asked for from a pipe: more would be announced anew, and
                    // another read only to be told so is not free.
                    if bytes.len() < limit && self.kind != Kind::Pty {
                        ready.clear_ready();
                    }
                    self.burst += 1;
                    return Some(self.piece(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.burst = 0;
                    ready.clear_ready();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal that nobody has open any more says so by an error.
                Err(_ended) => break,
            }
        }
        self.file = None;
        None
    }

    /// What is there already, without waiting.
    pub(crate) fn rest(&mut self) -> Option<Piece> {
        let open = self.file.as_ref()?;
        match read(&open.file, self.limit()) {
            Ok(bytes) if !bytes.is_empty() => Some(self.piece(bytes)),
            Ok(_) | Err(_) => None,
        }
    }

    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    fn limit(&self) -> usize {
        match self.kind {
            Kind::Stdout | Kind::Stderr => PIPE_PIECE,
            Kind::Pty => PTY_PIECE,
        }
    }

    fn piece(&self, bytes: Bytes) -> Piece {
        match self.kind {
            Kind::Stdout => Piece::Stdout(bytes),
            Kind::Stderr => Piece::Stderr(bytes),
            Kind::Pty => Piece::Pty(bytes),
        }
    }
}

fn read(mut file: &File, limit: usize) -> io::Result<Bytes> {
    SCRATCH.with_borrow_mut(|scratch| {
        let room = scratch.get_mut(..limit).ok_or(Errno::EINVAL)?;
        let count = file.read(room)?;
        Ok(Bytes::copy_from_slice(room.get(..count).unwrap_or_default()))
    })
}
