//! `LocalZone` as an appliance uses it.

mod life;
mod pool;
mod restart;
mod trouble;
mod world;
