//! The keeper's own view of mounts.
//!
//! What hides `/proc/sys/net` must not be seen by the host, and what the zone mounts later must be
//! seen here. So the keeper's namespace follows the host's, and folders where the zone mounts are
//! made shared first, as a mount on a private one is passed on to nobody.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

const NONE: Option<&str> = None;
/// With the kernel's word for this network's settings present, runsc of mid-2024 refuses to start
/// on kernels from 6.11 on.
const HIDDEN: &str = "/proc/sys/net";

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("read the mounts of this process")]
    Read(#[source] io::Error),
    #[error("share the mounts below {}", dir.display())]
    Share { dir: PathBuf, source: nix::Error },
    #[error("enter a mount namespace")]
    Unshare(#[source] nix::Error),
    #[error("hide {HIDDEN}")]
    Hide(#[source] nix::Error),
}

/// The way back to the host's mounts.
pub(crate) struct Host {
    namespace: File,
}

pub(crate) fn enter(share: &[PathBuf]) -> Result<Host, MountError> {
    let namespace = File::open("/proc/self/ns/mnt").map_err(MountError::Read)?;
    for dir in share {
        make_shared(dir)?;
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(MountError::Unshare)?;
    mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)
        .map_err(MountError::Unshare)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    mount(Some("none"), HIDDEN, Some("tmpfs"), flags, Some("size=4k")).map_err(MountError::Hide)?;
    Ok(Host { namespace })
}

fn make_shared(dir: &Path) -> Result<(), MountError> {
    let failed = |source| MountError::Share { dir: dir.to_owned(), source };
    if of(&read()?, dir).is_some_and(|mount| mount.shared) {
        return Ok(());
    }
    let recursive = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(dir), dir, NONE, recursive, NONE).map_err(failed)?;
    mount(NONE, dir, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE).map_err(failed)
}

impl Host {
    /// Takes back what `enter` left on the host, and is from then on where the host is.
    pub(crate) fn leave(&self, share: &[PathBuf]) -> Result<(), MountError> {
        setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNS).map_err(MountError::Unshare)?;
        for dir in share {
            if of(&read()?, dir).is_some_and(|mount| mount.is_ours(dir)) {
                umount2(dir, MntFlags::MNT_DETACH)
                    .map_err(|source| MountError::Share { dir: dir.clone(), source })?;
            }
        }
        Ok(())
    }
}

fn read() -> Result<Vec<u8>, MountError> {
    std::fs::read("/proc/self/mountinfo").map_err(MountError::Read)
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    root: PathBuf,
    point: PathBuf,
    shared: bool,
}

impl Mount {
    /// A folder mounted on itself, as `make_shared` does it.
    fn is_ours(&self, dir: &Path) -> bool {
        self.shared && self.point == dir && self.root != Path::new("/")
    }
}

/// The mount that a folder is on. The last of several at one place is on top.
fn of(mountinfo: &[u8], dir: &Path) -> Option<Mount> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .filter(|mount| dir.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    let optional = fields.skip(1).take_while(|field| *field != b"-");
    let shared = optional.into_iter().any(|field| field.starts_with(b"shared:"));
    Some(Mount { root: unescaped(root), point: unescaped(point), shared })
}

/// Blanks and the like are octal.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'\\'
            && let Some((digits, after)) = rest.split_first_chunk::<3>()
            && let Some(byte) = octal(*digits)
        {
            bytes.push(byte);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    OsString::from_vec(bytes).into()
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "\
27 1 254:0 / / rw - ext4 /dev/root rw
30 27 0:30 / /run rw,nosuid shared:2 - tmpfs none rw
31 27 254:0 /srv/state /srv/state rw shared:7 master:1 - ext4 /dev/root rw
32 27 0:31 / /srv/a\\040b rw master:3 - tmpfs none rw
33 30 0:32 / /run rw - tmpfs over rw
";

    #[test]
    fn table() {
        let mount = |root: &str, point: &str, shared| {
            Some(Mount { root: root.into(), point: point.into(), shared })
        };
        for (dir, expected, ours) in [
            ("/srv", mount("/", "/", false), false),
            ("/srv/state", mount("/srv/state", "/srv/state", true), true),
            ("/srv/state/zone", mount("/srv/state", "/srv/state", true), false),
            ("/srv/statement", mount("/", "/", false), false),
            ("/srv/a b/c", mount("/", "/srv/a b", false), false),
            ("/run/x", mount("/", "/run", false), false),
        ] {
            let found = of(INFO.as_bytes(), Path::new(dir));
            assert_eq!(found.as_ref().map(|mount| mount.is_ours(Path::new(dir))), Some(ours));
            assert_eq!(found, expected, "{dir}");
        }
    }
}
