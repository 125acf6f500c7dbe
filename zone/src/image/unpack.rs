//! Entries of a tar to files below a root.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use nix::libc;
use sandboxo_archive::each;
use sandboxo_zone_protocol::ImportError;
use tar::{Entry, EntryType};

use super::{
    internal,
    root::{Folder, Root},
    storing,
};
use crate::{
    bundle::{AGENT_PATH, BOOT_ID_PATH, VOLUMES_PATH},
    fault::is_full,
};

/// Blocks of nothing but zeros stay holes.
const BLOCK: usize = 4096;
const CHUNK: usize = 64 * BLOCK;
/// How much is written between two looks at the free space.
const CHECK_EVERY: u64 = 64 << 20;
/// What the tar crate's reader gives for a header that makes no sense.
const MAX_ENTRIES: u64 = 5_000_000;
const RESERVED: &str = ".sandboxo";
/// Of an archive, beside its files.
const HEADS: u64 = MAX_ENTRIES * 2048;

/// What an archive is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// A whole root file system, made by whoever runs this host.
    Root,
    /// What is put over what is there, made by anybody, and as other tools take it.
    Layer,
}

/// Where it all goes, and how much must stay free there.
pub(super) struct Space<'a> {
    pub(super) folder: &'a Path,
    pub(super) reserve_mib: u64,
    /// Of all files together.
    pub(super) max_bytes: u64,
}

impl Space<'_> {
    /// What an archive may hold, packed or skipped.
    pub(super) fn most(&self) -> u64 {
        self.max_bytes.saturating_add(HEADS)
    }

    fn check(&self) -> Result<(), ImportError> {
        match crate::disk::free_mib(self.folder) {
            Ok(free) if free < self.reserve_mib => Err(ImportError::DiskFull),
            Ok(_) => Ok(()),
            Err(error) => Err(storing(error)),
        }
    }
}

/// Gives the sum of the files' sizes, with what was written before.
pub(super) fn unpack(
    tar: &mut dyn Read,
    root: &Root,
    space: &Space<'_>,
    of: Of,
    written: u64,
) -> Result<u64, ImportError> {
    let mut unpacking =
        Unpacking { root, space, of, written, unchecked: CHECK_EVERY, folders: Vec::new() };
    let mut count = 0;
    each(tar, space.most(), damaged, |entry| {
        unpacking.entry(entry)?;
        count += 1;
        if count > MAX_ENTRIES {
            return Err(ImportError::Rejected(format!("more than {MAX_ENTRIES} entries")));
        }
        Ok(())
    })?;
    if count == 0 && of == Of::Root {
        return Err(ImportError::Rejected("the archive is empty or not a tar".into()));
    }
    unpacking.finish_folders()?;
    Ok(unpacking.written)
}

/// The reader's own complaints are about the archive; those of the stream are not.
pub(super) fn damaged(error: io::Error) -> ImportError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return ImportError::Rejected("the archive ends in the middle".into());
    }
    let is_content = matches!(
        error.kind(),
        io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
    );
    if is_content {
        ImportError::Rejected(format!("the archive is damaged: {error}"))
    } else {
        ImportError::Read(error)
    }
}

struct Unpacking<'a> {
    root: &'a Root,
    space: &'a Space<'a>,
    of: Of,
    written: u64,
    unchecked: u64,
    /// Modes and times of folders, set when nothing is put into them any more.
    folders: Vec<(PathBuf, Meta)>,
}

#[derive(Clone, Copy)]
struct Meta {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: u64,
}

