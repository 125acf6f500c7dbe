//! A folder's entries as a body that is written while it is read: a folder may be larger than the
//! memory for it. Parents come before what is in them, names in the order of their bytes.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use prost::Message;
use sandboxo_agent_proto::{
    connect::Codec,
    filesystem::{EntryInfo, ListDirResponse},
};
use tokio::task::{JoinHandle, spawn_blocking};

use super::entry::look;
use crate::{
    body::{Body, full},
    users::Accounts,
};

/// One frame's worth: an answer of one frame has a length.
const BATCH: usize = 256;
/// Of a sandbox's memory, for each entry of a folder. gVisor keeps 2.4 KiB of it for each file that
/// was made, and looking at all of them takes another 1.3 KiB each until it is collected: beyond
/// this the listing itself would end the sandbox.
const MEMORY_EACH: u64 = 4 * 1024;

/// How many entries of one folder are listed.
pub(crate) fn most_entries(memory: u64) -> usize {
    usize::try_from(memory / MEMORY_EACH).unwrap_or(usize::MAX).max(BATCH)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error(
        "{} has more than {most} entries, the most that are listed with this sandbox's memory",
        folder.display()
    )]
    TooMany { folder: PathBuf, most: usize },
}

pub(crate) struct Listing {
    levels: Vec<Level>,
    depth: usize,
    most: usize,
    accounts: Arc<Accounts>,
}

struct Level {
    folder: PathBuf,
    /// The last comes first.
    names: Vec<OsString>,
}

impl Listing {
    /// The folder itself may be a link; links in it are not followed.
    pub(crate) fn open(
        folder: &Path,
        depth: u32,
        most: usize,
        accounts: Arc<Accounts>,
    ) -> Result<Self, ListError> {
        let depth = depth.max(1) as usize;
        Ok(Self { levels: vec![Level::open(folder.to_owned(), most)?], depth, most, accounts })
    }
}

/// How many entries of a folder were made in the sandbox, from its size and blocks. gVisor tells it
/// as tmpfs does: 20 bytes for each and for two more, and no blocks. A sandbox that is nearly full
/// of files may not outlive even the reading of their names.
fn made_here(size: u64, blocks: u64) -> Option<usize> {
    let is_told = blocks == 0 && size.is_multiple_of(20);
    is_told.then(|| usize::try_from((size / 20).saturating_sub(2)).unwrap_or(usize::MAX))
}

impl Level {
    fn open(folder: PathBuf, most: usize) -> Result<Self, ListError> {
        let metadata = fs::metadata(&folder)?;
        if made_here(metadata.size(), metadata.blocks()).is_some_and(|count| count > most) {
            return Err(ListError::TooMany { folder, most });
        }
        let names = fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name()));
        let mut names: Vec<_> = names.take(most.saturating_add(1)).collect::<io::Result<_>>()?;
        if names.len() > most {
            return Err(ListError::TooMany { folder, most });
        }
        names.sort_unstable_by(|one, other| other.as_bytes().cmp(one.as_bytes()));
        Ok(Self { folder, names })
    }
}

impl Iterator for Listing {
    type Item = Result<EntryInfo, ListError>;

    fn next(&mut self) -> Option<Result<EntryInfo, ListError>> {
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let path = level.folder.join(name);
            // It may be gone by now.
            let Ok(entry) = look(&path, &self.accounts) else { continue };
            let is_folder = entry.permissions.starts_with('d');
            if is_folder && self.levels.len() < self.depth {
                match Level::open(path, self.most) {
                    Ok(level) => self.levels.push(level),
                    // It may be gone, or nobody's to read.
                    Err(ListError::Read(_)) => {}
                    Err(error @ ListError::TooMany { .. }) => return Some(Err(error)),
                }
            }
            return Some(Ok(entry));
        }
    }
}

/// The rest of a listing as bytes of one codec.
struct Writer {
    listing: Listing,
    codec: Codec,
    started: bool,
    done: bool,
}

impl Writer {
    fn batch(&mut self) -> Result<Vec<u8>, ListError> {
        let mut out = Vec::new();
        for _ in 0..BATCH {
            let Some(entry) = self.listing.next() else {
                self.done = true;
                break;
            };
            self.put(entry?, &mut out);
        }
        if self.done && self.codec == Codec::Json {
            out.extend_from_slice(if self.started { b"]}" } else { b"{}" });
        }
        Ok(out)
    }

    fn put(&mut self, entry: EntryInfo, out: &mut Vec<u8>) {
        match self.codec {
            Codec::Json => {
                out.extend_from_slice(if self.started { b"," } else { b"{\"entries\":[" });
                out.extend_from_slice(&self.codec.encode(&entry));
            }
            // A repeated field is written entry by entry anyway.
            Codec::Proto => {
                let one = ListDirResponse { entries: vec![entry] };
                if one.encode(out).is_err() {
                    // A Vec has room for all.
                }
            }
        }
        self.started = true;
    }
}

