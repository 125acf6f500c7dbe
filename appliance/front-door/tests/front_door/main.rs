//! The door in front of the real control, a zone in memory and programs that speak HTTP over the
//! streams that the zone opens. Clients come over TCP.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod cut;
mod failures;
mod framing;
mod headers;
mod program;
mod routes;
mod secure;
mod stream;
mod upgrade;
mod wake;
mod world;
