//! One watched folder, or one with all that is below it: from the kernel's news to a queue of
//! events.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, WatchDescriptor},
};
use sandboxo_agent_proto::filesystem::{EntryInfo, EventType, FilesystemEvent};

use super::{
    entry::look,
    inotify::{News, Source, meaning},
};
use crate::{readiness::Held, users::Accounts};

/// Events that wait for their client. More wait in the kernel, which has its own limit.
pub(crate) const QUEUE: usize = 16 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) root: PathBuf,
    pub(crate) recursive: bool,
    pub(crate) include_entry: bool,
}

pub(crate) struct Watch {
    source: Source,
    wish: Wish,
    accounts: Arc<Accounts>,
    /// Relative to the root, which is the empty path.
    folders: BTreeMap<WatchDescriptor, PathBuf>,
    /// Told already by looking into a new folder, though the kernel's news of it is still to come.
    told: BTreeSet<PathBuf>,
    queue: VecDeque<FilesystemEvent>,
}

impl Watch {
    /// The kernel watches from here on.
    pub(crate) fn begin(wish: Wish, accounts: Arc<Accounts>) -> Result<Self, Errno> {
        let mut watch = Self {
            source: Source::new()?,
            wish,
            accounts,
            folders: BTreeMap::new(),
            told: BTreeSet::new(),
            queue: VecDeque::new(),
        };
        let root = watch.source.add(&watch.wish.root)?;
        watch.folders.insert(root, PathBuf::new());
        if watch.wish.recursive {
            watch.add_below(Path::new(""), false)?;
        }
        Ok(watch)
    }

    pub(crate) fn held(&self) -> Held {
        self.source.held()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE
    }

    pub(crate) fn next(&mut self) -> Option<FilesystemEvent> {
        self.queue.pop_front()
    }

    pub(crate) fn take_all(&mut self) -> Vec<FilesystemEvent> {
        std::mem::take(&mut self.queue).into()
    }

    /// All that the kernel has, while there is room.
    pub(crate) fn catch_up(&mut self) {
        while !self.is_full() {
            let news = self.source.read();
            if news.is_empty() {
                self.told.clear();
                return;
            }
            for one in news {
                self.hear(&one);
            }
        }
    }

    fn hear(&mut self, news: &News) {
        if news.says(AddWatchFlags::IN_Q_OVERFLOW) {
            // Folders may have come unseen.
            if self.wish.recursive && self.add_below(Path::new(""), false).is_err() {
                // What can't be watched is not.
            }
            return;
        }
        let Some(folder) = self.folders.get(&news.folder).cloned() else { return };
        if news.says(AddWatchFlags::IN_IGNORED) {
            self.folders.remove(&news.folder);
            return;
        }
        let Some(name) = &news.name else {
            if folder.as_os_str().is_empty()
                && let Some(kind) = meaning(news.mask, true)
            {
                self.put(Path::new("."), kind);
            }
            return;
        };
        let path = folder.join(name);
        let Some(kind) = meaning(news.mask, false) else { return };
        let known = kind == EventType::Create && self.told.remove(&path);
        if !known {
            self.put(&path, kind);
        }
        if self.wish.recursive && news.says(AddWatchFlags::IN_ISDIR) {
            match kind {
                EventType::Create => {
                    let is_new = news.says(AddWatchFlags::IN_CREATE);
                    if self.add_folder(&path, is_new).is_err() {
                        // It is gone again.
                    }
                }
                EventType::Rename => self.forget_below(&path),
                EventType::Unspecified
                | EventType::Write
                | EventType::Remove
                | EventType::Chmod => {}
            }
        }
    }

    /// Of a folder that was just made, what came into it before it was watched is told as well.
    fn add_folder(&mut self, path: &Path, tell: bool) -> Result<(), Errno> {
        let is_new = self.add_one(path)?;
        self.add_below(path, tell && is_new)
    }

    fn add_one(&mut self, path: &Path) -> Result<bool, Errno> {
        let descriptor = self.source.add(&self.wish.root.join(path))?;
        Ok(self.folders.insert(descriptor, path.to_owned()).is_none())
    }

