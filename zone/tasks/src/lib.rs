//! Supervision: who runs, who is waited for, and what happens when one of them dies.
#![forbid(unsafe_code)]

mod every;
mod tasks;

pub use every::every;
pub use tasks::{Stop, Tasks};
