//! Where the log goes and how it looks: sentences on a terminal, one JSON object a line elsewhere.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat, log_filter};

/// Once in a process: the second call has no effect.
pub(crate) fn start(log: &Log) {
    let filter = log_filter(&log.filter).unwrap_or_else(|_checked| EnvFilter::new("info"));
    let human = match log.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => std::io::stderr().is_terminal(),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if human { log.try_init() } else { log.json().flatten_event(true).try_init() };
    if started.is_err() { /* a test in this process was first */ }
}