    /// Without recursion: how deep it goes is for others to choose.
    fn add_below(&mut self, folder: &Path, tell: bool) -> Result<(), Errno> {
        let mut to_do = vec![(folder.to_owned(), tell)];
        while let Some((folder, tell)) = to_do.pop() {
            for (name, is_folder, has_content) in inside(&self.wish.root.join(&folder)) {
                let path = folder.join(name);
                if tell && self.told.insert(path.clone()) {
                    self.put(&path, EventType::Create);
                    if has_content {
                        self.put(&path, EventType::Write);
                    }
                }
                if !is_folder {
                    continue;
                }
                match self.add_one(&path) {
                    Ok(is_new) => to_do.push((path, tell && is_new)),
                    // It went away, which its parent will tell; or its path is too long to watch.
                    Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ENAMETOOLONG) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    fn forget_below(&mut self, path: &Path) {
        let source = self.source.clone();
        self.folders.retain(|descriptor, folder| {
            let stays = !folder.starts_with(path);
            if !stays {
                source.remove(*descriptor);
            }
            stays
        });
    }

    fn put(&mut self, path: &Path, kind: EventType) {
        let entry = match kind {
            EventType::Create | EventType::Write | EventType::Chmod => self.entry(path),
            EventType::Unspecified | EventType::Remove | EventType::Rename => None,
        };
        let name = path.to_string_lossy().into_owned();
        let event = FilesystemEvent { name, r#type: kind.into(), entry };
        // Two the same in a row say no more than one.
        if self.queue.back() != Some(&event) {
            self.queue.push_back(event);
        }
    }

    fn entry(&self, path: &Path) -> Option<EntryInfo> {
        if !self.wish.include_entry {
            return None;
        }
        look(&self.wish.root.join(path), &self.accounts).ok()
    }
}

/// Names, whether each is a folder, and whether it is a file with something in it.
fn inside(folder: &Path) -> Vec<(OsString, bool, bool)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let found = entry.metadata().ok()?;
            Some((entry.file_name(), found.is_dir(), found.is_file() && found.len() > 0))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn watch(root: &Path, recursive: bool, include_entry: bool) -> Watch {
        let wish = Wish { root: root.to_owned(), recursive, include_entry };
        Watch::begin(wish, Arc::default()).unwrap()
    }

    fn events(watch: &mut Watch) -> Vec<(String, EventType)> {
        watch.catch_up();
        watch.take_all().into_iter().map(|event| (event.name.clone(), event.r#type())).collect()
    }

    fn list(wanted: &[(&str, EventType)]) -> Vec<(String, EventType)> {
        wanted.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
    }

    #[test]
    fn files_are_told_by_name() {
        use EventType::{Chmod, Create, Remove, Rename, Write};
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let mut watch = watch(root.path(), false, false);
        let mut file = fs::File::create(path("a")).unwrap();
        std::os::unix::fs::fchown(&file, Some(0), Some(0)).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(events(&mut watch), list(&[("a", Create), ("a", Chmod), ("a", Write)]));
        fs::rename(path("a"), path("b")).unwrap();
        fs::remove_file(path("b")).unwrap();
        assert_eq!(events(&mut watch), list(&[("a", Rename), ("b", Create), ("b", Remove)]));
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/unseen"), "x").unwrap();
        assert_eq!(events(&mut watch), list(&[("d", Create)]));
        let elsewhere = tempfile::tempdir().unwrap();
        fs::rename(root.path(), elsewhere.path().join("moved")).unwrap();
        assert_eq!(events(&mut watch), list(&[(".", Rename)]));
    }

    #[test]
    fn folders_made_later_are_watched_and_what_is_in_them_is_told() {
        use EventType::{Create, Rename, Write};
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("old")).unwrap();
        let mut watch = watch(root.path(), true, false);
        fs::create_dir_all(path("new/er")).unwrap();
        fs::write(path("new/er/file"), "x").unwrap();
        assert_eq!(
            events(&mut watch),
            list(&[
                ("new", Create),
                ("new/er", Create),
                ("new/er/file", Create),
                ("new/er/file", Write)
            ])
        );
        fs::write(path("new/er/file"), "xy").unwrap();
        fs::write(path("old/file"), "").unwrap();
        let seen = events(&mut watch);
        assert_eq!(seen, list(&[("new/er/file", Write), ("old/file", Create)]));
        fs::rename(path("new"), path("moved")).unwrap();
        assert_eq!(events(&mut watch), list(&[("new", Rename), ("moved", Create)]));
        fs::write(path("moved/er/late"), "").unwrap();
        assert_eq!(events(&mut watch), list(&[("moved/er/late", Create)]));
    }

    #[test]
    fn entries_come_with_what_still_exists() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = watch(root.path(), false, true);
        fs::write(root.path().join("kept"), "four").unwrap();
        fs::write(root.path().join("gone"), "").unwrap();
        fs::remove_file(root.path().join("gone")).unwrap();
        watch.catch_up();
        for event in watch.take_all() {
            let size = event.entry.as_ref().map(|entry| entry.size);
            assert_eq!(size, (event.name == "kept").then_some(4), "{event:?}");
        }
    }

    #[test]
    fn a_queue_that_is_full_is_left_for_later() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = watch(root.path(), false, false);
        let mut names = BTreeSet::new();
        for number in 0..QUEUE / 2 + 100 {
            let name = format!("{number}");
            fs::create_dir(root.path().join(&name)).unwrap();
            if number % 4 == 0 {
                watch.catch_up();
            }
            names.insert(name);
        }
        let mut seen = BTreeSet::new();
        loop {
            let some = events(&mut watch);
            if some.is_empty() {
                break;
            }
            assert!(some.len() < QUEUE + 200);
            seen.extend(some.into_iter().map(|(name, _)| name));
        }
        assert_eq!(seen, names);
    }
}
