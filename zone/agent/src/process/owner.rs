//! One task per process: it alone reads what the process says, and knows when it is over.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use sandboxo_agent_proto::process::ProcessConfig;
use sandboxo_tasks::Stop;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    exit::Exit,
    input::Input,
    output::Output,
    pty::Size,
    readers::{End, Piece, Readers},
};

/// A terminal has nothing more to say when it has been silent so long after its shell's end. Who
/// was started from it may keep it open for ever.
const TERMINAL_QUIET: Duration = Duration::from_millis(50);
/// Pieces taken from a file of a process that was killed: as much as a pipe holds.
const LAST_PIECES: usize = 4;

pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) config: ProcessConfig,
    pub(crate) tag: Option<String>,
    pub(crate) input: Input,
    pub(crate) readers: Readers,
    pub(crate) terminal: Option<std::os::fd::OwnedFd>,
    /// It is reaped: its number may be someone else's.
    exited: AtomicBool,
    /// A client ended it: its end is told without waiting for its files.
    ended_by_client: AtomicBool,
    nudge: Notify,
    /// Everyone has been told.
    over: Stop,
}

impl Process {
    pub(crate) fn new(
        pid: Pid,
        config: ProcessConfig,
        tag: Option<String>,
        input: Input,
        terminal: Option<std::os::fd::OwnedFd>,
    ) -> Self {
        Self {
            pid,
            config,
            tag,
            input,
            readers: Readers::default(),
            terminal,
            exited: AtomicBool::new(false),
            ended_by_client: AtomicBool::new(false),
            nudge: Notify::new(),
            over: Stop::new(),
        }
    }

    /// For SIGKILL and SIGTERM.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        self.ended_by_client.store(true, Ordering::Relaxed);
        if self.exited.load(Ordering::Relaxed) {
            self.nudge.notify_one();
            return Ok(());
        }
        kill(self.pid, signal)
    }

    /// `None`: it has no terminal.
    pub(crate) fn resize(&self, size: Size) -> Option<Result<(), Errno>> {
        let master = self.terminal.as_ref()?;
        let resized = super::pty::resize(master, size);
        if resized.is_ok() {
            super::pty::tell_size(master, self.pid);
        }
        Some(resized)
    }

    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Out of the tables of those that live.
    pub(crate) fn set_over(&self) {
        self.over.cancel();
    }

    /// Until it is over. [`Self::finish`] tells everyone.
    pub(crate) async fn watch_over(
        &self,
        mut outputs: [Output; 2],
        mut exit: oneshot::Receiver<Exit>,
        deadline: Option<Instant>,
    ) -> End {
        let mut exited = None;
        let mut timed_out = false;
        let mut delivery = None;
        let mut quiet_at = None;
        let exit = loop {
            if let Some(exit) = exited {
                let hurried = timed_out || self.ended_by_client.load(Ordering::Relaxed);
                if hurried || (delivery.is_none() && !outputs.iter().any(Output::is_open)) {
                    break exit;
                }
            }
            tokio::select! {
                // Ends before output, or a flood would hide them.
                biased;
                code = &mut exit, if exited.is_none() => {
                    self.exited.store(true, Ordering::Relaxed);
                    // The reaper answers all it was asked for.
                    exited = Some(code.unwrap_or(Exit::Code(-1)));
                    quiet_at = self.terminal.is_some().then(|| Instant::now() + TERMINAL_QUIET);
                }
                () = moment(deadline), if !timed_out => {
                    timed_out = true;
                    self.kill_all();
                }
                () = self.nudge.notified(), if exited.is_some() => {}
                () = running(&mut delivery), if delivery.is_some() => delivery = None,
                piece = next_of(&mut outputs), if delivery.is_none() => {
                    if let Some(piece) = piece {
                        quiet_at = quiet_at.map(|_before| Instant::now() + TERMINAL_QUIET);
                        delivery = Some(Box::pin(self.readers.deliver(piece)));
                    }
                }
                () = moment(quiet_at), if delivery.is_none() => {
                    quiet_at = None;
                    outputs.iter_mut().for_each(Output::close);
                }
            }
        };
        drop(delivery);
        for output in &mut outputs {
            for piece in std::iter::from_fn(|| output.rest()).take(LAST_PIECES) {
                self.readers.offer(&piece);
            }
        }
        End { exit, timed_out }
    }

    pub(crate) fn finish(&self, end: End) {
        self.input.end();
        self.readers.finish(end);
    }

    /// With all that it started and that stayed in its group: its time was for them too.
    pub(super) fn kill_all(&self) {
        if killpg(self.pid, Signal::SIGKILL).is_err() {
            // None is left.
        }
    }
}

async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn running<F: Future<Output = ()> + Unpin>(delivery: &mut Option<F>) {
    match delivery {
        Some(delivery) => delivery.await,
        None => std::future::pending().await,
    }
}

/// `None`: one of them has ended.
async fn next_of(outputs: &mut [Output; 2]) -> Option<Piece> {
    let [first, second] = outputs;
    tokio::select! {
        piece = first.next() => piece,
        piece = second.next() => piece,
    }
}
