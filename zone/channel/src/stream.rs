//! One stream: bytes both ways, each with its own end.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    link::{Link, State},
    mux::{Read, StreamKey, Write},
};

/// Shutting down ends this side's bytes and leaves the other's. Dropping lets go of both: after a
/// shutdown all that was written still arrives, without one the peer sees a reset.
pub struct Stream {
    link: Arc<Link>,
    key: StreamKey,
    /// Keeps a zone's end from closing.
    _holder: Option<Arc<dyn Send + Sync>>,
}

impl Stream {
    pub(crate) fn new(
        link: Arc<Link>,
        key: StreamKey,
        holder: Option<Arc<dyn Send + Sync>>,
    ) -> Self {
        Self { link, key, _holder: holder }
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut State) -> Write,
    ) -> Poll<io::Result<usize>> {
        // Nothing is sent by a write that has to wait.
        let written = self.link.change_if(|state| {
            if state.closed.is_some() {
                return (Write::Broken, false);
            }
            let written = write(state);
            if written == Write::Full {
                state.wakers(self.key).write = Some(cx.waker().clone());
            }
            let sends = matches!(written, Write::Accepted(_));
            (written, sends)
        });
        match written {
            Write::Accepted(count) => Poll::Ready(Ok(count)),
            Write::Full => Poll::Pending,
            Write::Broken => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let key = self.key;
        let read = self.link.change_if(|state| {
            let waiting = state.mux.has_control();
            let mut read = state.mux.read(key, buf.remaining(), |bytes| buf.put_slice(bytes));
            if read == Read::Empty {
                if state.closed.is_some() {
                    read = Read::Broken;
                } else {
                    state.wakers(key).read = Some(cx.waker().clone());
                }
            }
            // Credit may be due.
            let sends = !waiting && state.mux.has_control();
            (read, sends)
        });
        match read {
            Read::Bytes(_) | Read::End => Poll::Ready(Ok(())),
            Read::Empty => Poll::Pending,
            Read::Broken => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |state| state.mux.write(self.key, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |state| {
            let mut total = 0;
            for slice in slices.iter().filter(|slice| !slice.is_empty()) {
                match state.mux.write(self.key, slice) {
                    Write::Accepted(count) => total += count,
                    // What was taken before is taken.
                    Write::Full | Write::Broken if total > 0 => break,
                    refused @ (Write::Full | Write::Broken) => return refused,
                }
            }
            Write::Accepted(total)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.change(|state| state.mux.finish(self.key));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.link.change(|state| {
            state.forget(self.key);
            state.mux.close(self.key);
        });
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.key).finish()
    }
}
