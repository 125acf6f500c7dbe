//! The files of one volume, reached from its root by the kernel's own rule: `openat2` with
//! `RESOLVE_IN_ROOT` follows symlinks as if the volume were all there is.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{
        AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat,
    },
    sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchownat, linkat, unlinkat},
};
use sandboxo_zone_protocol::{
    Attributes, Content, EntryKind, Timestamp, VolumeEntry, VolumeFileError, VolumeFiles,
    VolumePath,
};
use tokio::io::AsyncWriteExt as _;

use crate::fault::is_full;

/// More would be a body of megabytes.
const MAX_ENTRIES: usize = 10_000;
/// Each level holds a descriptor.
const MAX_DEPTH: usize = 200;
/// Whoever runs in a sandbox may write, as whom it may be; what else is wanted is said.
const OWNER: u32 = 1000;
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
const MODES: u32 = 0o7777;

pub(super) struct Files {
    root: Arc<OwnedFd>,
}

impl Files {
    pub(super) fn new(root: Arc<OwnedFd>) -> Self {
        Self { root }
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OwnedFd) -> Result<T, VolumeFileError> + Send + 'static,
    ) -> Result<T, VolumeFileError> {
        let root = self.root.clone();
        let done = tokio::task::spawn_blocking(move || work(&root)).await;
        done.unwrap_or_else(|panicked| Err(VolumeFileError::Io(io::Error::other(panicked))))
    }
}

#[async_trait]
impl VolumeFiles for Files {
    async fn stat(&self, path: &VolumePath) -> Result<VolumeEntry, VolumeFileError> {
        let path = path.clone();
        self.with(move |root| entry(&open(root, &path, NAMED)?, &path)).await
    }

    async fn list(
        &self,
        path: &VolumePath,
        depth: u32,
    ) -> Result<Vec<VolumeEntry>, VolumeFileError> {
        let path = path.clone();
        let levels = usize::try_from(depth).unwrap_or(usize::MAX).min(MAX_DEPTH);
        let list = move |root: &OwnedFd| {
            let folder = open(root, &path, DIRECTORY)?;
            let mut found = Vec::new();
            let above = path.to_string();
            list_below(folder, above.trim_end_matches('/'), levels, &mut found)?;
            found.sort_by(|one, other| one.path.cmp(&other.path));
            Ok(found)
        };
        self.with(list).await
    }

    async fn make_dir(
        &self,
        path: &VolumePath,
        attributes: Attributes,
        force: bool,
    ) -> Result<VolumeEntry, VolumeFileError> {
        let path = path.clone();
        self.with(move |root| make_dir(root, &path, attributes, force)).await
    }

    async fn read(&self, path: &VolumePath) -> Result<(u64, Content), VolumeFileError> {
        let path = path.clone();
        let opened = move |root: &OwnedFd| {
            // A pipe that nobody writes to must not hold the reader.
            let file = File::from(open(root, &path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
            let metadata = file.metadata().map_err(VolumeFileError::Io)?;
            if metadata.is_dir() {
                return Err(VolumeFileError::IsADirectory);
            }
            if !metadata.is_file() {
                return Err(VolumeFileError::NotFound);
            }
            Ok((metadata.len(), file))
        };
        let (size, file) = self.with(opened).await?;
        // It may grow meanwhile, and what was said of its size holds.
        let content = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), size);
        Ok((size, Box::new(content)))
    }

    async fn write(
        &self,
        path: &VolumePath,
        attributes: Attributes,
        force: bool,
        mut content: Content,
    ) -> Result<VolumeEntry, VolumeFileError> {
        let place = path.clone();
        let (folder, file) = self.with(move |root| begin(root, &place, attributes, force)).await?;
        let mut file = tokio::fs::File::from_std(file);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = tokio::io::AsyncReadExt::read(&mut content, &mut buffer).await;
            let bytes = match read.map_err(VolumeFileError::Cut)? {
                0 => break,
                read => buffer.get(..read).unwrap_or_default(),
            };
            file.write_all(bytes).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        let file = file.into_std().await;
        let path = path.clone();
        self.with(move |_root| finish(&folder, &file, &path, attributes, force)).await
    }

