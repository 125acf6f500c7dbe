//! `snapshot create`, `ls` and `rm`, and `sandbox fork`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Context,
    admin::{cell, rows},
    api::{self, segment},
    target::Target,
    words::Duration,
};
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Of which sandbox
    id: String,
    /// What to call it; one that has the name and tag already is replaced
    #[arg(long, value_name = "NAME[:TAG]")]
    name: Option<String>,
    /// Keep files alone: what starts from it boots
    #[arg(long)]
    files_only: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only of this sandbox
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only of this name
    #[arg(long, value_name = "NAME[:TAG]")]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fork {
    /// Which
    id: String,
    /// How many copies (1 to 100)
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// How long they live: 90s, 5m, 2h, 1d
    #[arg(long, default_value = "5m")]
    timeout: Duration,
}

pub(crate) async fn create(context: &Context, create: Create) -> Result<()> {
    let target = Target::find(context)?;
    let mut body = json!({ "memory": !create.files_only });
    if let (Some(name), Some(body)) = (create.name, body.as_object_mut()) {
        body.insert("name".into(), name.into());
    }
    let path = format!("/sandboxes/{}/snapshots", segment(&create.id));
    let taken: Value = api::json(target.ask(Method::POST, &path)?.json(&body).send().await).await?;
    match context.form {
        Form::Json => output::print_json(&taken)?,
        Form::Human => output::print(&cell(&taken, "snapshotID"))?,
    }
    Ok(())
}

pub(crate) async fn ls(context: &Context, Ls { sandbox, name }: Ls) -> Result<()> {
    let filters: Vec<_> =
        [("sandboxID", sandbox), ("name", name)].into_iter().filter_map(given).collect();
    let listed: Vec<Value> = api::pages(&Target::find(context)?, "/snapshots", &filters).await?;
    match context.form {
        Form::Json => output::print_json(&listed)?,
        Form::Human => {
            let rows: Vec<_> = listed.iter().map(|it| [cell(it, "snapshotID")]).collect();
            output::print(&output::table(["ID"], &rows))?;
        }
    }
    Ok(())
}

fn given((key, value): (&'static str, Option<String>)) -> Option<(&'static str, String)> {
    Some((key, value?))
}

pub(crate) async fn rm(context: &Context, snapshot: &str) -> Result<()> {
    let target = Target::find(context)?;
    // The surface deletes templates by the same call.
    let named: Vec<Value> =
        api::pages(&target, "/snapshots", &[("name", snapshot.to_owned())]).await?;
    if named.is_empty() {
        bail!("there is no snapshot {snapshot}");
    }
    let path = format!("/templates/{}", segment(snapshot));
    let answer = target.ask(Method::DELETE, &path)?.send().await;
    api::good(api::reached(answer)?).await.map(drop)
}

pub(crate) async fn fork(context: &Context, fork: Fork) -> Result<ExitCode> {
    let target = Target::find(context)?;
    let body = json!({ "count": fork.count, "timeout": fork.timeout.0.as_secs() });
    let path = format!("/sandboxes/{}/fork", segment(&fork.id));
    let copies: Value =
        api::json(target.ask(Method::POST, &path)?.json(&body).send().await).await?;
    let mut all_run = true;
    for copy in rows(&copies) {
        if let Some(error) = copy.get("error") {
            all_run = false;
            output::note(&format!("a copy did not start: {}", cell(error, "message")));
        } else if let (Some(made), Form::Human) = (copy.get("sandbox"), context.form) {
            output::print(&cell(made, "sandboxID"))?;
        }
    }
    if let Form::Json = context.form {
        output::print_json(&copies)?;
    }
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
