//! The watches that clients hold: polled by an id, or streamed.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use nix::errno::Errno;
use parking_lot::Mutex;
use sandboxo_agent_proto::{
    connect::Codec,
    filesystem::{
        FilesystemEvent, WatchDirResponse,
        watch_dir_response::{Event, KeepAlive, StartEvent},
    },
};
use sandboxo_tasks::{Stop, Tasks};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
    time::{Instant, Sleep, sleep_until},
};

use super::watch::{Watch, Wish};
use crate::{
    readiness::{self, Held},
    users::Accounts,
};

/// Each holds descriptors of the sandbox's kernel.
const MOST: usize = 1024;

pub(crate) struct Watchers {
    polled: Mutex<BTreeMap<String, Arc<Watched>>>,
    /// Those that look for new folders.
    recursive: Mutex<Vec<std::sync::Weak<Watched>>>,
    last_id: AtomicU64,
    count: Arc<AtomicUsize>,
    tasks: Tasks,
}

/// Ends its task when the last client lets go of it.
pub(crate) struct Watched {
    watch: Mutex<Watch>,
    reader: Mutex<Option<Waker>>,
    room: Notify,
    stop: Stop,
    count: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchError {
    TooMany,
    Kernel(Errno),
}

impl Watchers {
    pub(crate) fn new(tasks: Tasks) -> Self {
        Self {
            polled: Mutex::default(),
            recursive: Mutex::default(),
            last_id: AtomicU64::new(0),
            count: Arc::default(),
            tasks,
        }
    }

    pub(crate) fn watch(
        &self,
        wish: Wish,
        accounts: Arc<Accounts>,
    ) -> Result<Arc<Watched>, WatchError> {
        if self.count.load(Ordering::Relaxed) >= MOST {
            return Err(WatchError::TooMany);
        }
        let recursive = wish.recursive;
        let watch = Watch::begin(wish, accounts).map_err(WatchError::Kernel)?;
        let kernel = |error: io::Error| {
            WatchError::Kernel(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
        };
        let source = readiness::watch(watch.held(), Interest::READABLE).map_err(kernel)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let watched = Arc::new(Watched {
            watch: Mutex::new(watch),
            reader: Mutex::default(),
            room: Notify::new(),
            stop: Stop::new(),
            count: self.count.clone(),
        });
        let weak = Arc::downgrade(&watched);
        if recursive {
            let mut known = self.recursive.lock();
            known.retain(|other| other.strong_count() > 0);
            known.push(weak.clone());
        }
        let stop = watched.stop.clone();
        self.tasks.spawn("watcher", |_stop| async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = keep_up(&weak, source) => {}
            }
        });
        Ok(watched)
    }

    /// A folder that a client has made is watched before the client hears that it is there.
    pub(crate) fn catch_up(&self) {
        let known: Vec<_> =
            self.recursive.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        for watched in known {
            watched.catch_up();
        }
    }

    pub(crate) fn keep(&self, watched: Arc<Watched>) -> String {
        let id = format!("watcher-{}", self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        self.polled.lock().insert(id.clone(), watched);
        id
    }

    /// Up to this moment.
    pub(crate) fn events(&self, id: &str) -> Option<Vec<FilesystemEvent>> {
        let watched = self.polled.lock().get(id).cloned()?;
        watched.catch_up();
        let events = watched.watch.lock().take_all();
        watched.room.notify_one();
        Some(events)
    }

    pub(crate) fn remove(&self, id: &str) -> bool {
        self.polled.lock().remove(id).is_some()
    }
}

/// Folders that come must be watched at once, whether or not anyone asks for events.
async fn keep_up(watched: &std::sync::Weak<Watched>, source: AsyncFd<Held>) {
    loop {
        let Ok(mut ready) = source.readable().await else { return };
        let Some(watched) = watched.upgrade() else { return };
        watched.catch_up();
        if !watched.watch.lock().is_full() {
            ready.clear_ready();
            continue;
        }
        let stop = watched.stop.clone();
        tokio::select! {
            () = watched.room.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

impl Watched {
    fn catch_up(&self) {
        self.watch.lock().catch_up();
        if let Some(reader) = self.reader.lock().take() {
            reader.wake();
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The events of one watch as a stream of messages; it ends with its client.
pub(crate) struct WatchStream {
    watched: Arc<Watched>,
    codec: Codec,
    started: bool,
    keepalive: Duration,
    silent_until: Pin<Box<Sleep>>,
}

impl WatchStream {
    pub(crate) fn new(watched: Arc<Watched>, codec: Codec, keepalive: Duration) -> Self {
        let silent_until = Box::pin(sleep_until(Instant::now() + keepalive));
        Self { watched, codec, started: false, keepalive, silent_until }
    }

    fn message(&mut self, event: Event) -> Bytes {
        let later = Instant::now() + self.keepalive;
        self.silent_until.as_mut().reset(later);
        self.codec.envelop(&WatchDirResponse { event: Some(event) })
    }
}

impl http_body::Body for WatchStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let event = if self.started {
            *self.watched.reader.lock() = Some(cx.waker().clone());
            let event = self.watched.watch.lock().next();
            event.map(Event::Filesystem)
        } else {
            self.started = true;
            Some(Event::Start(StartEvent {}))
        };
        let event = match event {
            Some(event) => event,
            None if self.silent_until.as_mut().poll(cx).is_ready() => {
                Event::Keepalive(KeepAlive {})
            }
            None => return Poll::Pending,
        };
        self.watched.room.notify_one();
        Poll::Ready(Some(Ok(Frame::data(self.message(event)))))
    }
}
