//! The keeper's own view of mounts, and those of programs that see some files in the places of
//! others.
//!
//! What hides `/proc/sys/net` must not be seen by the host. What the zone mounts later must be
//! seen here, so this namespace follows the host's; where the host's mounts are private, the zone
//! shares the folder that it mounts in before it starts the keeper.

use std::{fs::File, os::fd::OwnedFd, path::PathBuf, rc::Rc};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

use crate::protocol::Bind;

const NONE: Option<&str> = None;
/// With the kernel's words for the network's settings in sight, runsc of mid-2024 refuses to start
/// on kernels from 6.11 on.
const HIDDEN: &str = "/proc/sys/net";

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("enter a mount namespace")]
    Unshare(#[source] nix::Error),
    #[error("hide {HIDDEN}")]
    Hide(#[source] nix::Error),
}

pub(crate) fn hide_proc_sys_net() -> Result<(), MountError> {
    of_its_own().map_err(MountError::Unshare)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    mount(Some("none"), HIDDEN, Some("tmpfs"), flags, Some("size=4k")).map_err(MountError::Hide)
}

/// A mount namespace that follows the one before and is not seen there.
fn of_its_own() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)
}

/// To make and to end one costs milliseconds, so there is one for each set of files, and programs
/// join it. A zone has few sets.
#[derive(Default)]
pub(crate) struct Views(Vec<(Vec<Bind>, Rc<OwnedFd>)>);

/// More are made anew when they are wanted again.
const MOST_VIEWS: usize = 32;

/// Which of the binds failed.
pub(crate) struct BindError {
    pub(crate) target: PathBuf,
    pub(crate) errno: Errno,
}

impl Views {
    /// `None`: the keeper's own.
    pub(crate) fn with(&mut self, binds: &[Bind]) -> Result<Option<Rc<OwnedFd>>, BindError> {
        if binds.is_empty() {
            return Ok(None);
        }
        if let Some((_, view)) = self.0.iter().find(|(known, _)| known == binds) {
            return Ok(Some(Rc::clone(view)));
        }
        let view = Rc::new(make_view(binds)?);
        if self.0.len() == MOST_VIEWS {
            self.0.remove(0);
        }
        self.0.push((binds.to_vec(), Rc::clone(&view)));
        Ok(Some(view))
    }
}

/// The keeper has one thread, which visits the new namespace and comes back.
fn make_view(binds: &[Bind]) -> Result<OwnedFd, BindError> {
    let failed = |errno| BindError { target: PathBuf::new(), errno };
    let own = current().map_err(failed)?;
    of_its_own().map_err(failed)?;
    let bound = binds.iter().try_for_each(|Bind { source, target }| {
        mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE)
            .map_err(|errno| BindError { target: target.clone(), errno })
    });
    let view = bound.and_then(|()| current().map_err(failed));
    setns(&own, CloneFlags::CLONE_NEWNS).map_err(failed)?;
    view
}

fn current() -> Result<OwnedFd, Errno> {
    let opened = File::open("/proc/self/ns/mnt");
    opened
        .map(OwnedFd::from)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}
