//! The zone with the real kernel and the real runsc.

mod local;
mod network;
