//! The agent channel: streams, requests and greetings between a zone and the agent of one
//! sandbox, over one `SOCK_SEQPACKET` socketpair.
//!
//! `mux` decides and does no I/O; `link` moves its messages; [`ZoneEnd`] and [`AgentEnd`] are
//! what each side holds. A zone that takes over a channel greets with a new epoch: the agent drops
//! every stream, and the zone discards whatever was on its way until the answer to its own
//! greeting. Nothing is ever sent twice.

mod agent_end;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod link;
mod mux;
mod stream;
mod watch;
mod words;
mod zone_end;

pub use agent_end::{AgentEnd, HelloReply, Incoming, OpenReply, RequestReply, serve};
pub use frame::{DETACHED_MESSAGE, MAX_MESSAGE};
pub use link::Closed;
pub use mux::{MAX_STREAMS, WINDOW};
pub use stream::Stream;
pub use words::{Claim, Hello, Notice, Noticed, OpenFile, Refusal, Request, Response, Target};
pub use zone_end::{ChannelError, OpenError, ZoneEnd, attach};
