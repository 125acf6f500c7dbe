//! The real control on a store in memory, with a zone in memory, a clock that stands still, and
//! randomness from a seed. Time is tokio's paused time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod accounts;
mod builds;
mod clock;
mod create;
mod crowd;
mod fork;
mod full;
mod identity;
mod images;
mod kill;
mod list;
mod mounts;
mod notices;
mod pause;
mod restart;
mod snapshot;
mod timeout;
mod turns;
mod update;
mod world;
mod zone;
