//! Commands and terminals: starting them, reading what they say to everyone who listens, feeding
//! and ending them.

mod environment;
mod exit;
mod input;
mod journal;
mod output;
mod owner;
pub(crate) mod pty;
mod readers;
mod reaper;
mod registry;
mod service;
mod spawn;
mod stream;

pub(crate) use environment::{BadText, candidates, environment, to_argument, to_block};
pub(crate) use exit::Exit;
pub(crate) use reaper::Reaper;
pub(crate) use service::ProcessService;
pub(crate) use spawn::{Launch, Spawner};
