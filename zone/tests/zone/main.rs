//! The zone with the real kernel and the real runsc.

mod local;
#[cfg(test)]
mod network;
