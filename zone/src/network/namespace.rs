//! Network namespaces with a name, as `ip netns` keeps them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{NSFS_MAGIC, fstatfs},
};

use super::netlink::Netlink;

const DIRECTORY: &str = "/run/netns";
const NOTHING: Option<&str> = None;

pub(super) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// A mount point that is shared, as `ip netns` makes it: a name that is removed here must not
/// live on in the mount namespaces of others, who would hold the namespace.
pub(super) fn prepare_directory() -> io::Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory)?;
    let share =
        || mount(NOTHING, directory, NOTHING, MsFlags::MS_SHARED | MsFlags::MS_REC, NOTHING);
    match share() {
        Err(Errno::EINVAL) => {
            let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(directory), directory, NOTHING, bind, NOTHING)?;
            share()?;
        }
        other => other?,
    }
    Ok(())
}

/// A new namespace: its descriptor, and a netlink socket that lives in it.
///
/// IPv6 stays off on every interface but loopback, so that nothing waits for an address that
/// never comes.
pub(super) fn create(name: &str, sysctls: &[(&str, &str)]) -> io::Result<(OwnedFd, Netlink)> {
    let path = path(name);
    // The file before the namespace: what a killed process leaves behind has a name.
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path)?;
    let made = elsewhere(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(Some("/proc/thread-self/ns/net"), &path, NOTHING, MsFlags::MS_BIND, NOTHING)?;
        set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        for (key, value) in sysctls {
            set_sysctl(key, value)?;
        }
        let mut netlink = Netlink::open()?;
        if let Some(loopback) = netlink.link("lo")? {
            netlink.set_up(loopback.index)?;
        }
        Ok((File::open(&path)?.into(), netlink))
    });
    if made.is_err()
        && let Err(error) = remove(name)
    {
        tracing::warn!(name, %error, "a namespace stays behind");
    }
    made
}

/// A netlink socket that lives in that namespace.
pub(super) fn netlink(namespace: &OwnedFd) -> io::Result<Netlink> {
    elsewhere(|| {
        enter(namespace)?;
        Netlink::open()
    })
}

/// Does that work in the namespace of that name.
pub(super) fn within<R: Send>(
    name: &str,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    let namespace = open(name)?.ok_or(Errno::ENOENT)?;
    elsewhere(|| {
        enter(&namespace)?;
        work()
    })
}

/// Moves the calling thread, for good.
pub(super) fn enter(namespace: &OwnedFd) -> io::Result<()> {
    Ok(setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?)
}

/// `None`: there is no such name, or a file on which nothing was mounted.
pub(super) fn open(name: &str) -> io::Result<Option<OwnedFd>> {
    let file = match File::open(path(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_namespace = fstatfs(&file)?.filesystem_type() == NSFS_MAGIC;
    Ok(is_namespace.then(|| file.into()))
}

/// One that isn't there is no error. The kernel takes the namespace down some time later.
pub(super) fn remove(name: &str) -> io::Result<()> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn list() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Of the namespace that the calling thread is in. A kernel without IPv6 has no IPv6 to turn off.
pub(super) fn set_sysctl(key: &str, value: &str) -> io::Result<()> {
    match fs::write(sysctl_path(key), value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && key.starts_with("net/ipv6/") => {
            Ok(())
        }
        other => other,
    }
}

pub(super) fn sysctl(key: &str) -> io::Result<String> {
    Ok(fs::read_to_string(sysctl_path(key))?.trim().to_owned())
}

fn sysctl_path(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key)
}

/// In a thread of its own, which may move to another namespace and ends there.
fn elsewhere<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("sbxo-netns".to_owned())
            .spawn_scoped(scope, work)?
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}
