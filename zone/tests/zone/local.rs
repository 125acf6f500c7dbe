//! `LocalZone` as an appliance uses it.

mod contained;
mod life;
mod pool;
mod restart;
mod trouble;
mod world;
