//! Decisions as functions of values.

pub mod expiry;
pub mod list;
pub mod reconcile;
pub mod template;
