//! Decisions as functions of values.

pub mod expiry;
pub mod list;
pub mod reconcile;
pub mod snapshot;
pub mod story;
pub mod template;
pub mod thin;
pub mod turns;
