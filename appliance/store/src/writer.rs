//! One commit for all writes that wait: 64 writers cost one sync.
//!
//! redb can't make a savepoint in a transaction that has changed anything, so a closure writes
//! into an overlay, which is applied only if it succeeds (docs/adr/0005-group-commit.md).
//! There is no thread of its own: whoever finds nobody committing starts it, and it goes on until
//! nothing waits.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use parking_lot::Mutex;
use redb::Database;
use sandboxo_crashpoint::{Point, crashpoint};
use tokio::sync::oneshot;

use crate::{StoreError, WriteTx, changes, transaction::Tables};

/// More would make the first ones wait too long.
const BATCH: usize = 256;

#[derive(Default)]
pub(crate) struct Writer {
    /// Not bounded here: every entry has a caller that waits, and callers are.
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<dyn Job>>,
    committing: bool,
}

impl Writer {
    /// `true`: the caller has to start [`Self::drain`].
    #[must_use]
    pub(crate) fn push(&self, job: Box<dyn Job>) -> bool {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(job);
        !std::mem::replace(&mut queue.committing, true)
    }

    pub(crate) fn drain(&self, mut commit: impl FnMut(Vec<Box<dyn Job>>)) {
        loop {
            let batch: Vec<_> = {
                let mut queue = self.queue.lock();
                if queue.waiting.is_empty() {
                    queue.committing = false;
                    return;
                }
                let size = queue.waiting.len().min(BATCH);
                queue.waiting.drain(..size).collect()
            };
            commit(batch);
        }
    }
}

/// A write that waits.
pub(crate) trait Job: Send {
    /// Runs the closure. `true`: apply what it staged.
    fn run(&mut self, tx: &mut WriteTx<'_>) -> bool;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

pub(crate) enum Outcome<T, E> {
    Done(Result<T, E>),
    NotCommitted(StoreError),
    Panicked(Box<dyn std::any::Any + Send>),
}

pub(crate) struct Closure<F, T, E> {
    run: Option<F>,
    outcome: Option<Outcome<T, E>>,
    reply: oneshot::Sender<Outcome<T, E>>,
}

impl<F, T, E> Closure<F, T, E> {
    pub(crate) fn new(run: F) -> (Self, oneshot::Receiver<Outcome<T, E>>) {
        let (reply, answer) = oneshot::channel();
        (Self { run: Some(run), outcome: None, reply }, answer)
    }
}

impl<F, T, E> Job for Closure<F, T, E>
where
    F: FnOnce(&mut WriteTx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: Send,
{
    fn run(&mut self, tx: &mut WriteTx<'_>) -> bool {
        let Some(run) = self.run.take() else { return false };
        // The overlay of a closure that panicked is thrown away with it.
        let outcome = match catch_unwind(AssertUnwindSafe(|| run(tx))) {
            Ok(result) => Outcome::Done(result),
            Err(panic) => Outcome::Panicked(panic),
        };
        let keep = matches!(outcome, Outcome::Done(Ok(_)));
        self.outcome = Some(outcome);
        keep
    }

    /// Also a refusal waits for the commit: it may rest on what another closure of the batch
    /// wrote.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let outcome = match (self.outcome, committed) {
            (Some(panicked @ Outcome::Panicked(_)), _) => panicked,
            (Some(done), Ok(())) => done,
            (None, Ok(())) => Outcome::NotCommitted(StoreError::Closed),
            (_, Err(error)) => Outcome::NotCommitted(error),
        };
        if self.reply.send(outcome).is_err() { /* the caller has left; the write stands */ }
    }
}

/// Gives the last sequence number of the feed, if anything was committed.
pub(crate) fn commit(
    database: &Database,
    batch: &mut [Box<dyn Job>],
) -> Result<Option<u64>, StoreError> {
    let transaction = database.begin_write()?;
    let mut last = None;
    {
        let mut tables = Tables::new(&transaction);
        for job in batch {
            let mut tx = WriteTx::new(&mut tables);
            let keep = job.run(&mut tx);
            let staged = tx.into_staged();
            if keep && !staged.is_empty() {
                tables.apply(&staged)?;
                last = Some(changes::append(&mut tables, &staged)?);
            }
        }
    }
    if last.is_some() {
        crashpoint(Point::StoreStaged);
        transaction.commit()?;
        crashpoint(Point::StoreCommitted);
    } else {
        transaction.abort()?;
    }
    Ok(last)
}
