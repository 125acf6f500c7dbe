//! What an answer leaves unread of its request. Closing a connection over bytes that are still on
//! their way resets it, maybe under the next request of a client that was told nothing.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

/// More than any request that is not an upload.
const AT_MOST: u64 = 256 * 1024;
/// The rest of a small request is right behind its head.
const WITHIN: Duration = Duration::from_secs(1);

type Slot = Arc<Mutex<Option<Incoming>>>;

/// A request's body; what is dropped of it unread can be had back.
pub(super) struct Watched {
    body: Option<Incoming>,
    slot: Slot,
}

pub(super) struct Unread(Slot);

pub(super) fn watch(body: Incoming) -> (Watched, Unread) {
    let slot = Slot::default();
    (Watched { body: Some(body), slot: Arc::clone(&slot) }, Unread(slot))
}

impl Unread {
    /// Reads a small rest. `false`: there is more, and the connection is of no further use.
    pub(super) async fn finish(self, waits_for_continue: bool) -> bool {
        let Some(mut body) = self.0.lock().take() else { return true };
        // To read would be to ask for it.
        if waits_for_continue || body.size_hint().lower() > AT_MOST {
            return false;
        }
        let read = async {
            let mut length = 0;
            loop {
                match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    None => return true,
                    Some(Err(_broken)) => return false,
                    Some(Ok(frame)) => length += frame.data_ref().map_or(0, Bytes::len) as u64,
                }
                if length > AT_MOST {
                    return false;
                }
            }
        };
        tokio::time::timeout(WITHIN, read).await.unwrap_or(false)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !body.is_end_stream()
        {
            *self.slot.lock() = Some(body);
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
