//! `LocalZone` as an appliance uses it.

mod life;
mod world;
