//! `LocalZone` as an appliance uses it.

mod blanks;
mod contained;
mod faults;
mod freeze;
mod images;
mod killed;
mod life;
mod mounts;
mod pause;
mod pool;
mod restart;
mod trouble;
mod volumes;
mod wild;
mod world;
