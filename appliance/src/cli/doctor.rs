//! `doctor`: real checks of this host and of the appliance on it, each with what to do.

mod host;
mod leaks;
mod server;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use serde::Serialize;

use super::Context;
use crate::{
    config::Config,
    output::{self, Form, Progress},
    state::StateFolder,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Compare what is on this host with the sandboxes that live or wait
    #[arg(long)]
    leaks: bool,
    /// For how many seconds to look again until they are equal
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "leaks")]
    quiesce: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome {
    Good {
        found: String,
    },
    /// It works, but not all of it or not well.
    Warning {
        found: String,
        todo: String,
    },
    Bad {
        found: String,
        todo: String,
    },
    /// What it needs is bad already.
    Skipped {
        found: String,
    },
}

impl Outcome {
    fn good(found: impl Into<String>) -> Self {
        Self::Good { found: found.into() }
    }

    fn bad(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Bad { found: found.into(), todo: todo.into() }
    }

    fn warning(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Warning { found: found.into(), todo: todo.into() }
    }

    fn is_good(&self) -> bool {
        matches!(self, Self::Good { .. } | Self::Warning { .. })
    }
}

pub(crate) async fn doctor(context: &Context, ask: Doctor) -> Result<ExitCode> {
    let Doctor { leaks, quiesce } = ask;
    let config = Config::load(&context.flags)?;
    let state = StateFolder::at(&config.state);
    if leaks {
        return leaks::leaks(context, &config, &state, Duration::from_secs(quiesce)).await;
    }
    let progress = Progress::spinner("looking at this host");
    let mut findings = host::check(&config, &state);
    progress.phase("asking the appliance");
    findings.extend(server::check(context).await);
    drop(progress);
    match context.form {
        Form::Json => output::print_json(&findings)?,
        Form::Human => output::print(&findings.iter().map(line).collect::<Vec<_>>().join("\n"))?,
    }
    let bad = findings.iter().any(|finding| matches!(finding.outcome, Outcome::Bad { .. }));
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(Finding { check, outcome }: &Finding) -> String {
    match outcome {
        Outcome::Good { found } => format!("ok       {check}: {found}"),
        Outcome::Warning { found, todo } => format!("warning  {check}: {found}\n         → {todo}"),
        Outcome::Bad { found, todo } => format!("BAD      {check}: {found}\n         → {todo}"),
        Outcome::Skipped { found } => format!("skipped  {check}: {found}"),
    }
}
