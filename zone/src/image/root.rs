//! A folder that names are resolved in as if it were `/`.
//!
//! The kernel resolves (`openat2` with `RESOLVE_IN_ROOT`), so a link of the archive can't lead
//! out, whatever it says and whenever it was made.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlink},
    libc,
    sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstatat, mkdirat, mknodat},
    unistd::{Gid, LinkatFlags, Uid, UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat},
};

pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let path = readlink(&magic(&fd))?.into();
        Ok(Self { fd, path })
    }

    /// A folder, through links, which is not made.
    pub(super) fn known_folder(&self, path: &Path) -> io::Result<Folder<'_>> {
        let fd = self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(Folder { root: self, fd })
    }

    /// A folder, through links; made with everything above it if it isn't there.
    pub(super) fn folder(&self, path: &Path) -> io::Result<Folder<'_>> {
        match self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY) {
            Err(Errno::ENOENT) => {
                let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(io::ErrorKind::InvalidInput.into());
                };
                match self.folder(above)?.make_folder(name) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
                let fd = self.resolve(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
                Ok(Folder { root: self, fd })
            }
            fd => Ok(Folder { root: self, fd: fd? }),
        }
    }

    /// A name that was given earlier, not through a link at its end.
    pub(super) fn existing(&self, path: &Path) -> io::Result<OwnedFd> {
        Ok(self.resolve(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?)
    }

    /// To be read, through links.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        // Nobody waits for the other end of a pipe.
        let file = File::from(self.resolve(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"))
        }
    }

    /// Everything of this file system is on the disk once it returns.
    #[expect(unsafe_code, reason = "nix has syncfs for other targets only")]
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: takes an open descriptor.
        if unsafe { libc::syncfs(self.fd.as_raw_fd()) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn resolve(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&self.fd, path, how)
    }
}

pub(super) struct Folder<'a> {
    root: &'a Root,
    fd: OwnedFd,
}

impl Folder<'_> {
    /// How many folders lie between the root and this one, links resolved.
    pub(super) fn depth(&self) -> io::Result<usize> {
        let path = PathBuf::from(readlink(&magic(&self.fd))?);
        Ok(path.strip_prefix(&self.root.path).map_or(0, |below| below.components().count()))
    }

    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            stat => Ok(Some(stat?)),
        }
    }

    /// The mode is set later: until then nobody else may look in.
    pub(super) fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755))?)
    }

    pub(super) fn make_file(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::openat(&self.fd, name, flags, Mode::from_bits_truncate(0o600))?;
        Ok(fd.into())
    }

    pub(super) fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.fd, name)?)
    }

    pub(super) fn make_hard_link(&self, name: &OsStr, to: &OwnedFd) -> io::Result<()> {
        let from = magic(to);
        Ok(linkat(nix::fcntl::AT_FDCWD, &from, &self.fd, name, LinkatFlags::AT_SYMLINK_FOLLOW)?)
    }

    pub(super) fn make_fifo(&self, name: &OsStr) -> io::Result<()> {
        Ok(mknodat(&self.fd, name, SFlag::S_IFIFO, Mode::from_bits_truncate(0o600), 0)?)
    }

    /// A folder goes only if it is empty.
    pub(super) fn remove(&self, name: &OsStr, is_folder: bool) -> io::Result<()> {
        let flag = if is_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        Ok(unlinkat(&self.fd, name, flag)?)
    }

    /// Whatever is there, with all that is in it. Links in it are not followed.
    pub(super) fn remove_tree(&self, name: &OsStr) -> io::Result<()> {
        match self.remove(name, false) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                std::fs::remove_dir_all(magic(&self.fd).join(name))
            }
            removed => removed,
        }
    }

    pub(super) fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        std::fs::read_dir(magic(&self.fd))?.map(|entry| Ok(entry?.file_name())).collect()
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(std::fs::read_dir(magic(&self.fd))?.next().is_none())
    }

    pub(super) fn set_owner(&self, name: &OsStr, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(fchownat(&self.fd, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Not for links, which have none.
    pub(super) fn set_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(mode & 0o7777);
        Ok(fchmodat(&self.fd, name, mode, FchmodatFlags::FollowSymlink)?)
    }

    pub(super) fn set_time(&self, name: &OsStr, seconds: u64) -> io::Result<()> {
        let time = nix::sys::time::TimeSpec::new(i64::try_from(seconds).unwrap_or(0), 0);
        let flags = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
        Ok(nix::sys::stat::utimensat(&self.fd, name, &time, &time, flags)?)
    }

    pub(super) fn set_attribute(&self, name: &OsStr, key: &str, value: &[u8]) -> io::Result<()> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        set_attribute(&openat2(&self.fd, name, how)?, key, value)
    }
}

#[expect(unsafe_code, reason = "nix has no setxattr")]
fn set_attribute(file: &OwnedFd, key: &str, value: &[u8]) -> io::Result<()> {
    let path = CString::new(magic(file).as_os_str().as_bytes())?;
    let key = CString::new(key)?;
    // SAFETY: both strings end with a zero, and the value's length is its own.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), key.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A name for what an `O_PATH` descriptor holds.
fn magic(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}
