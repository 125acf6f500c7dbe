//! What a driver is told.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{KillCause, NetworkAsked, SandboxRecord, decide::reconcile::Step};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Ended, Kept, NetworkPolicy, Paused};
use tokio::sync::{mpsc, oneshot};

use super::{
    pause::PauseOutcome,
    resume::{ResumeOutcome, Wish},
};
use crate::{context::Context, index::Live};

pub(crate) enum Message {
    /// Answered once it is written down; that it is gone is seen in the record.
    Kill {
        cause: KillCause,
        reply: Reply<()>,
    },
    /// `None`: there is nothing to set it on.
    SetTimeout {
        timeout: Duration,
        only_extend: bool,
        reply: Reply<Option<Arc<SandboxRecord>>>,
    },
    SetNetwork {
        network: Box<NetworkAsked>,
        internet: Option<bool>,
        policy: Box<NetworkPolicy>,
        reply: Reply<Option<NetworkSet>>,
    },
    /// Answered when it has come to an end, one way or the other.
    Pause {
        kept: Kept,
        reply: Reply<PauseOutcome>,
    },
    /// Answered when it runs, or will not.
    Resume {
        wish: Wish,
        reply: Reply<ResumeOutcome>,
    },
    /// Its time is over, and the zone has not ended it.
    Overdue,
    /// The zone says so.
    Ended(Ended),
    /// The zone says so.
    Paused(Paused),
    Reconcile(Step),
    /// Its zone has said hello, and runs it as recorded.
    Agreed,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) struct NetworkSet {
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) in_force: bool,
}

const MAILBOX: usize = 64;
/// Kept free of requests, for what the zone says.
const RESERVED: usize = 16;

/// Closes with its driver. One that panicked leaves its sandbox to another.
pub(super) struct Mailbox {
    messages: mpsc::Receiver<Message>,
    context: Arc<Context>,
}

impl Mailbox {
    pub(super) fn new(context: &Arc<Context>) -> (mpsc::Sender<Message>, Self) {
        let (sender, messages) = mpsc::channel(MAILBOX);
        (sender, Self { messages, context: Arc::clone(context) })
    }

    /// Never `None`: the index holds a sender.
    pub(super) async fn recv(&mut self) -> Option<Message> {
        self.messages.recv().await
    }
}

impl Mailbox {
    /// What was sent before nothing more could be.
    pub(super) fn close(&mut self) -> Vec<Message> {
        self.messages.close();
        std::iter::from_fn(|| self.messages.try_recv().ok()).collect()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.messages.close();
        if std::thread::panicking() {
            self.context.nudge_zone.notify_one();
        }
    }
}

pub(crate) enum SendError {
    /// Too many requests wait.
    Busy,
    /// The driver has ended.
    Gone,
    Store(StoreError),
}

/// A request: refused rather than parked when too many wait.
pub(crate) async fn send<T>(
    live: &Live,
    message: impl FnOnce(Reply<T>) -> Message,
) -> Result<T, SendError> {
    if live.mailbox.capacity() <= RESERVED && !live.mailbox.is_closed() {
        return Err(SendError::Busy);
    }
    let (reply, answer) = oneshot::channel();
    match live.mailbox.try_send(message(reply)) {
        Ok(()) => {}
        Err(mpsc::error::TrySendError::Full(_)) => return Err(SendError::Busy),
        Err(mpsc::error::TrySendError::Closed(_)) => return Err(SendError::Gone),
    }
    match answer.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(SendError::Store(error)),
        Err(_driver_ended) => Err(SendError::Gone),
    }
}

pub(super) fn answer<T>(reply: Reply<T>, answer: Result<T, StoreError>) {
    if reply.send(answer).is_err() { /* the caller has left; what was done stands */ }
}
