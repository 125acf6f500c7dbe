//! The zone with the real kernel and the real runsc.

#[cfg(test)]
mod local;
#[cfg(test)]
mod network;
