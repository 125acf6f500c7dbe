//! What leaves a sandbox: names, and the connections that are allowed by them.
#![forbid(unsafe_code)]

mod authority;
pub mod dns;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod given;
mod guests;
mod judge;
pub mod proxy;

pub use authority::{Authority, AuthorityError};
pub use guests::Guests;
