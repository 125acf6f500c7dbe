//! The operator's surface on the real control, a store in memory and a zone in memory.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests are tests")]

mod access;
mod keys;
mod sandboxes;
mod templates;
mod world;
mod zone;
