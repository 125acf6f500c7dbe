//! The keeper's own view of mounts.
//!
//! What hides `/proc/sys/net` must not be seen by the host. What the zone mounts later must be
//! seen here, so this namespace follows the host's; where the host's mounts are private, the zone
//! shares the folder that it mounts in before it starts the keeper.

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

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
    unshare(CloneFlags::CLONE_NEWNS).map_err(MountError::Unshare)?;
    mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)
        .map_err(MountError::Unshare)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    mount(Some("none"), HIDDEN, Some("tmpfs"), flags, Some("size=4k")).map_err(MountError::Hide)
}
