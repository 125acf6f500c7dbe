//! The appliance's program: `sandboxo serve`, and the command line for people.
#![forbid(unsafe_code)]

mod boot;
mod cli;
mod config;
mod hex;
mod output;
mod programs;
mod shutdown;
mod state;
mod telemetry;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::Parser as _;

/// Bad usage and a bad configuration; clap's own number.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // The keeper is small and single-threaded, and outlives the appliance that started it: it
    // gets nothing of what follows.
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|command| command == "keeper") {
        return sandboxo_keeper::run(args.into_iter().skip(2));
    }
    let ask = match cli::Cli::parse_from(args).ask() {
        Ok(ask) => ask,
        Err(problems) => {
            output::note(&format!("sandboxo: {problems}"));
            return ExitCode::from(USAGE);
        }
    };
    match run(ask) {
        Ok(code) => code,
        Err(error) => {
            output::note(&format!("sandboxo: {error:#}"));
            let usage = error.is::<config::Problems>();
            if usage { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(ask: cli::Ask) -> Result<ExitCode> {
    let runtime = match &ask {
        cli::Ask::Serve(_) => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
        // One thread is enough for a client.
        cli::Ask::Client(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    };
    let runtime = runtime.context("start the runtime")?;
    let outcome = match ask {
        cli::Ask::Serve(config) => {
            telemetry::start(&config.log);
            #[cfg(feature = "crashpoints")]
            if let Some(file) = config::crash_order() {
                sandboxo_crashpoint::obey(file);
            }
            runtime.block_on(boot::serve(*config)).map(|end| ExitCode::from(end.code()))
        }
        cli::Ask::Client(asked) => {
            let (context, command) = *asked;
            runtime.block_on(cli::run(context, command))
        }
    };
    // A thread that waits for a terminal's next key would be waited for without end.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}
