//! Runs sandboxes on this host.
//!
//! [`LocalZone`] is what an appliance holds. Read from there: `sandbox` is the task that owns one,
//! `bringup` how it comes to be, `pool` those that wait, `adopt` what a restart makes of them.

mod admission;
mod adopt;
mod adoption;
mod bringup;
mod bundle;
mod cgroup;
mod checkpoint;
mod config;
mod disk;
mod events;
mod fault;
mod host;
mod image;
mod inventory;
mod janitor;
pub mod keeper;
mod local;
mod machine;
pub mod network;
mod notices;
mod places;
mod pool;
mod process;
mod programs;
mod runsc;
mod sandbox;
mod selftest;
mod sentry;
mod slot;
mod teardown;
mod volume;

pub use cgroup::CgroupError;
pub use config::{Limits, ZoneConfig};
#[cfg(any(test, fuzzing))]
pub use image::fuzz;
pub use inventory::{Inventory, InventoryError, Row, Told};
pub use local::{LocalZone, StartError, starts_at_once};
pub use runsc::{Features, ProbeError, RunscVersion, RuntimeFacts};
pub use selftest::SelfTestError;
pub use teardown::{TearDownError, tear_down};