impl Unpacking<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else there is, is refused")]
    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), ImportError> {
        let path = entry.path().map_err(damaged)?.into_owned();
        let refused = |why: &str| ImportError::Rejected(format!("{}: {why}", path.display()));
        let inside = self.checked(&path).map_err(refused)?;
        if self.of == Of::Layer && super::layers::is_whiteout(&inside) {
            return Ok(());
        }
        let meta = Meta {
            mode: entry.header().mode().map_err(damaged)?,
            uid: small(entry.header().uid().map_err(damaged)?)
                .ok_or_else(|| refused("its owner is out of range"))?,
            gid: small(entry.header().gid().map_err(damaged)?)
                .ok_or_else(|| refused("its group is out of range"))?,
            mtime: entry.header().mtime().map_err(damaged)?,
        };
        let attributes = attributes(entry).map_err(damaged)?;
        let kind = entry.header().entry_type();
        if kind == EntryType::Directory {
            self.folder(&inside, meta).map_err(|error| failed_at(&path, error))?;
            self.folders.push((inside.clone(), meta));
            return self.attributes(&inside, &attributes).map_err(|error| failed_at(&path, error));
        }
        let Some(name) = inside.file_name() else {
            return Err(refused("the root must be a folder"));
        };
        let above = inside.parent().unwrap_or_else(|| Path::new(""));
        let folder = self.root.folder(above).map_err(|error| failed_at(&path, error))?;
        let failed = |error| failed_at(&path, error);
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.replace(&folder, name).map_err(failed)?;
                let file = folder.make_file(name).map_err(failed)?;
                self.content(entry, file, &path)?;
            }
            EntryType::Symlink => {
                let target = target(entry, &path)?;
                let depth = folder.depth().map_err(failed)?;
                if self.of == Of::Root && leaves_root(&target, depth) {
                    return Err(refused(&format!("its link {} leaves the root", target.display())));
                }
                self.replace(&folder, name).map_err(failed)?;
                folder.make_link(name, &target).map_err(failed)?;
                folder.set_owner(name, meta.uid, meta.gid).map_err(failed)?;
                return folder.set_time(name, meta.mtime).map_err(failed);
            }
            EntryType::Link => {
                let target = self
                    .checked(&target(entry, &path)?)
                    .map_err(|why| refused(&format!("its hard link's target: {why}")))?;
                if target == inside {
                    return Ok(());
                }
                let existing = self.root.existing(&target).map_err(|error| {
                    if error.kind() == io::ErrorKind::NotFound {
                        let target = target.display();
                        refused(&format!("its hard link's target {target} is not there"))
                    } else {
                        failed(error)
                    }
                })?;
                self.replace(&folder, name).map_err(failed)?;
                // Owner, mode and content are the target's.
                return folder.make_hard_link(name, &existing).map_err(failed);
            }
            EntryType::Fifo => {
                self.replace(&folder, name).map_err(failed)?;
                folder.make_fifo(name).map_err(failed)?;
            }
            EntryType::Char | EntryType::Block => {
                // What lies there is hidden by the sandbox's own `/dev`.
                if inside.starts_with("dev") {
                    return Ok(());
                }
                return Err(refused("device nodes are refused outside of dev/"));
            }
            // Comments and the like.
            EntryType::XGlobalHeader => return Ok(()),
            _ => return Err(refused(&format!("entries of type {kind:?} are not known"))),
        }
        // The owner first: a change of owner clears the set-user bit.
        folder.set_owner(name, meta.uid, meta.gid).map_err(failed)?;
        folder.set_mode(name, meta.mode).map_err(failed)?;
        for (key, value) in &attributes {
            folder.set_attribute(name, key, value).map_err(failed)?;
        }
        folder.set_time(name, meta.mtime).map_err(failed)
    }

    /// The name below the root, without `.`; nothing leads out of it or into what is ours.
    fn checked(&self, path: &Path) -> Result<PathBuf, &'static str> {
        match self.of {
            Of::Root => checked(path),
            Of::Layer => checked(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// A later entry of the same name wins, but a folder with something in it stays, unless a
    /// layer puts something else there.
    fn replace(&self, folder: &Folder<'_>, name: &OsStr) -> io::Result<()> {
        match folder.stat(name)? {
            Some(_) if self.of == Of::Layer => folder.remove_tree(name),
            Some(stat) => folder.remove(name, kind(&stat) == libc::S_IFDIR),
            None => Ok(()),
        }
    }

    fn folder(&self, inside: &Path, meta: Meta) -> io::Result<()> {
        let Some(name) = inside.file_name() else {
            return Ok(());
        };
        let above = self.root.folder(inside.parent().unwrap_or_else(|| Path::new("")))?;
        match above.stat(name)? {
            Some(stat) if kind(&stat) == libc::S_IFDIR => {}
            Some(_) => {
                above.remove(name, false)?;
                above.make_folder(name)?;
            }
            None => above.make_folder(name)?,
        }
        above.set_owner(name, meta.uid, meta.gid)
    }

    fn attributes(&self, inside: &Path, attributes: &[(String, Vec<u8>)]) -> io::Result<()> {
        let Some(name) = inside.file_name() else { return Ok(()) };
        let above = self.root.folder(inside.parent().unwrap_or_else(|| Path::new("")))?;
        attributes.iter().try_for_each(|(key, value)| above.set_attribute(name, key, value))
    }

    fn content(
        &mut self,
        entry: &mut impl Read,
        mut file: File,
        path: &Path,
    ) -> Result<(), ImportError> {
        let mut chunk = vec![0; CHUNK];
        let mut length: u64 = 0;
        loop {
            let count = read_full(entry, &mut chunk).map_err(damaged)?;
            if count == 0 {
                break;
            }
            let filled = chunk.get(..count).unwrap_or_default();
            write_sparse(&mut file, filled).map_err(|error| failed_at(path, error))?;
            length += count as u64;
            if self.written + length > self.space.max_bytes {
                return Err(ImportError::TooLarge { max_mib: self.space.max_bytes >> 20 });
            }
            self.unchecked += count as u64;
            if self.unchecked >= CHECK_EVERY {
                self.unchecked = 0;
                self.space.check()?;
            }
        }
        file.set_len(length).map_err(|error| failed_at(path, error))?;
        self.written += length;
        Ok(())
    }

    fn finish_folders(&mut self) -> Result<(), ImportError> {
        for (inside, meta) in std::mem::take(&mut self.folders).into_iter().rev() {
            let finish = || -> io::Result<()> {
                let above = self.root.folder(inside.parent().unwrap_or_else(|| Path::new("")))?;
                let name = inside.file_name().unwrap_or_else(|| OsStr::new("."));
                // A later entry may have put something else in its place.
                if above.stat(name)?.is_some_and(|stat| kind(&stat) == libc::S_IFDIR) {
                    above.set_owner(name, meta.uid, meta.gid)?;
                    above.set_mode(name, meta.mode)?;
                    above.set_time(name, meta.mtime)?;
                }
                Ok(())
            };
            finish().map_err(|error| failed_at(&inside, error))?;
        }
        Ok(())
    }
}

/// What the file system refuses because of the archive's names is the archive's fault.
fn failed_at(path: &Path, error: io::Error) -> ImportError {
    let is_name = matches!(
        error.kind(),
        // Not found: a folder that is a link to nothing.
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::InvalidInput
    );
    if is_full(&error) {
        ImportError::DiskFull
    } else if is_name || error.raw_os_error() == Some(libc::ELOOP) {
        ImportError::Rejected(format!("{}: {error}", path.display()))
    } else {
        internal(At { path: path.to_owned(), source: error })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unpack {path}")]
struct At {
    path: PathBuf,
    source: io::Error,
}

/// The places that a sandbox's mounts need, made here so that the tree never changes later.
pub(super) fn make_places(root: &Root) -> Result<(), ImportError> {
    let make = || -> io::Result<()> {
        for (folder, mode) in
            [("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("tmp", 0o1777), (RESERVED, 0o755)]
        {
            let top = root.folder(Path::new(""))?;
            let name = OsStr::new(folder);
            match top.stat(name)? {
                None => {
                    top.make_folder(name)?;
                    top.set_mode(name, mode)?;
                }
                Some(stat) if kind(&stat) == libc::S_IFDIR => {}
                Some(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::NotADirectory,
                        format!("/{folder} must be a folder"),
                    ));
                }
            }
        }
        root.folder(Path::new("dev/shm"))?;
        // gVisor puts a memory file system over an empty one, and what fills it would count as
        // memory. This folder is there on any Debian that has booted.
        let tmp = root.folder(Path::new("tmp"))?;
        if tmp.is_empty()? {
            let name = OsStr::new(".X11-unix");
            tmp.make_folder(name)?;
            tmp.set_mode(name, 0o1777)?;
        }
        root.folder(Path::new(VOLUMES_PATH.trim_start_matches('/')))?;
        for file in [AGENT_PATH, BOOT_ID_PATH] {
            let file = Path::new(file.trim_start_matches('/'));
            let folder = root.folder(file.parent().unwrap_or_else(|| Path::new("")))?;
            let name = file.file_name().unwrap_or_default();
            if folder.stat(name)?.is_none() {
                folder.make_file(name)?;
            }
        }
        Ok(())
    };
    make().map_err(|error| {
        if error.kind() == io::ErrorKind::NotADirectory {
            ImportError::Rejected(error.to_string())
        } else {
            storing(error)
        }
    })
}

/// A path without the root and without `.`; the reason why it is refused otherwise.
fn checked(path: &Path) -> Result<PathBuf, &'static str> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err("paths with `..` are refused"),
            Component::RootDir | Component::Prefix(_) => {
                return Err("absolute paths are refused");
            }
        }
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("paths with a zero byte are refused");
    }
    if inside.starts_with(RESERVED) {
        return Err("the name .sandboxo is reserved");
    }
    Ok(inside)
}