/// Blocks: for a thread that may. What is refused only later cuts the body.
pub(crate) fn first_batch(listing: Listing, codec: Codec) -> Result<Body, ListError> {
    let mut writer = Writer { listing, codec, started: false, done: false };
    let first = writer.batch()?;
    if writer.done {
        return Ok(full(first));
    }
    Ok(Rest { first: Some(first.into()), work: None, writer: Some(writer) }.boxed_unsync())
}

/// The next bytes, and who writes those behind them.
type Written = Result<(Writer, Vec<u8>), ListError>;

struct Rest {
    first: Option<Bytes>,
    writer: Option<Writer>,
    work: Option<JoinHandle<Written>>,
}

impl http_body::Body for Rest {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.work.is_none() {
            match self.writer.take() {
                Some(mut writer) if !writer.done => {
                    self.work = Some(spawn_blocking(move || {
                        let bytes = writer.batch()?;
                        Ok((writer, bytes))
                    }));
                }
                Some(_) | None => return Poll::Ready(None),
            }
        }
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let done = std::task::ready!(Pin::new(work).poll(cx));
        self.work = None;
        let (writer, bytes) = done.map_err(io::Error::other)?.map_err(io::Error::other)?;
        self.writer = Some(writer);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b/y", "b/x/deep", "a", "c", "a-b"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        fs::write(folder.path().join("b/file"), "x").unwrap();
        std::os::unix::fs::symlink("b", folder.path().join("d")).unwrap();
        folder
    }

    fn names(folder: &Path, depth: u32) -> Vec<String> {
        let listing = Listing::open(folder, depth, 9, Arc::default()).unwrap();
        let inside = |entry: EntryInfo| entry.path[folder.as_os_str().len() + 1..].to_owned();
        listing.map(|entry| inside(entry.unwrap())).collect()
    }

    #[test]
    fn parents_come_first_and_links_are_not_entered() {
        let folder = tree();
        let one = ["a", "a-b", "b", "c", "d"];
        assert_eq!(names(folder.path(), 0), one);
        assert_eq!(names(folder.path(), 1), one);
        let two = ["a", "a-b", "b", "b/file", "b/x", "b/y", "c", "d"];
        assert_eq!(names(folder.path(), 2), two);
        let all = ["a", "a-b", "b", "b/file", "b/x", "b/x/deep", "b/y", "c", "d"];
        assert_eq!(names(folder.path(), 9), all);
        assert_eq!(names(&folder.path().join("d"), 1), ["file", "x", "y"]);
    }

    #[test]
    fn a_folder_with_too_many_entries_is_refused_wherever_it_is() {
        let folder = tree();
        let open = |path: &Path, most| Listing::open(path, 9, most, Arc::default());
        let error = open(folder.path(), 4).err().unwrap().to_string();
        assert!(error.contains("has more than 4 entries"), "{error}");
        assert!(open(folder.path(), 5).is_ok());
        fs::create_dir_all(folder.path().join("c/1/2/3")).unwrap();
        for name in ["p", "q", "r", "s", "t"] {
            fs::write(folder.path().join("c/1").join(name), "").unwrap();
        }
        let mut listing = open(folder.path(), 5).unwrap();
        let refused = listing.find_map(Result::err).unwrap().to_string();
        assert!(refused.contains("c/1 has more than 5 entries"), "{refused}");
        assert!(first_batch(open(folder.path(), 5).unwrap(), Codec::Json).is_err());
        let (small, large) = (most_entries(512 << 20), most_entries(4 << 30));
        assert_eq!((most_entries(0), small, large), (BATCH, 131_072, 1_048_576));
    }

    #[test]
    fn what_was_made_in_the_sandbox_is_counted_without_being_read() {
        for (why, size, blocks, expected) in [
            ("a thousand made here", 20_040, 0, Some(1000)),
            ("none made here", 40, 0, Some(0)),
            ("nothing known", 0, 0, Some(0)),
            ("on a disk", 12_280, 24, None),
            ("of another kind", 4097, 0, None),
        ] {
            assert_eq!(made_here(size, blocks), expected, "{why}");
        }
    }

    #[test]
    fn batches_make_up_one_message() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=BATCH * 2 {
            fs::write(folder.path().join(format!("{number:06}")), "").unwrap();
        }
        let empty = tempfile::tempdir().unwrap();
        for (path, count) in [(folder.path(), BATCH * 2 + 1), (empty.path(), 0)] {
            for codec in [Codec::Json, Codec::Proto] {
                let listing = Listing::open(path, 1, 1000, Arc::default()).unwrap();
                let mut writer = Writer { listing, codec, started: false, done: false };
                let mut whole = Vec::new();
                while !writer.done {
                    whole.extend(writer.batch().unwrap());
                }
                let response: ListDirResponse = codec.decode(&whole.into()).unwrap();
                assert_eq!(response.entries.len(), count);
            }
        }
    }
}
