//! A folder's entries as a body that is written while it is read: a folder may be larger than the
//! memory for it. Parents come before what is in them, names in the order of their bytes.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStrExt,
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

pub(crate) struct Listing {
    levels: Vec<Level>,
    depth: usize,
    accounts: Arc<Accounts>,
}

struct Level {
    folder: PathBuf,
    /// The last comes first.
    names: Vec<OsString>,
}

impl Listing {
    /// The folder itself may be a link; links in it are not followed.
    pub(crate) fn open(folder: &Path, depth: u32, accounts: Arc<Accounts>) -> io::Result<Self> {
        let depth = depth.max(1) as usize;
        Ok(Self { levels: vec![Level::open(folder.to_owned())?], depth, accounts })
    }
}

impl Level {
    fn open(folder: PathBuf) -> io::Result<Self> {
        let names = fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name()));
        let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
        names.sort_unstable_by(|one, other| other.as_bytes().cmp(one.as_bytes()));
        Ok(Self { folder, names })
    }
}

impl Iterator for Listing {
    type Item = EntryInfo;

    fn next(&mut self) -> Option<EntryInfo> {
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
            if is_folder
                && self.levels.len() < self.depth
                && let Ok(level) = Level::open(path)
            {
                self.levels.push(level);
            }
            return Some(entry);
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
    fn batch(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..BATCH {
            let Some(entry) = self.listing.next() else {
                self.done = true;
                break;
            };
            self.put(entry, &mut out);
        }
        if self.done && self.codec == Codec::Json {
            out.extend_from_slice(if self.started { b"]}" } else { b"{}" });
        }
        out
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

/// Blocks: for a thread that may.
pub(crate) fn first_batch(listing: Listing, codec: Codec) -> Body {
    let mut writer = Writer { listing, codec, started: false, done: false };
    let first = writer.batch();
    if writer.done {
        return full(first);
    }
    Rest { first: Some(first.into()), work: None, writer: Some(writer) }.boxed_unsync()
}

struct Rest {
    first: Option<Bytes>,
    writer: Option<Writer>,
    work: Option<JoinHandle<(Writer, Vec<u8>)>>,
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
                        let bytes = writer.batch();
                        (writer, bytes)
                    }));
                }
                Some(_) | None => return Poll::Ready(None),
            }
        }
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        let done = std::task::ready!(Pin::new(work).poll(cx));
        self.work = None;
        let (writer, bytes) = done.map_err(io::Error::other)?;
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
        let listing = Listing::open(folder, depth, Arc::default()).unwrap();
        let inside = |entry: EntryInfo| entry.path[folder.as_os_str().len() + 1..].to_owned();
        listing.map(inside).collect()
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
    fn batches_make_up_one_message() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=BATCH * 2 {
            fs::write(folder.path().join(format!("{number:06}")), "").unwrap();
        }
        let empty = tempfile::tempdir().unwrap();
        for (path, count) in [(folder.path(), BATCH * 2 + 1), (empty.path(), 0)] {
            for codec in [Codec::Json, Codec::Proto] {
                let listing = Listing::open(path, 1, Arc::default()).unwrap();
                let mut writer = Writer { listing, codec, started: false, done: false };
                let mut whole = Vec::new();
                while !writer.done {
                    whole.extend(writer.batch());
                }
                let response: ListDirResponse = codec.decode(&whole.into()).unwrap();
                assert_eq!(response.entries.len(), count);
            }
        }
    }
}
