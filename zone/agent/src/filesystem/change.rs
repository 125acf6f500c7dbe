//! Making, moving and removing.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, chown},
    path::Path,
};

use nix::errno::Errno;
use sandboxo_agent_proto::connect::{Code, Failure};

use super::{
    failure::{because, reason},
    relocate::relocate,
    remove::remove_tree,
};
use crate::users::User;

/// With its parents; those made here belong to the user.
pub(crate) fn ensure_folder(path: &Path, user: &User) -> io::Result<()> {
    // From the folder up to one whose parent is there, then down again. No recursion: the depth
    // is the client's choice.
    let mut missing = Vec::new();
    for folder in path.ancestors() {
        match make(folder, user) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(folder),
            Err(error) => return Err(error),
        }
    }
    missing.into_iter().rev().try_for_each(|folder| make(folder, user))
}

fn make(folder: &Path, user: &User) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Ok(()) => chown(folder, Some(user.uid), Some(user.gid)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_folder = fs::metadata(folder)?.is_dir();
            if is_folder { Ok(()) } else { Err(Errno::ENOTDIR.into()) }
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn make_folder(path: &Path, user: &User) -> Result<(), Failure> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let message = format!("directory already exists: {shown}");
            Err(Failure::new(Code::AlreadyExists, message))
        }
        Ok(_) => {
            let message = format!("path already exists but it is not a directory: {shown}");
            Err(Failure::new(Code::InvalidArgument, message))
        }
        Err(_absent) => ensure_folder(path, user)
            .map_err(|error| because(&error, &format!("creating directory {shown}"))),
    }
}

pub(crate) fn shift(source: &Path, destination: &Path, user: &User) -> Result<(), Failure> {
    let moved = fs::rename(source, destination).or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound || fs::symlink_metadata(source).is_err() {
            return Err(error);
        }
        if let Some(parent) = destination.parent() {
            ensure_folder(parent, user)?;
        }
        fs::rename(source, destination)
    });
    let moved = moved.or_else(|error| {
        if error.kind() != io::ErrorKind::CrossesDevices {
            return Err(error);
        }
        // A sandbox has several file systems, and its user need not know.
        relocate(source, destination)
    });
    moved.map_err(|error| {
        if fs::symlink_metadata(source).is_err() {
            let message = format!("source file not found: {}", source.display());
            return Failure::new(Code::NotFound, message);
        }
        because(&error, &format!("moving {} to {}", source.display(), destination.display()))
    })
}

/// With all that is in it. What isn't there is removed already.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(())
        }
        Err(error) => {
            let message = format!("error removing {}: {}", path.display(), reason(&error));
            Err(Failure::new(super::failure::code_of(&error), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> User {
        User { name: "root".into(), uid: 0, gid: 0, home: "/root".into(), groups: vec![0] }
    }

    #[test]
    fn moving_makes_room_and_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "a").unwrap();
        shift(&path("a"), &path("x/y/b"), &me()).unwrap();
        fs::write(path("c"), "c").unwrap();
        shift(&path("c"), &path("x/y/b"), &me()).unwrap();
        assert_eq!(fs::read(path("x/y/b")).unwrap(), b"c");
        assert_eq!(shift(&path("a"), &path("z"), &me()).unwrap_err().code, Code::NotFound);
        // A file can't take a folder's place.
        assert_eq!(
            shift(&path("x/y/b"), &path("x"), &me()).unwrap_err().code,
            Code::InvalidArgument
        );
    }

    #[test]
    fn making_tells_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        make_folder(&path("a/b"), &me()).unwrap();
        assert_eq!(make_folder(&path("a"), &me()).unwrap_err().code, Code::AlreadyExists);
        fs::write(path("file"), "").unwrap();
        assert_eq!(make_folder(&path("file"), &me()).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(make_folder(&path("file/x"), &me()).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn removing_twice_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        ensure_folder(&path("a/b"), &me()).unwrap();
        fs::write(path("a/file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", path("a/link")).unwrap();
        for target in ["a", "a", "a/file/below"] {
            remove(&path(target)).unwrap();
        }
        assert!(Path::new("/etc/passwd").exists());
    }
}
