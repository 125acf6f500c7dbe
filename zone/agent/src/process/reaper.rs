//! The one place that waits for children: started by the agent, or left to it by others.
//!
//! Deaths are read from a descriptor and not told by a handler: a signal that comes while the agent
//! waits for a new process to run its program is queued by gVisor and never handled.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use nix::{
    errno::Errno,
    libc,
    sys::{
        signal::{SigSet, Signal, killpg},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, getsid},
};
use parking_lot::Mutex;
use sandboxo_tasks::Stop;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
    time::sleep,
};

use super::exit::Exit;
use crate::readiness::{Held, watch};

/// While somebody waits for a death it is looked for that often, told or not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Reaper {
    awaited: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
    asked: Notify,
}

/// Tells that children have died.
pub(crate) struct Deaths {
    news: Arc<SignalFd>,
    ready: AsyncFd<Held>,
}

impl Reaper {
    /// To be called before the thread that spawned goes back to its event loop: until then nothing
    /// is reaped.
    pub(crate) fn expect(&self, pid: Pid) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        self.awaited.lock().insert(pid.as_raw(), sender);
        self.asked.notify_one();
        receiver
    }

    /// Deaths from here on are heard, where the signal of it is blocked.
    pub(crate) fn listen() -> io::Result<Deaths> {
        let mut death = SigSet::empty();
        death.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let news = Arc::new(SignalFd::with_flags(&death, flags)?);
        let ready = watch(Held::Signals(news.clone()), Interest::READABLE)?;
        Ok(Deaths { news, ready })
    }

    pub(crate) async fn run(self: Arc<Self>, deaths: Deaths, stop: Stop) {
        loop {
            let is_awaited = !self.awaited.lock().is_empty();
            tokio::select! {
                () = stop.cancelled() => return,
                () = deaths.some() => self.reap(),
                () = sleep(LOOK_AGAIN), if is_awaited => self.reap(),
                () = self.asked.notified() => {}
            }
        }
    }

    fn reap(&self) {
        while let Some((pid, change)) = next_change() {
            let Change::Ended(exit) = change else {
                go_on(pid);
                continue;
            };
            if let Some(waiting) = self.awaited.lock().remove(&pid)
                && waiting.send(exit).is_err()
            {
                // Its owner has ended already.
            }
        }
    }
}

impl Deaths {
    /// Of several that nobody looked at, one is told.
    async fn some(&self) {
        loop {
            let Ok(mut ready) = self.ready.readable().await else {
                return std::future::pending().await;
            };
            if matches!(self.news.read_signal(), Ok(Some(_))) {
                return;
            }
            ready.clear_ready();
        }
    }
}

enum Change {
    Ended(Exit),
    /// By its terminal.
    Stopped,
}

/// Who leads a session has nobody outside of it who could let it go on, so a kernel does not let
/// its terminal stop it. gVisor does.
fn go_on(pid: i32) {
    let pid = Pid::from_raw(pid);
    if getsid(Some(pid)) == Ok(pid) && killpg(pid, Signal::SIGCONT).is_err() {
        // It was killed meanwhile.
    }
}

/// By the raw call: the library's loses the process that died of a signal it has no name for.
#[expect(unsafe_code, reason = "a raw system call")]
fn next_change() -> Option<(i32, Change)> {
    let options = libc::WNOHANG | libc::WUNTRACED;
    loop {
        let mut status = 0;
        // SAFETY: the status is ours to write.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
        if pid > 0 && !libc::WIFSTOPPED(status) {
            return Some((pid, Change::Ended(Exit::of(status))));
        }
        if pid > 0 && libc::WSTOPSIG(status) == libc::SIGTSTP {
            return Some((pid, Change::Stopped));
        }
        if pid > 0 {
            continue;
        }
        if pid == 0 || Errno::last() != Errno::EINTR {
            return None;
        }
    }
}
