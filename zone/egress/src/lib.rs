//! What leaves a sandbox.
#![forbid(unsafe_code)]

pub mod dns;
