//! A thread that lives in a network namespace and does blocking work there, in order.

use std::{
    io,
    os::fd::OwnedFd,
    sync::mpsc::{Sender, channel},
};

use tokio::sync::oneshot;

use super::{NetworkError, namespace};

type Job = Box<dyn FnOnce() + Send>;

/// The thread ends when this is dropped, after the work that is in its queue.
pub(super) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// `None`: in the namespace of this process.
    pub(super) fn start(name: &str, place: Option<OwnedFd>) -> io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let (entered, ready) = channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let moved = place.as_ref().map_or(Ok(()), namespace::enter);
            let lives = moved.is_ok();
            if entered.send(moved).is_err() || !lives {
                return;
            }
            for job in queue {
                job();
            }
        })?;
        ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
        Ok(Self { jobs })
    }

    /// The work is done to its end, also when the caller stops waiting.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, NetworkError> {
        let (answer, result) = oneshot::channel();
        let job = Box::new(move || {
            if answer.send(work()).is_err() { /* nobody waits for it */ }
        });
        if self.jobs.send(job).is_err() {
            return Err(NetworkError::Stopped);
        }
        result.await.map_err(|_ended| NetworkError::Stopped)
    }
}
