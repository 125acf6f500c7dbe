//! The one place that waits for children: started by the agent, or left to it by others.

use std::{collections::HashMap, io, sync::Arc};

use nix::{errno::Errno, libc, unistd::Pid};
use parking_lot::Mutex;
use sandboxo_tasks::Stop;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use super::exit::Exit;

#[derive(Default)]
pub(crate) struct Reaper {
    awaited: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
}

impl Reaper {
    /// To be called before the thread that spawned goes back to its event loop: until then nothing
    /// is reaped.
    pub(crate) fn expect(&self, pid: Pid) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        self.awaited.lock().insert(pid.as_raw(), sender);
        receiver
    }

    /// Deaths from here on are heard.
    pub(crate) fn listen() -> io::Result<tokio::signal::unix::Signal> {
        signal(SignalKind::child())
    }

    pub(crate) async fn run(self: Arc<Self>, mut deaths: tokio::signal::unix::Signal, stop: Stop) {
        loop {
            self.reap();
            tokio::select! {
                () = stop.cancelled() => return,
                _ = deaths.recv() => {}
            }
        }
    }

    fn reap(&self) {
        while let Some((pid, exit)) = next_death() {
            if let Some(waiting) = self.awaited.lock().remove(&pid)
                && waiting.send(exit).is_err()
            {
                // Its owner has ended already.
            }
        }
    }
}

/// By the raw call: the library's loses the process that died of a signal it has no name for.
#[expect(unsafe_code, reason = "a raw system call")]
fn next_death() -> Option<(i32, Exit)> {
    loop {
        let mut status = 0;
        // SAFETY: the status is ours to write.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid > 0 {
            return Some((pid, Exit::of(status)));
        }
        if pid == 0 || Errno::last() != Errno::EINTR {
            return None;
        }
    }
}
