//! The keeper: starts what it is told to start, reaps it, and holds the sockets of agents, so that
//! the zone can die and come back without a sandbox noticing.
//!
//! One thread, no policy. [`run`] is the program; [`protocol`] and [`wire`] are what a zone needs
//! to talk to it over a unix socket.

mod args;
mod book;
mod log;
mod mounts;
pub mod protocol;
mod server;
mod setup;
mod spawn;
mod state;
mod upgrade;
pub mod wire;

use std::{ffi::OsString, process::ExitCode};

/// The body of `sandboxo keeper`. Must run before the process has a second thread. Returns in the
/// parent once the keeper answers at its socket; the keeper itself goes on in the background.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match args::Args::parse(args) {
        Ok(args::Asked::Serve(args)) => args,
        Ok(args::Asked::Reads(format)) if state::reads(format) => {
            return ExitCode::from(upgrade::READS);
        }
        Ok(args::Asked::Reads(_)) => return ExitCode::FAILURE,
        Err(error) => {
            log::line(&format!("{error}\n{}", args::USAGE));
            return ExitCode::from(2);
        }
    };
    if let Some(memory) = args.resume {
        return match server::Server::resume(args, memory) {
            Ok(mut resumed) => {
                resumed.serve();
                ExitCode::SUCCESS
            }
            // The zone sees the connection end, and gives its channels to another keeper.
            Err(error) => {
                log::error(&error);
                ExitCode::FAILURE
            }
        };
    }
    match setup::start(args) {
        Ok(setup::Started::Parent) => ExitCode::SUCCESS,
        Ok(setup::Started::Failed) => ExitCode::FAILURE,
        Ok(setup::Started::Keeper(mut ready)) => {
            ready.serve();
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::error(&error);
            ExitCode::FAILURE
        }
    }
}
