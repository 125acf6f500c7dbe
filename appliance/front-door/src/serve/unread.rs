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
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use sandboxo_tasks::Tasks;

/// More than any request that is not an upload.
const AT_MOST: u64 = 256 * 1024;
/// The rest of a small request is right behind its head.
const WITHIN: Duration = Duration::from_secs(1);

/// A request's body; what is dropped of it unread can be had back.
pub(super) struct Watched {
    body: Option<Incoming>,
    answer: Arc<Mutex<Answer>>,
    tasks: Tasks,
}

enum Answer {
    /// Until its head is decided, with what is left of the request by then.
    Awaited(Option<Incoming>),
    OnItsWay,
}

pub(super) struct Unread(Arc<Mutex<Answer>>);

pub(super) fn watch(body: Incoming, tasks: Tasks) -> (Watched, Unread) {
    let answer = Arc::new(Mutex::new(Answer::Awaited(None)));
    (Watched { body: Some(body), answer: Arc::clone(&answer), tasks }, Unread(answer))
}

impl Unread {
    /// Before the head of the answer goes: reads a small rest. `false`: there is more, and the
    /// connection is of no further use.
    pub(super) async fn finish(self, waits_for_continue: bool) -> bool {
        let answer = std::mem::replace(&mut *self.0.lock(), Answer::OnItsWay);
        let Answer::Awaited(Some(body)) = answer else { return true };
        // To read would be to ask for it.
        !waits_for_continue && read(body).await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        match &mut *self.answer.lock() {
            Answer::Awaited(left) => *left = Some(body),
            // Its end may come behind an answer that was quick.
            Answer::OnItsWay => drop(self.tasks.spawn("rest of a request", |stop| async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ended = read(body) => {}
                }
            })),
        }
    }
}

async fn read(mut body: Incoming) -> bool {
    if body.size_hint().lower() > AT_MOST {
        return false;
    }
    let read = async {
        let mut length = 0;
        loop {
            match body.frame().await {
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