    async fn change(
        &self,
        path: &VolumePath,
        attributes: Attributes,
    ) -> Result<VolumeEntry, VolumeFileError> {
        let path = path.clone();
        let change = move |root: &OwnedFd| {
            let found = open(root, &path, OFlag::O_PATH)?;
            give(&found, attributes)?;
            entry(&found, &path)
        };
        self.with(change).await
    }

    async fn remove(&self, path: &VolumePath) -> Result<(), VolumeFileError> {
        let path = path.clone();
        let remove = move |root: &OwnedFd| {
            let (above, name) = path.split().ok_or(VolumeFileError::Root)?;
            remove_below(&open(root, &above, DIRECTORY)?, name, 0)
        };
        self.with(remove).await
    }
}

const NAMED: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);
const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

fn open(root: &OwnedFd, path: &VolumePath, flags: OFlag) -> Result<OwnedFd, VolumeFileError> {
    let relative = path.relative();
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_IN_ROOT
            | ResolveFlag::RESOLVE_NO_MAGICLINKS
            | ResolveFlag::RESOLVE_NO_XDEV,
    );
    let relative = if relative.is_empty() { "." } else { &relative };
    loop {
        match openat2(root, relative, how) {
            // Something on the way was moved meanwhile, so the kernel could not tell.
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened.map_err(refused),
        }
    }
}

fn refused(errno: Errno) -> VolumeFileError {
    let is = |known: &[Errno]| known.contains(&errno);
    // A socket or a device has nothing to be opened; a loop of symlinks leads nowhere.
    if is(&[Errno::ENOENT, Errno::ELOOP, Errno::ENXIO, Errno::EXDEV]) {
        VolumeFileError::NotFound
    } else if is(&[Errno::EEXIST]) {
        VolumeFileError::Exists
    } else if is(&[Errno::ENOTDIR]) {
        VolumeFileError::NotADirectory
    } else if is(&[Errno::EISDIR]) {
        VolumeFileError::IsADirectory
    } else {
        failed(errno.into())
    }
}

fn failed(error: io::Error) -> VolumeFileError {
    if is_full(&error) { VolumeFileError::Full } else { VolumeFileError::Io(error) }
}

