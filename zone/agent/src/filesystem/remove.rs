//! Removing a tree from its root's descriptor down, so that nobody can turn the way elsewhere by
//! putting a link in it.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::OwnedFd,
    path::Path,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, unlinkat},
};

/// Each level holds a descriptor.
const DEEPEST: usize = 1000;

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Without recursion: the depth is for others to choose.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let mut levels = vec![Level::open(open(path, FOLDER, Mode::empty())?)?];
    // The names that lead to all but the first.
    let mut way: Vec<CString> = Vec::new();
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            if let (Some(parent), Some(name)) = (levels.last(), way.pop()) {
                gone(unlinkat(&parent.folder, name.as_c_str(), UnlinkatFlags::RemoveDir))?;
            }
            continue;
        };
        if let Some(inner) = level.remove(&name)? {
            if levels.len() == DEEPEST {
                return Err(Errno::ENAMETOOLONG.into());
            }
            levels.push(inner);
            way.push(name);
        }
    }
    std::fs::remove_dir(path)
}

struct Level {
    folder: Dir,
    names: Vec<CString>,
}

impl Level {
    fn open(folder: OwnedFd) -> Result<Self, Errno> {
        let mut folder = Dir::from_fd(folder)?;
        let mut names = Vec::new();
        for entry in folder.iter() {
            let entry = entry?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(Self { folder, names })
    }

    /// A folder is given back open: what is in it comes first.
    fn remove(&self, name: &CStr) -> Result<Option<Self>, Errno> {
        match unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir) {
            // Linux says the first of a folder, others the second.
            Err(Errno::EISDIR | Errno::EPERM) => {}
            other => return gone(other).map(|()| None),
        }
        match openat(&self.folder, name, FOLDER, Mode::empty()) {
            Ok(folder) => Self::open(folder).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            // It may not be removed, and is no folder.
            Err(Errno::ENOTDIR | Errno::ELOOP) => Err(Errno::EPERM),
            Err(errno) => Err(errno),
        }
    }
}

/// What is gone by now is gone.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_are_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("kept/inside")).unwrap();
        fs::create_dir_all(path("tree/a/b")).unwrap();
        fs::write(path("tree/a/file"), "x").unwrap();
        std::os::unix::fs::symlink(path("kept"), path("tree/a/link")).unwrap();
        std::os::unix::fs::symlink(path("kept"), path("link")).unwrap();
        assert!(remove_tree(&path("link")).is_err());
        remove_tree(&path("tree")).unwrap();
        assert!(path("kept/inside").exists() && !path("tree").exists());
    }

    #[test]
    fn what_is_too_deep_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut at = open(folder.path(), FOLDER, Mode::empty()).unwrap();
        for _ in 0..DEEPEST {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
        }
        let outer = remove_tree(folder.path()).unwrap_err();
        assert_eq!(outer.raw_os_error(), Some(Errno::ENAMETOOLONG as i32));
        remove_tree(&folder.path().join("d")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