/// By the letter: a link that climbs higher than its folder lies deep. (Absolute ones start at
/// the sandbox's root.)
fn leaves_root(target: &Path, depth: usize) -> bool {
    let mut at = depth;
    for component in target.components() {
        match component {
            Component::RootDir => at = 0,
            Component::Normal(_) => at += 1,
            Component::ParentDir if at == 0 => return true,
            Component::ParentDir => at -= 1,
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    false
}

fn target(entry: &Entry<'_, impl Read>, path: &Path) -> Result<PathBuf, ImportError> {
    entry
        .link_name()
        .map_err(damaged)?
        .filter(|target| !target.as_os_str().is_empty())
        .map(std::borrow::Cow::into_owned)
        .ok_or_else(|| ImportError::Rejected(format!("{}: a link to nothing", path.display())))
}

fn kind(stat: &nix::sys::stat::FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

/// `u32::MAX` is the kernel's word for "leave it".
fn small(id: u64) -> Option<u32> {
    u32::try_from(id).ok().filter(|id| *id != u32::MAX)
}

/// Those that mean something inside: what users have set, and what programs may do.
fn attributes(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(Vec::new()) };
    let mut attributes = Vec::new();
    for extension in extensions {
        let extension = extension?;
        let key = extension.key().ok().and_then(|key| key.strip_prefix("SCHILY.xattr."));
        if let Some(key) = key
            && (key.starts_with("user.") || key == "security.capability")
        {
            attributes.push((key.to_owned(), extension.value_bytes().to_vec()));
        }
    }
    Ok(attributes)
}

fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn write_sparse(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros: usize = rest
            .chunks(BLOCK)
            .take_while(|block| block.iter().all(|byte| *byte == 0))
            .map(<[u8]>::len)
            .sum();
        if zeros > 0 {
            file.seek(SeekFrom::Current(i64::try_from(zeros).unwrap_or(0)))?;
            rest = rest.get(zeros..).unwrap_or_default();
        }
        let data: usize = rest
            .chunks(BLOCK)
            .take_while(|block| block.iter().any(|byte| *byte != 0))
            .map(<[u8]>::len)
            .sum();
        let (now, later) = rest.split_at_checked(data).unwrap_or((rest, &[]));
        file.write_all(now)?;
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_paths_are_taken() {
        for (path, expected) in [
            ("./usr/bin/a", Ok("usr/bin/a")),
            ("usr//bin/", Ok("usr/bin")),
            ("./", Ok("")),
            ("a/./b", Ok("a/b")),
            ("...", Ok("...")),
            ("/etc/passwd", Err("absolute paths are refused")),
            ("a/../b", Err("paths with `..` are refused")),
            ("../b", Err("paths with `..` are refused")),
            (".sandboxo/agent", Err("the name .sandboxo is reserved")),
            ("./.sandboxo", Err("the name .sandboxo is reserved")),
        ] {
            assert_eq!(checked(Path::new(path)), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn which_links_leave_the_root() {
        for (target, depth, expected) in [
            ("b", 0, false),
            ("../b", 1, false),
            ("../b", 0, true),
            ("../../usr/lib/x", 2, false),
            ("../../../etc/passwd", 2, true),
            ("a/../../b", 0, true),
            ("/etc/alternatives/x", 1, false),
            ("/../etc/passwd", 5, true),
        ] {
            assert_eq!(leaves_root(Path::new(target), depth), expected, "{target} at {depth}");
        }
    }
}
