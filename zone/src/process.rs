//! Processes of the host by descriptor, so that a reused pid is never taken for the old one.

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use nix::{
    libc,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::io::{Interest, unix::AsyncFd};

/// Names one process for as long as the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessMark {
    pub(crate) pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since the host's boot.
    pub(crate) started: u64,
}

impl ProcessMark {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let started = start_time(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in stat"))?;
        Ok(Self { pid, started })
    }

    pub(crate) fn is_alive(self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| {
            start_time(&stat) == Some(self.started) && !matches!(state(&stat), Some('Z' | 'X'))
        })
    }
}

/// The command's name may hold spaces and parentheses, so fields are counted from its end.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn state(stat: &str) -> Option<char> {
    fields(stat).next()?.chars().next()
}

fn start_time(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}

/// A process whose end can be awaited whoever its parent is.
#[derive(Debug)]
pub(crate) struct Process {
    mark: ProcessMark,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Fails with `NotFound` when the marked process is gone.
    pub(crate) fn open(mark: ProcessMark) -> io::Result<Self> {
        let fd = pidfd_open(mark.pid)?;
        // The descriptor holds whoever has the pid now: make sure that it is still the one.
        if !mark.is_alive() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { mark, fd: watch(fd)? })
    }

    pub(crate) fn mark(&self) -> ProcessMark {
        self.mark
    }

    pub(crate) async fn ended(&self) {
        // An error means that the descriptor can't be polled, and then nobody can tell more.
        if let Err(error) = self.fd.readable().await {
            tracing::error!(pid = self.mark.pid, error = &error as &dyn std::error::Error, "pidfd");
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.mark.is_alive()
    }

    pub(crate) fn kill(&self) {
        pidfd_kill(self.fd.get_ref());
    }
}

#[expect(unsafe_code, reason = "tokio leaves it to us that the descriptor stays the same one")]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` gives one descriptor for as long as it lives, and is not taken out.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

#[expect(unsafe_code, reason = "nix has no pidfd_open")]
fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers, gives a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, libc::PIDFD_NONBLOCK) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
            _ => error,
        });
    }
    // SAFETY: the call above made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "nix has no pidfd_send_signal")]
fn pidfd_kill(fd: &OwnedFd) {
    // SAFETY: integers and a null pointer, which the call allows.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    // The only failure left for root is that it is gone, which is what was wanted.
    if done != 0 {
        tracing::trace!("the process to kill was gone");
    }
}

/// For a pid that was read a moment ago from a place that lists only ours, such as a cgroup.
pub(crate) fn kill_now(pid: i32) {
    if pid > 1 && kill(Pid::from_raw(pid), Signal::SIGKILL).is_err() {
        tracing::trace!(pid, "the process to kill was gone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_nasty_name() {
        let line = "77 (a) b (c)) S 1 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 1 18";
        assert_eq!(start_time(line), Some(4242));
        assert_eq!(state(line), Some('S'));
    }

    #[test]
    fn a_mark_is_of_one_process_only() {
        let own = ProcessMark::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessMark { started: own.started + 1, ..own }.is_alive());
    }

    #[tokio::test]
    async fn a_killed_process_is_seen_to_end() {
        let mut child = tokio::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let process = Process::open(ProcessMark::of(pid).unwrap()).unwrap();
        assert!(!process.has_ended());
        process.kill();
        process.ended().await;
        assert!(process.has_ended());
        child.wait().await.unwrap();
        assert!(Process::open(process.mark()).is_err());
    }
}
