//! Decisions as functions of values.

pub mod build;
pub mod copy;
mod expand;
pub mod expiry;
pub mod list;
pub mod mounts;
pub mod rate;
pub mod reconcile;
pub mod snapshot;
pub mod story;
pub mod template;
pub mod thin;
pub mod turns;
