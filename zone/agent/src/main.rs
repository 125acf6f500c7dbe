//! The program that is process 1 in every sandbox: starts and feeds processes, serves files, and
//! carries connections to ports. It speaks Connect and HTTP/1.1, over the channel to its zone and
//! to programs inside.

mod account;
mod agent;
mod asker;
mod auth;
mod body;
mod channel;
mod clock;
mod config;
mod epoll;
mod files;
mod filesystem;
mod guest;
mod http_service;
mod identity;
mod metrics;
mod paths;
mod ports;
mod process;
mod query;
mod readiness;
mod rpc;
mod server;
mod sudo;
mod trust;
mod users;
mod volumes;

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use agent::Agent;
use config::{Config, Mode};
use sandboxo_tasks::Tasks;
use tokio::net::TcpListener;

/// Where programs inside find the agent. An address and no name: resolving one would bring the
/// resolver of the C library into the program.
const INSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 49983);

fn main() -> ExitCode {
    if sudo::client::is_meant() {
        return sudo::client::run();
    }
    guest::spare_memory();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if writeln!(io::stderr(), "sandboxo-agent: {error}").is_err() {
                // Nobody reads it; the exit code says the rest.
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    if guest::shrink_stack().is_err() {
        // Then it is larger than it need be.
    }
    let config = Config::from_process()?;
    guest::settle_in()?;
    // One thread for all that waits; a few, made when needed, for what takes the disk's time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(4)
        .thread_stack_size(1024 * 1024)
        .thread_keep_alive(Duration::from_secs(2))
        .build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let tasks = Tasks::new();
    let agent = Agent::start(config.path, &tasks)?;
    match config.mode {
        Mode::Channel(fd) => {
            match TcpListener::bind(INSIDE).await {
                Ok(listener) => server::listen(agent.clone(), listener, &tasks),
                // Without a loopback the channel serves alone.
                Err(error) => writeln!(io::stderr(), "no listener inside: {error}")?,
            }
            if let Err(error) = sudo::broker::listen(agent.clone(), agent.reaper.clone(), &tasks) {
                // Commands run without it.
                writeln!(io::stderr(), "no sudo inside: {error}")?;
            }
            channel::attend(agent, fd, &tasks)?;
        }
        Mode::Listen { address, claim } => {
            agent.claim(*claim);
            let listener = TcpListener::bind(address).await?;
            writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
            server::listen(agent, listener, &tasks);
        }
    }
    tasks.stop().cancelled().await;
    Err("a task that everything needs has ended".into())
}
