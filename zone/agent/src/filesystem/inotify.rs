//! The kernel's news of folders, and what each piece of it means to a client.

use std::{ffi::OsString, path::Path, sync::Arc};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};
use sandboxo_agent_proto::filesystem::EventType;

use crate::readiness::Held;

#[derive(Clone)]
pub(crate) struct Source(Arc<Inotify>);

impl Source {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
        Inotify::init(flags).map(|inotify| Self(Arc::new(inotify)))
    }

    pub(crate) fn held(&self) -> Held {
        Held::Inotify(self.0.clone())
    }

    /// A folder that is watched already keeps its number.
    pub(crate) fn add(&self, folder: &Path) -> Result<WatchDescriptor, Errno> {
        let wanted = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        self.0.add_watch(folder, wanted)
    }

    pub(crate) fn remove(&self, folder: WatchDescriptor) {
        if self.0.rm_watch(folder).is_err() {
            // The folder is gone, and its watch with it.
        }
    }

    /// Empty: there is no more now.
    pub(crate) fn read(&self) -> Vec<News> {
        match self.0.read_events() {
            Ok(events) => events.into_iter().map(News::of).collect(),
            Err(_nothing_now) => Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) folder: WatchDescriptor,
    /// In the folder; none for the folder itself.
    pub(crate) name: Option<OsString>,
    pub(crate) mask: AddWatchFlags,
}

impl News {
    fn of(event: InotifyEvent) -> Self {
        Self { folder: event.wd, name: event.name, mask: event.mask }
    }

    pub(crate) fn says(&self, flag: AddWatchFlags) -> bool {
        self.mask.contains(flag)
    }
}

/// What a client hears of it. Of the watched folder itself only that it is gone.
pub(crate) fn meaning(mask: AddWatchFlags, of_itself: bool) -> Option<EventType> {
    let gone = [
        (AddWatchFlags::IN_DELETE_SELF, EventType::Remove),
        (AddWatchFlags::IN_MOVE_SELF, EventType::Rename),
    ];
    let inside = [
        (AddWatchFlags::IN_CREATE, EventType::Create),
        (AddWatchFlags::IN_MOVED_TO, EventType::Create),
        (AddWatchFlags::IN_MODIFY, EventType::Write),
        (AddWatchFlags::IN_ATTRIB, EventType::Chmod),
        (AddWatchFlags::IN_DELETE, EventType::Remove),
        (AddWatchFlags::IN_MOVED_FROM, EventType::Rename),
    ];
    let known: &[_] = if of_itself { &gone } else { &inside };
    known.iter().find(|(flag, _)| mask.contains(*flag)).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_of_news_has_one_meaning() {
        for (mask, of_itself, wanted) in [
            (AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ISDIR, false, Some(EventType::Create)),
            (AddWatchFlags::IN_MOVED_TO, false, Some(EventType::Create)),
            (AddWatchFlags::IN_MOVED_FROM, false, Some(EventType::Rename)),
            (AddWatchFlags::IN_MODIFY, false, Some(EventType::Write)),
            (AddWatchFlags::IN_ATTRIB, false, Some(EventType::Chmod)),
            (AddWatchFlags::IN_ATTRIB, true, None),
            (AddWatchFlags::IN_DELETE, false, Some(EventType::Remove)),
            (AddWatchFlags::IN_DELETE_SELF, true, Some(EventType::Remove)),
            (AddWatchFlags::IN_MOVE_SELF, true, Some(EventType::Rename)),
            (AddWatchFlags::IN_IGNORED, true, None),
        ] {
            assert_eq!(meaning(mask, of_itself), wanted, "{mask:?}");
        }
    }
}