fn entry(found: &OwnedFd, path: &VolumePath) -> Result<VolumeEntry, VolumeFileError> {
    let stat = fstat(found).map_err(refused)?;
    let target = is(&stat, SFlag::S_IFLNK).then(|| readlinkat(found, "").map_err(refused));
    let target = target.transpose()?.map(|target| target.to_string_lossy().into_owned());
    Ok(of_stat(path.to_string(), &stat, target))
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

fn of_stat(path: String, stat: &FileStat, target: Option<String>) -> VolumeEntry {
    let time = |seconds: i64, nanoseconds: i64| {
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
        Timestamp::new(seconds, nanoseconds).unwrap_or_default()
    };
    VolumeEntry {
        path,
        kind: if is(stat, SFlag::S_IFREG) {
            EntryKind::File
        } else if is(stat, SFlag::S_IFDIR) {
            EntryKind::Directory
        } else if is(stat, SFlag::S_IFLNK) {
            EntryKind::Symlink
        } else {
            EntryKind::Other
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & MODES,
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
        target,
    }
}

fn list_below(
    folder: OwnedFd,
    above: &str,
    levels: usize,
    found: &mut Vec<VolumeEntry>,
) -> Result<(), VolumeFileError> {
    let Some(levels) = levels.checked_sub(1) else { return Ok(()) };
    let mut folder = Dir::from_fd(folder).map_err(refused)?;
    let mut names = Vec::new();
    for entry in folder.iter() {
        let name = entry.map_err(refused)?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
        if found.len() + names.len() > MAX_ENTRIES {
            return Err(VolumeFileError::TooMany(MAX_ENTRIES));
        }
    }
    for name in names {
        let stat = match fstatat(&folder, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            // Removed meanwhile.
            Err(Errno::ENOENT) => continue,
            stat => stat.map_err(refused)?,
        };
        let path = format!("{above}/{}", name.to_string_lossy());
        let target = is(&stat, SFlag::S_IFLNK)
            .then(|| readlinkat(&folder, name.as_c_str()).ok())
            .flatten()
            .map(|target| target.to_string_lossy().into_owned());
        if is(&stat, SFlag::S_IFDIR) && levels > 0 {
            match below(&folder, name.as_c_str()) {
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                opened => list_below(opened.map_err(refused)?, &path, levels, found)?,
            }
        }
        found.push(of_stat(path, &stat, target));
    }
    Ok(())
}

/// A directory of this name, and no symlink to one.
fn below<P: ?Sized + nix::NixPath>(folder: impl AsFd, name: &P) -> Result<OwnedFd, Errno> {
    openat(folder, name, DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn make_dir(
    root: &OwnedFd,
    path: &VolumePath,
    attributes: Attributes,
    force: bool,
) -> Result<VolumeEntry, VolumeFileError> {
    let Some((above, name)) = path.split() else {
        return if force {
            entry(&open(root, path, DIRECTORY)?, path)
        } else {
            Err(VolumeFileError::Exists)
        };
    };
    if force && matches!(open(root, &above, NAMED), Err(VolumeFileError::NotFound)) {
        make_dir(root, &above, Attributes { mode: None, ..attributes }, true)?;
    }
    let folder = open(root, &above, DIRECTORY)?;
    match mkdirat(&folder, name, Mode::from_bits_truncate(DIRECTORY_MODE)) {
        Err(Errno::EEXIST) if force => {
            return match open(root, path, DIRECTORY) {
                Err(VolumeFileError::NotADirectory) => Err(VolumeFileError::Exists),
                known => entry(&known?, path),
            };
        }
        made => made.map_err(refused)?,
    }
    let fresh = below(&folder, name).map_err(refused)?;
    give(&fresh, fresh_as(attributes, DIRECTORY_MODE))?;
    entry(&fresh, path)
}

fn fresh_as(Attributes { uid, gid, mode }: Attributes, usual: u32) -> Attributes {
    Attributes { uid: uid.or(Some(OWNER)), gid: gid.or(Some(OWNER)), mode: mode.or(Some(usual)) }
}

/// The root of one that nobody has used.
pub(super) fn give_root(root: &File) -> Result<(), VolumeFileError> {
    give(root, fresh_as(Attributes::default(), DIRECTORY_MODE))
}

/// The folder, and a file without a name in it: nothing is left of one that is not finished.
fn begin(
    root: &OwnedFd,
    path: &VolumePath,
    attributes: Attributes,
    force: bool,
) -> Result<(OwnedFd, File), VolumeFileError> {
    let (above, name) = path.split().ok_or(VolumeFileError::IsADirectory)?;
    if force {
        match make_dir(root, &above, Attributes { mode: None, ..attributes }, true) {
            // One of those above is a file, which `open` says.
            Ok(_) | Err(VolumeFileError::Exists) => {}
            Err(error) => return Err(error),
        }
    }
    let folder = open(root, &above, DIRECTORY)?;
    match fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) if is(&stat, SFlag::S_IFDIR) => return Err(VolumeFileError::IsADirectory),
        Ok(_) if !force => return Err(VolumeFileError::Exists),
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(refused(errno)),
    }
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = openat(&folder, ".", flags, Mode::from_bits_truncate(0o600)).map_err(refused)?;
    Ok((folder, File::from(file)))
}

/// Counts names of files that are about to replace others.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn finish(
    folder: &OwnedFd,
    file: &File,
    path: &VolumePath,
    attributes: Attributes,
    force: bool,
) -> Result<VolumeEntry, VolumeFileError> {
    let (_, name) = path.split().ok_or(VolumeFileError::IsADirectory)?;
    give(file, fresh_as(attributes, FILE_MODE))?;
    // Who was answered finds it after the host's crash too.
    file.sync_all().map_err(failed)?;
    let link = |name: &str| {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(AT_FDCWD, Path::new(&own), folder, name, AtFlags::AT_SYMLINK_FOLLOW)
    };
    match link(name) {
        Err(Errno::EEXIST) if force => {
            let beside = loop {
                let beside = format!(".written-{}", NEXT.fetch_add(1, Ordering::Relaxed));
                match link(&beside) {
                    Err(Errno::EEXIST) => {}
                    linked => break linked.map(|()| beside).map_err(refused)?,
                }
            };
            if let Err(errno) = renameat(folder, beside.as_str(), folder, name) {
                unlinkat(folder, beside.as_str(), UnlinkatFlags::NoRemoveDir).map_err(refused)?;
                return Err(refused(errno));
            }
        }
        linked => linked.map_err(refused)?,
    }
    nix::unistd::fsync(folder).map_err(refused)?;
    let stat = fstat(file).map_err(refused)?;
    Ok(of_stat(path.to_string(), &stat, None))
}

/// By the descriptor's name, since one that is only a place is neither owned nor changed by itself.
fn give(file: &impl AsRawFd, attributes: Attributes) -> Result<(), VolumeFileError> {
    let Attributes { uid, gid, mode } = attributes;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        fchownat(AT_FDCWD, own.as_str(), uid, gid, AtFlags::empty()).map_err(refused)?;
    }
    if let Some(mode) = mode {
        let mode = Mode::from_bits_truncate(mode & MODES);
        fchmodat(AT_FDCWD, own.as_str(), mode, FchmodatFlags::FollowSymlink).map_err(refused)?;
    }
    Ok(())
}

