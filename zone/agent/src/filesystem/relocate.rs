//! Moving between file systems: a copy of everything beside the destination, then one rename, so
//! that a failure leaves the source whole and the destination as it was.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::{
        stat::{Mode, SFlag, UtimensatFlags, mknod, utimensat},
        time::TimeSpec,
    },
};

use super::{
    remove::remove_tree,
    xattr::{metadata_of, replace_metadata},
};

/// Each level takes some of a worker's stack of 1 MiB.
const DEEPEST: usize = 400;

pub(crate) fn relocate(source: &Path, destination: &Path) -> io::Result<()> {
    if destination.starts_with(source) {
        return Err(Errno::EINVAL.into());
    }
    let aside = beside(destination);
    let copied = copy(source, &aside, DEEPEST).and_then(|()| fs::rename(&aside, destination));
    if let Err(error) = copied {
        if discard(&aside).is_err() {
            // The first error says more.
        }
        return Err(error);
    }
    discard(source)
}

fn beside(destination: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(destination.file_name().unwrap_or_default());
    name.push(format!(".moving-{}", std::process::id()));
    destination.with_file_name(name)
}

fn discard(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { remove_tree(path) } else { fs::remove_file(path) }
}

fn copy(from: &Path, to: &Path, levels: usize) -> io::Result<()> {
    let levels = levels.checked_sub(1).ok_or(Errno::ENAMETOOLONG)?;
    let found = fs::symlink_metadata(from)?;
    let kind = found.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name), levels)?;
        }
    } else if kind.is_file() {
        copy_file(from, to)?;
    } else {
        let kind = SFlag::from_bits_truncate(found.mode()) & SFlag::S_IFMT;
        mknod(to, kind, Mode::from_bits_truncate(found.mode()), found.rdev())?;
    }
    carry_over(to, &found)
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut target)?;
    replace_metadata(&target, true, &metadata_of(from))?;
    Ok(())
}

/// The owner first: a change of owner takes the special bits away.
fn carry_over(to: &Path, found: &Metadata) -> io::Result<()> {
    lchown(to, Some(found.uid()), Some(found.gid()))?;
    if !found.file_type().is_symlink() {
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))?;
    }
    let accessed = TimeSpec::new(found.atime(), found.atime_nsec());
    let modified = TimeSpec::new(found.mtime(), found.mtime_nsec());
    let here = nix::fcntl::AT_FDCWD;
    utimensat(here, to, &accessed, &modified, UtimensatFlags::NoFollowSymlink)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_arrives_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/file"), vec![7; 300_000]).unwrap();
        fs::set_permissions(path("a/b/file"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("b/file", path("a/link")).unwrap();
        let before = fs::metadata(path("a/b/file")).unwrap();
        relocate(&path("a"), &path("z")).unwrap();
        let after = fs::metadata(path("z/b/file")).unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
        assert_eq!(fs::read_link(path("z/link")).unwrap(), Path::new("b/file"));
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["z"]);
    }

    #[test]
    fn a_failure_leaves_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("full/inside")).unwrap();
        fs::create_dir(path("a")).unwrap();
        assert!(relocate(&path("a"), &path("full")).is_err());
        assert!(relocate(&path("full"), &path("full/inside/deeper")).is_err());
        assert!(path("a").exists() && path("full/inside").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
