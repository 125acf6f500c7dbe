//! A pair of terminal ends.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl, open},
    libc,
    pty::{PtyMaster, Winsize, grantpt, posix_openpt, ptsname_r, unlockpt},
    sys::{
        signal::{Signal, killpg},
        stat::Mode,
    },
    unistd::{Gid, Pid, Uid, fchown, getpgid, getsid, tcgetpgrp},
};

nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, Winsize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

pub(crate) struct Pair {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// The slave belongs to `owner`, who can open it by name.
pub(crate) fn open_pair(size: Size, owner: u32) -> Result<Pair, Errno> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let master = posix_openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave_flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let slave = open(ptsname_r(&master)?.as_str(), slave_flags, Mode::empty())?;
    // The group that `mesg` and `write` go by is left as the file system has it.
    fchown(&slave, Some(Uid::from_raw(owner)), None::<Gid>)?;
    let master = into_owned(master);
    resize(&master, size)?;
    Ok(Pair { master, slave })
}

pub(crate) fn resize(master: &impl AsRawFd, size: Size) -> Result<(), Errno> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    set_size(master, size)
}

/// To those in `session`, which has the terminal. gVisor sets a size and tells nobody of it, nor
/// which group is in front; so all hear it, and it ends nobody. A kernel that knows the group in
/// front has told it already.
pub(crate) fn tell_size(master: &impl AsFd, session: Pid) {
    if tcgetpgrp(master).is_err() {
        tell_size_to(session);
    }
}

pub(crate) fn tell_size_to(session: Pid) {
    for group in groups_of(session) {
        if killpg(group, Signal::SIGWINCH).is_err() {
            // It has just ended.
        }
    }
}

fn groups_of(session: Pid) -> BTreeSet<Pid> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|pid| getsid(Some(*pid)) == Ok(session))
        .filter_map(|pid| getpgid(Some(pid)).ok())
        .collect()
}

#[expect(unsafe_code, reason = "an ioctl")]
fn set_size(master: &impl AsRawFd, size: Winsize) -> Result<(), Errno> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the size is read only.
    unsafe { set_window_size(master.as_raw_fd(), &raw const size) }.map(drop)
}

/// A second descriptor of the same end: an event loop takes each only once.
pub(crate) fn second(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    fd.try_clone().map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

pub(crate) fn unblock(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

pub(crate) fn block(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::empty())).map(drop)
}

#[expect(unsafe_code, reason = "the library's type has no other way out")]
fn into_owned(master: PtyMaster) -> OwnedFd {
    use std::os::fd::{FromRawFd, IntoRawFd};
    // SAFETY: the number was given up by its owner in the same breath.
    unsafe { OwnedFd::from_raw_fd(master.into_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_with_its_groups() {
        let session = getsid(None).unwrap();
        let own = getpgid(None).unwrap();
        assert!(groups_of(session).contains(&own));
        assert!(groups_of(Pid::from_raw(i32::MAX)).is_empty());
    }
}
