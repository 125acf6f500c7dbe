//! Runs sandboxes on this host.

mod bundle;
mod cgroup;
mod config;
mod disk;
mod image;
pub mod keeper;
pub mod network;
mod process;
mod runsc;
mod slot;
