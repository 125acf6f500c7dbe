//! The DNS forwarder of a zone: it listens where sandboxes can reach it, and asks from where this
//! process is.
//!
//! Messages are passed on as they are, with an id and a port of our own; what a resolver adds to
//! them is its and the client's business. A sandbox whose rules are by name is told those names
//! only, and what it is told is noted for the proxy.

mod ask;
mod forwarder;
mod message;
mod names;
mod resolvers;

#[cfg(any(test, fuzzing))]
pub(crate) use self::message::read;
pub(crate) use self::names::addresses;
pub use self::{
    forwarder::{Forwarder, Sockets},
    resolvers::Resolvers,
};
