//! A client's socket and how it is closed.
//!
//! One that is cut is closed with a reset, so that no client takes the end of a broken answer for
//! its proper end; some clients tell the two apart only by this. One that lingers is not: a client
//! that is still sending when it is answered would meet the reset, and never read the answer.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::oneshot,
};

/// How long a client may go on with what nobody reads.
const LINGER: Duration = Duration::from_secs(5);
const DISCARD_BYTES: usize = 64 * 1024;

pub(super) struct Socket {
    /// `None` only while it is dropped.
    stream: Option<TcpStream>,
    fate: Fate,
    left: Option<oneshot::Sender<TcpStream>>,
}

/// Decides how the socket is closed, while somebody else owns it.
#[derive(Clone, Default)]
pub(super) struct Fate {
    cut: Arc<AtomicBool>,
    lingers: Arc<AtomicBool>,
}

/// What is left of one that lingers, once its owner has dropped it.
pub(super) struct Left(oneshot::Receiver<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> (Self, Fate, Left) {
        let (sender, receiver) = oneshot::channel();
        let fate = Fate::default();
        let socket = Self { stream: Some(stream), fate: fate.clone(), left: Some(sender) };
        (socket, fate, Left(receiver))
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Fate {
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Its client may still be sending when it is answered.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }
}

impl Left {
    /// Reads what still comes, until the client has heard that it is enough.
    pub(super) async fn run_dry(mut self) {
        let Ok(mut stream) = self.0.try_recv() else { return };
        let dry = async {
            let mut nowhere = vec![0; DISCARD_BYTES];
            while stream.read(&mut nowhere).await.is_ok_and(|count| count > 0) {}
        };
        if tokio::time::timeout(LINGER, dry).await.is_err() {
            tracing::debug!("a client went on sending what nobody reads");
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if self.fate.cut.load(Ordering::Relaxed) {
            if let Err(error) = stream.set_zero_linger() {
                tracing::debug!(error = &error as &dyn std::error::Error, "cut a connection");
            }
        } else if self.fate.lingers.load(Ordering::Relaxed)
            && let Some(left) = self.left.take()
            && left.send(stream).is_err()
        {
            // Nobody waits for it any more.
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
