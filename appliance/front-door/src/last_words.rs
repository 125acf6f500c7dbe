//! A stream to a program that may stop listening before it has said all.
//!
//! A program that refuses an upload, or has heard enough, answers and closes while its request is
//! still on the way. The HTTP client takes a write that fails for the end of the connection and
//! throws the answer away, so it is not told while there may be something to read: what can't be
//! said is swallowed, and how the stream ended is the reader's to find out.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct LastWords<S> {
    stream: S,
    /// Nobody listens any more.
    is_deaf: bool,
    /// Nothing more comes.
    is_read: bool,
}

impl<S> LastWords<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, is_deaf: false, is_read: false }
    }

    /// Whether to write at all; `false` is to swallow.
    fn is_heard(&self) -> bool {
        !self.is_deaf || self.is_read
    }

    /// What the stream says of a write; `swallowed` if it is of no use now.
    fn said<T>(&mut self, done: Poll<io::Result<T>>, swallowed: T) -> Poll<io::Result<T>> {
        match done {
            Poll::Ready(Err(_closed)) if !self.is_read => {
                self.is_deaf = true;
                Poll::Ready(Ok(swallowed))
            }
            done @ (Poll::Ready(_) | Poll::Pending) => done,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.is_read |= match &read {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => room > 0 && buf.filled().len() == before,
            Poll::Ready(Err(_broken)) => true,
        };
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_heard() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.said(written, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if !self.is_heard() {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.said(written, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_heard() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.said(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_heard() {
            return Poll::Ready(Ok(()));
        }
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.said(closed, ())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_writer_is_told_of_the_end_once_all_is_read() {
        let (ours, mut theirs) = duplex(64);
        theirs.write_all(b"enough").await.unwrap();
        drop(theirs);
        let mut ours = LastWords::new(ours);
        ours.write_all(&[b'x'; 1000]).await.unwrap();
        ours.flush().await.unwrap();
        let mut heard = String::new();
        ours.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "enough");
        let error = ours.write_all(b"y").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
