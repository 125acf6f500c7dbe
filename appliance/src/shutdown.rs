//! Signals, and what systemd is told.

use std::{future::Future, io, os::unix::net::UnixDatagram, time::Duration};

use sandboxo_tasks::{Stop, Tasks};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// How long open requests and loops have to end.
const GRACE: Duration = Duration::from_secs(20);

/// How long pauses and snapshots that are under way have to end, for which they get 80 seconds.
const DRAIN: Duration = Duration::from_secs(95);

/// Why the process ends; each has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A signal asked, and everything ended in time.
    Asked,
    /// Something that must not end did.
    Crashed,
    /// A second signal, or the grace had passed.
    Hard,
}

impl End {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Asked => 0,
            Self::Crashed => 3,
            Self::Hard => 4,
        }
    }
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the process does not die of them by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal or a crash, then for what must not be cut off, while clients are still
/// served, and then for the tasks. Sandboxes stay up: the keeper has them.
pub(crate) async fn run(
    signals: &mut Signals,
    tasks: &Tasks,
    drained: impl Future<Output = ()>,
) -> End {
    let stop: Stop = tasks.stop();
    let end = tokio::select! {
        () = signals.next() => End::Asked,
        () = stop.cancelled() => End::Crashed,
    };
    notify("STOPPING=1");
    tracing::info!(crashed = end == End::Crashed, "stopping; sandboxes stay up");
    tokio::select! {
        drained = timeout(DRAIN, drained) => if drained.is_err() {
            tracing::warn!(after = ?DRAIN, "a pause or snapshot is cut off");
        },
        () = stop.cancelled() => {}
        () = signals.next() => {
            tracing::warn!("second signal: ending at once");
            return End::Hard;
        }
    }
    tokio::select! {
        in_time = tasks.shut_down(GRACE) => {
            if in_time {
                end
            } else {
                tracing::warn!(grace = ?GRACE, "some tasks did not end in time");
                End::Hard
            }
        }
        () = signals.next() => {
            tracing::warn!("second signal: ending at once");
            End::Hard
        }
    }
}

/// Tells systemd, if it is listening.
pub(crate) fn notify(state: &str) {
    let Some(path) = crate::config::notify_socket() else { return };
    if let Err(error) = send(path.as_encoded_bytes(), state) {
        tracing::warn!(error = &error as &dyn std::error::Error, "systemd was not told");
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::{ffi::OsStrExt, net::SocketAddr},
    };
    let address = match path {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_sent| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_hears_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_encoded_bytes(), "READY=1").unwrap();
        let mut heard = [0; 16];
        let length = socket.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1");
    }
}
