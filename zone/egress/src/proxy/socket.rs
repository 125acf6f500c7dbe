//! A sandbox's end of a connection, of which the first bytes can be looked at.
//!
//! Dropped, it is closed with a reset, unless it has been said that all went well: nobody takes a
//! refusal or half an answer for a proper end.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub(super) struct Socket {
    stream: TcpStream,
    /// Read already, and to be read again.
    ahead: Vec<u8>,
    well: Ending,
}

/// Says how it went, while somebody else owns the socket.
#[derive(Clone, Default)]
pub(super) struct Ending(Arc<AtomicBool>);

impl Ending {
    pub(super) fn well(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> (Self, Ending) {
        let well = Ending::default();
        (Self { stream, ahead: Vec::new(), well: well.clone() }, well)
    }

    /// What it has said so far.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Waits for more of it. `false`: there is no more.
    pub(super) async fn look(&mut self) -> io::Result<bool> {
        self.ahead.reserve(4096);
        Ok(self.stream.read_buf(&mut self.ahead).await? > 0)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.well.0.load(Ordering::Relaxed)
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "reset a connection");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.ahead.len().min(buf.remaining());
        buf.put_slice(self.ahead.get(..length).unwrap_or_default());
        self.ahead.drain(..length);
        if self.ahead.is_empty() {
            self.ahead = Vec::new();
        }
        Poll::Ready(Ok(()))
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
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
