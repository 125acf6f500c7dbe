//! `LocalZone` as an appliance uses it.

mod contained;
mod faults;
mod images;
mod killed;
mod life;
mod pool;
mod restart;
mod trouble;
mod wild;
mod world;
