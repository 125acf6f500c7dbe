//! The archive that a client sent, made into one that a sandbox unpacks over its root: every entry
//! with the place, the owner and the mode that it is to have.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use bytes::Bytes;
use sandboxo_archive::{decoded, each};
use sandboxo_model::decide::copy::{CopyError, Entry, Kind, Placed, Rule, There, place};
use sandboxo_zone_protocol::Timestamp;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use super::uploads::MAX_UPLOAD_BYTES;

/// More is no folder of sources, and would be held in memory.
const MAX_ENTRIES: usize = 200_000;
const PIECE: usize = 64 << 10;
/// Of an archive once it is unpacked: sixteen times what may be sent of one.
const MAX_BYTES: u64 = 16 * MAX_UPLOAD_BYTES;

#[derive(Debug, thiserror::Error)]
pub(super) enum RewriteError {
    #[error("{0}")]
    Copy(#[from] CopyError),
    #[error("{0}")]
    Entry(String),
    #[error("the uploaded archive can't be read: {0}")]
    Read(#[source] io::Error),
    /// Whoever unpacks it has told why.
    #[error("the archive was not taken")]
    Write,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Blocks.
pub(super) fn list(archive: &Path) -> Result<Vec<Entry>, RewriteError> {
    let mut entries = Vec::new();
    let mut file = File::open(archive).map_err(RewriteError::Read)?;
    let archive = decoded(&mut file).map_err(RewriteError::Read)?;
    each(archive, MAX_BYTES, RewriteError::Read, |entry| {
        if entries.len() >= MAX_ENTRIES {
            return Err(RewriteError::Entry(format!("more than {MAX_ENTRIES} files are copied")));
        }
        entries.push(describe(entry)?);
        Ok(())
    })?;
    Ok(entries)
}

/// Blocks. Sends the new archive piece by piece.
pub(super) fn rewrite(
    archive: &Path,
    entries: &[Entry],
    rule: &Rule,
    there: &There,
    (owner, now): (Owner, Timestamp),
    to: mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), RewriteError> {
    let placed = place(entries, rule, there)?;
    let mut out = Builder::new(Pieces { to, held: Vec::with_capacity(PIECE) });
    let mut placed = placed.iter().peekable();
    let made = |out: &mut Builder<Pieces>, placed: &Placed| {
        let mut header = header_of(placed, owner);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        append(out, &mut header, placed, io::empty())
    };
    let mut file = File::open(archive).map_err(RewriteError::Read)?;
    let archive = decoded(&mut file).map_err(RewriteError::Read)?;
    let mut numbers = 0..;
    each(archive, MAX_BYTES, RewriteError::Read, |entry| {
        let at = numbers.next();
        while let Some(folder) = placed.next_if(|it| it.source.is_none()) {
            made(&mut out, folder)?;
        }
        let Some(own) = placed.next_if(|it| it.source == at) else { return Ok(()) };
        let mut header = header_of(own, owner);
        header.set_mtime(entry.header().mtime().unwrap_or_default());
        match &own.kind {
            Kind::Folder => append(&mut out, &mut header, own, io::empty()),
            Kind::File => {
                header.set_size(entry.size());
                append(&mut out, &mut header, own, entry)
            }
            Kind::Link => {
                let target = entry.link_name().map_err(RewriteError::Read)?.unwrap_or_default();
                link(&mut out, &mut header, own, &target)
            }
            Kind::Same(of) => link(&mut out, &mut header, own, Path::new(relative(of))),
        }
    })?;
    for folder in placed {
        made(&mut out, folder)?;
    }
    let mut pieces = out.into_inner().map_err(|_left| RewriteError::Write)?;
    pieces.flush().map_err(|_left| RewriteError::Write)
}

fn describe(entry: &tar::Entry<'_, impl Read>) -> Result<Entry, RewriteError> {
    let text = |bytes: &[u8]| {
        let bad = || RewriteError::Entry("the name of a file is not UTF-8".into());
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_other| bad())
    };
    let path = text(&entry.path_bytes())?;
    let kind_of = entry.header().entry_type();
    let kind = if kind_of.is_dir() {
        Kind::Folder
    } else if kind_of.is_file() || kind_of.is_contiguous() || kind_of.is_gnu_sparse() {
        Kind::File
    } else if kind_of.is_symlink() {
        Kind::Link
    } else if kind_of.is_hard_link() {
        let of = entry.link_name_bytes();
        Kind::Same(text(of.as_deref().unwrap_or_default())?)
    } else {
        let why = format!("{path:?} is neither a file, nor a folder, nor a link");
        return Err(RewriteError::Entry(why));
    };
    let mode = entry.header().mode().map_err(RewriteError::Read)?;
    Ok(Entry { path, kind, mode: mode & 0o7777 })
}

fn header_of(placed: &Placed, owner: Owner) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(match placed.kind {
        Kind::Folder => EntryType::Directory,
        Kind::File => EntryType::Regular,
        Kind::Link => EntryType::Symlink,
        Kind::Same(_) => EntryType::Link,
    });
    header.set_mode(placed.mode);
    header.set_uid(owner.uid.into());
    header.set_gid(owner.gid.into());
    header.set_size(0);
    header
}

/// The source's faults and the taker's look alike to the builder: the taker's are marked.
fn append(
    out: &mut Builder<Pieces>,
    header: &mut Header,
    placed: &Placed,
    data: impl Read,
) -> Result<(), RewriteError> {
    out.append_data(header, relative(&placed.path), data).map_err(of_either)
}

fn link(
    out: &mut Builder<Pieces>,
    header: &mut Header,
    placed: &Placed,
    target: &Path,
) -> Result<(), RewriteError> {
    out.append_link(header, relative(&placed.path), target).map_err(of_either)
}

fn of_either(error: io::Error) -> RewriteError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        RewriteError::Write
    } else {
        RewriteError::Read(error)
    }
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

struct Pieces {
    to: mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.held, Vec::with_capacity(PIECE));
        let sent = self.to.blocking_send(Ok(piece.into()));
        sent.map_err(|_left| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests;
