//! `sandbox create`, `ls`, `pause`, `resume` and `kill`.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use reqwest::Method;
use serde_json::json;

use super::{
    Context,
    api::{self, Sandbox},
    target::Target,
    words::{Duration, Mount, Pair},
};
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// What it starts from
    #[arg(default_value = "base")]
    template: String,
    /// How long it lives: 90s, 5m, 2h, 1d
    #[arg(long, default_value = "5m")]
    timeout: Duration,
    /// A variable of all its commands
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<Pair>,
    /// A label to find it by
    #[arg(short, long, value_name = "NAME=VALUE")]
    metadata: Vec<Pair>,
    /// A volume, and where it appears
    #[arg(long, value_name = "VOLUME:PATH")]
    volume: Vec<Mount>,
    /// It reaches nothing outside
    #[arg(long)]
    no_internet: bool,
    /// What becomes of it when its time is over
    #[arg(long, value_enum, default_value_t)]
    on_timeout: OnTimeout,
    /// Requests to its ports wake it when it is paused
    #[arg(long)]
    auto_resume: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum OnTimeout {
    #[default]
    Kill,
    Pause,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only with this label
    #[arg(short, long, value_name = "NAME=VALUE")]
    metadata: Vec<Pair>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// Which
    #[arg(required = true)]
    ids: Vec<String>,
    /// Keep files alone: a resume boots it
    #[arg(long)]
    files_only: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// Which
    #[arg(required = true)]
    ids: Vec<String>,
    /// How long it lives from now: 90s, 5m, 2h, 1d
    #[arg(long, default_value = "5m")]
    timeout: Duration,
    /// Boot it from its files, whatever else was kept
    #[arg(long)]
    reboot: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Kill {
    /// Which
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,
    /// All that run or are paused
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub(crate) async fn create(context: &Context, create: Create) -> Result<()> {
    let target = Target::find(context)?;
    let map = |pairs: Vec<Pair>| -> BTreeMap<String, String> {
        pairs.into_iter().map(|Pair(name, value)| (name, value)).collect()
    };
    let mut body = json!({
        "templateID": create.template,
        "timeout": create.timeout.0.as_secs(),
        "envVars": map(create.env),
        "metadata": map(create.metadata),
        "autoPause": create.on_timeout == OnTimeout::Pause,
        "autoResume": { "enabled": create.auto_resume },
    });
    if !create.volume.is_empty()
        && let Some(body) = body.as_object_mut()
    {
        let mounts = create
            .volume
            .iter()
            .map(|Mount { volume, path }| json!({ "name": volume, "path": path }));
        body.insert("volumeMounts".into(), mounts.collect());
    }
    if create.no_internet
        && let Some(body) = body.as_object_mut()
    {
        body.insert("allow_internet_access".into(), false.into());
    }
    let made = target.create(&body).await?;
    match context.form {
        Form::Json => output::print_json(&made)?,
        Form::Human => output::print(&made.id)?,
    }
    Ok(())
}

pub(crate) async fn ls(context: &Context, ls: Ls) -> Result<()> {
    let listed = all(&Target::find(context)?, &ls.metadata).await?;
    match context.form {
        Form::Json => output::print_json(&listed)?,
        Form::Human => {
            let rows: Vec<_> = listed.iter().map(row).collect();
            output::print(&output::table(
                ["ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "METADATA"],
                &rows,
            ))?;
        }
    }
    Ok(())
}

pub(crate) async fn pause(context: &Context, pause: Pause) -> Result<ExitCode> {
    let body = json!({ "memory": !pause.files_only });
    each(context, "paused", &pause.ids, "/sandboxes", "/pause", &body).await
}

pub(crate) async fn resume(context: &Context, resume: Resume) -> Result<ExitCode> {
    let body = json!({ "timeout": resume.timeout.0.as_secs(), "memory": !resume.reboot });
    each(context, "resumed", &resume.ids, "/v2/sandboxes", "/connect", &body).await
}

/// Goes on to the next when one is refused.
async fn each(
    context: &Context,
    done: &str,
    ids: &[String],
    before: &str,
    after: &str,
    body: &serde_json::Value,
) -> Result<ExitCode> {
    let target = Target::find(context)?;
    let mut good = Vec::new();
    for id in ids {
        let path = format!("{before}/{}{after}", api::segment(id));
        let answer = target.ask(Method::POST, &path)?.json(body).send().await;
        match api::good(api::reached(answer)?).await {
            Ok(_answer) => good.push(id),
            Err(refusal) => output::note(&format!("{id}: {refusal}")),
        }
    }
    match context.form {
        Form::Json => output::print_json(&json!({ done: good }))?,
        Form::Human => good.iter().try_for_each(|id| output::print(id))?,
    }
    Ok(if good.len() == ids.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) async fn kill(context: &Context, kill: Kill) -> Result<ExitCode> {
    let target = Target::find(context)?;
    let ids = if kill.all {
        all(&target, &[]).await?.into_iter().map(|sandbox| sandbox.id).collect()
    } else {
        kill.ids
    };
    let mut killed = Vec::new();
    let mut missing = Vec::new();
    for id in ids {
        if target.kill(&id).await? {
            killed.push(id);
        } else {
            output::note(&format!("{id}: there is no such sandbox"));
            missing.push(id);
        }
    }
    match context.form {
        Form::Json => output::print_json(&json!({ "killed": killed, "missing": missing }))?,
        Form::Human => killed.iter().try_for_each(|id| output::print(id))?,
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn all(target: &Target, metadata: &[Pair]) -> Result<Vec<Sandbox>> {
    let mut query = Vec::new();
    if !metadata.is_empty() {
        query.push(("metadata", encode_metadata(metadata)));
    }
    api::pages(target, "/v2/sandboxes", &query).await
}

/// The surface decodes a pair twice after the query's own decoding.
fn encode_metadata(pairs: &[Pair]) -> String {
    let twice = |text: &str| api::segment(&api::segment(text));
    let pairs: Vec<_> =
        pairs.iter().map(|Pair(name, value)| format!("{}={}", twice(name), twice(value))).collect();
    pairs.join("&")
}

fn row(sandbox: &Sandbox) -> [String; 6] {
    let metadata = sandbox.metadata.iter().flatten();
    [
        sandbox.id.clone(),
        sandbox.alias.clone().unwrap_or_else(|| sandbox.template.clone()),
        sandbox.state.clone().unwrap_or_default(),
        sandbox.started_at.as_deref().map(output::moment).unwrap_or_default(),
        sandbox.end_at.as_deref().map(output::moment).unwrap_or_default(),
        metadata.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the contract has it: `a b` = `c&d` travels, after the query's encoding, as
    /// `a%252520b%3Dc%252526d`.
    #[test]
    fn metadata_is_encoded_twice_before_the_query() {
        let pairs = [Pair("a b".into(), "c&d".into())];
        assert_eq!(encode_metadata(&pairs), "a%2520b=c%2526d");
    }

    #[test]
    fn a_row_of_the_list() {
        let listed: Sandbox = serde_json::from_value(json!({
            "sandboxID": "sbx-loc-0", "templateID": "t0", "alias": "base", "state": "running",
            "startedAt": "2026-01-01T00:00:00.123Z", "endAt": "2026-01-01T00:05:00Z",
            "metadata": { "a": "b", "c": "d" }, "somethingNew": 1,
        }))
        .unwrap();
        assert_eq!(
            row(&listed),
            [
                "sbx-loc-0",
                "base",
                "running",
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:05:00Z",
                "a=b c=d"
            ]
        );
    }

    /// The agent's token is for the caller of create, not for a log of a script.
    #[test]
    fn json_has_no_token() {
        let made: Sandbox = serde_json::from_value(json!({
            "sandboxID": "x", "templateID": "t", "envdAccessToken": "hush",
        }))
        .unwrap();
        assert!(!serde_json::to_string(&made).unwrap().contains("hush"));
    }
}
