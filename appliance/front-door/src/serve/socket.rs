//! A client's socket that can be cut: closed with a reset, so that no client takes the end of a
//! broken answer for its proper end. Some clients tell the two apart only by this.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub(super) struct Socket {
    stream: TcpStream,
    cut: Arc<AtomicBool>,
}

/// Decides how the socket is closed, while somebody else owns it.
#[derive(Clone)]
pub(super) struct Scissors(Arc<AtomicBool>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> (Self, Scissors) {
        let cut = Arc::<AtomicBool>::default();
        (Self { stream, cut: Arc::clone(&cut) }, Scissors(cut))
    }
}

impl Scissors {
    pub(super) fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.cut.load(Ordering::Relaxed)
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "cut a connection");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
