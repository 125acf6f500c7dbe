//! Files and folders by RPC: looking, changing, watching. All of it as root: the user of a call
//! gives a home and an owner, and limits nothing.

mod change;
mod entry;
mod failure;
mod inotify;
mod listing;
mod relocate;
mod remove;
mod service;
mod watch;
mod watcher;
pub(crate) mod xattr;

pub(crate) use change::ensure_folder;
pub(crate) use service::FilesystemService;
pub(crate) use watcher::Watchers;
