//! The DNS forwarder of a zone: it listens where sandboxes can reach it, and asks from where this
//! process is.
//!
//! Messages are passed on as they are, with an id and a port of our own; what a resolver adds to
//! them is its and the client's business.

mod ask;
mod forwarder;
mod message;
mod resolvers;

pub use self::{
    forwarder::{Forwarder, Sockets},
    resolvers::Resolvers,
};
