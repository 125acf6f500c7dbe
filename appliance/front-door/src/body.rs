//! Bodies on their way through: passed on piece by piece, watched for standstill.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep},
};

/// When a byte last moved in either direction of one request.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    since: Instant,
    at: Arc<AtomicU64>,
}

impl Moved {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), at: Arc::default() }
    }

    fn touch(&self) {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(elapsed, Ordering::Relaxed);
    }

    pub(crate) fn last(&self) -> Instant {
        self.since + Duration::from_millis(self.at.load(Ordering::Relaxed))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("nothing moved for {0:?}")]
pub(crate) struct Standstill(Duration);

/// The client's body: each piece counts as movement.
pub(crate) struct Upload {
    pub(crate) inner: axum::body::Body,
    pub(crate) moved: Moved,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if frame.is_ready() {
            self.moved.touch();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The program's body. An error in it, of its own or for standstill, makes the server cut the
/// client's socket: a broken answer must not look whole.
pub(crate) struct Download<B> {
    inner: B,
    moved: Moved,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// Held as long as the body is on its way.
    _permit: OwnedSemaphorePermit,
}

impl<B> Download<B> {
    pub(crate) fn new(
        inner: B,
        moved: Moved,
        limit: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let timer = Box::pin(tokio::time::sleep(limit));
        Self { inner, moved, limit, timer, _permit: permit }
    }
}

impl<B> Body for Download<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.moved.touch();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        // The timer is only moved when it fires, not for every piece.
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.moved.last() + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(Some(Err(Standstill(self.limit).into())));
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