fn remove_below<P: ?Sized + nix::NixPath>(
    folder: &impl AsFd,
    name: &P,
    depth: usize,
) -> Result<(), VolumeFileError> {
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        done => return done.map_err(refused),
    }
    if depth == MAX_DEPTH {
        return Err(VolumeFileError::TooDeep(MAX_DEPTH));
    }
    let mut inner = Dir::from_fd(below(folder, name).map_err(refused)?).map_err(refused)?;
    let mut names = Vec::new();
    for entry in inner.iter() {
        let name = entry.map_err(refused)?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    for name in names {
        match remove_below(&inner, name.as_c_str(), depth + 1) {
            // Removed meanwhile.
            Err(VolumeFileError::NotFound) => {}
            removed => removed?,
        }
    }
    unlinkat(folder, name, UnlinkatFlags::RemoveDir).map_err(refused)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nix::fcntl::open as open_folder;
    use tempfile::TempDir;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// A folder that is all there is, and a secret beside it.
    fn volume() -> (TempDir, std::path::PathBuf, Files) {
        let around = tempfile::tempdir().unwrap();
        let root = around.path().join("volume");
        fs::create_dir(&root).unwrap();
        fs::write(around.path().join("secret"), "secret").unwrap();
        let fd = open_folder(&root, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        (around, root, Files::new(Arc::new(fd)))
    }

    fn at(text: &str) -> VolumePath {
        text.parse().unwrap()
    }

    fn content(bytes: &'static [u8]) -> Content {
        Box::new(bytes)
    }

    async fn put(files: &Files, path: &str, force: bool) -> Result<VolumeEntry, VolumeFileError> {
        files.write(&at(path), Attributes::default(), force, content(b"bytes")).await
    }

    async fn text(files: &Files, path: &str) -> Result<String, VolumeFileError> {
        let (size, mut content) = files.read(&at(path)).await?;
        let mut text = String::new();
        content.read_to_string(&mut text).await.unwrap();
        assert_eq!(size, text.len() as u64);
        Ok(text)
    }

    async fn paths(files: &Files, path: &str, depth: u32) -> Vec<String> {
        files.list(&at(path), depth).await.unwrap().into_iter().map(|it| it.path).collect()
    }

    #[tokio::test]
    async fn what_is_written_is_read_listed_changed_and_removed() {
        use VolumeFileError as Failed;
        let (_around, root, files) = volume();
        assert!(matches!(put(&files, "/a/file", false).await, Err(Failed::NotFound)));
        let owner = Attributes { uid: Some(1000), gid: Some(1001), mode: Some(0o750) };
        assert!(matches!(files.make_dir(&at("/a/b"), owner, false).await, Err(Failed::NotFound)));
        let made = files.make_dir(&at("/a/b"), owner, true).await.unwrap();
        assert_eq!((made.path.as_str(), made.kind), ("/a/b", EntryKind::Directory));
        assert_eq!((made.uid, made.gid, made.mode), (1000, 1001, 0o750));
        assert!(files.make_dir(&at("/a/b"), owner, true).await.is_ok(), "it is there");
        assert!(matches!(files.make_dir(&at("/a/b"), owner, false).await, Err(Failed::Exists)));

        let written = put(&files, "/a/file", false).await.unwrap();
        assert_eq!((written.size, written.mode, written.uid), (5, 0o666, 1000));
        assert!(matches!(put(&files, "/a/file", false).await, Err(Failed::Exists)));
        let again = files.write(&at("/a/file"), owner, true, content(b"more")).await.unwrap();
        assert_eq!((again.size, again.mode, again.uid), (4, 0o750, 1000));
        assert_eq!(files.stat(&at("/a/file")).await.unwrap(), again);
        assert_eq!(text(&files, "/a/file").await.unwrap(), "more");
        assert!(matches!(put(&files, "/a/b", true).await, Err(Failed::IsADirectory)));
        assert!(matches!(put(&files, "/a/file/x", true).await, Err(Failed::NotADirectory)));
        assert!(put(&files, "/a/b/new/er/x", true).await.is_ok(), "with those above");
        files.remove(&at("/a/b/new")).await.unwrap();
        assert!(matches!(text(&files, "/a").await, Err(Failed::IsADirectory)));
        let private = Attributes { mode: Some(0o600), ..Attributes::default() };
        assert_eq!(files.change(&at("/a/file"), private).await.unwrap().mode, 0o600);

        put(&files, "/a/b/deep", false).await.unwrap();
        assert_eq!(paths(&files, "/", 1).await, ["/a"]);
        assert_eq!(paths(&files, "/a", 1).await, ["/a/b", "/a/file"]);
        assert_eq!(paths(&files, "/", 9).await, ["/a", "/a/b", "/a/b/deep", "/a/file"]);
        assert!(matches!(files.remove(&at("/")).await, Err(Failed::Root)));
        files.remove(&at("/a")).await.unwrap();
        assert!(matches!(files.remove(&at("/a")).await, Err(Failed::NotFound)));
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn row_38_no_symlink_leads_out_of_a_volume() {
        let (around, root, files) = volume();
        fs::create_dir(root.join("inner")).unwrap();
        fs::write(root.join("inner/file"), "inside").unwrap();
        for (name, target) in [
            ("absolute", "/etc/passwd"),
            ("up", "../secret"),
            ("inner/upper", "../../secret"),
            ("folder", ".."),
            ("etc", "/etc"),
            ("itself", "itself"),
            ("magic", "/proc/self/root/etc/passwd"),
            ("within", "/inner/file"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        for path in
            ["absolute", "up", "inner/upper", "folder/secret", "etc/passwd", "itself", "magic"]
        {
            let read = text(&files, path).await;
            assert!(matches!(read, Err(VolumeFileError::NotFound)), "{path}: {read:?}");
            let mode = Attributes { mode: Some(0o777), ..Attributes::default() };
            let changed = files.change(&at(path), mode).await;
            assert!(changed.is_err(), "{path}");
        }
        assert_eq!(text(&files, "within").await.unwrap(), "inside");
        assert!(put(&files, "etc/new", true).await.is_err());
        assert!(files.make_dir(&at("etc/new"), Attributes::default(), true).await.is_err());
        // `..` of the root is the root.
        assert_eq!(paths(&files, "folder", 1).await.len(), 8);
        let link = files.stat(&at("up")).await.unwrap();
        assert_eq!((link.kind, link.target.as_deref()), (EntryKind::Symlink, Some("../secret")));
        // The link itself is replaced, and removed.
        put(&files, "up", true).await.unwrap();
        assert_eq!(text(&files, "up").await.unwrap(), "bytes");
        files.remove(&at("folder")).await.unwrap();
        files.remove(&at("etc")).await.unwrap();
        assert_eq!(fs::read_to_string(around.path().join("secret")).unwrap(), "secret");
        assert!(fs::exists("/etc/passwd").unwrap());
    }

    #[tokio::test]
    async fn what_does_not_arrive_leaves_nothing() {
        struct Cut;
        impl tokio::io::AsyncRead for Cut {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _context: &mut std::task::Context<'_>,
                _buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
        let (_around, root, files) = volume();
        put(&files, "kept", false).await.unwrap();
        let cut = Box::new(b"half of".as_slice().chain(Cut));
        let written = files.write(&at("kept"), Attributes::default(), true, cut).await;
        assert!(matches!(written, Err(VolumeFileError::Cut(_))), "{written:?}");
        assert_eq!(text(&files, "kept").await.unwrap(), "bytes");
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
    }
}
