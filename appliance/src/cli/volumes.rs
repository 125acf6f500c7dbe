//! `volume`: folders that outlive sandboxes.

use anyhow::{Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Context,
    admin::{cell, rows},
    api::{self, segment},
    target::Target,
};
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// What to call it
    name: String,
    /// Begin with what this one holds now, by name or id; later neither sees the other's changes
    #[arg(long, value_name = "VOLUME")]
    from: Option<String>,
}

pub(crate) async fn create(context: &Context, create: Create) -> Result<()> {
    let target = Target::find(context)?;
    let body = json!({ "name": create.name, "fromVolume": create.from });
    let made: Value =
        api::json(target.ask(Method::POST, "/volumes")?.json(&body).send().await).await?;
    match context.form {
        Form::Json => output::print_json(&made)?,
        Form::Human => output::print(&cell(&made, "volumeID"))?,
    }
    Ok(())
}

pub(crate) async fn ls(context: &Context) -> Result<()> {
    let listed = all(&Target::find(context)?).await?;
    match context.form {
        Form::Json => output::print_json(&listed)?,
        Form::Human => {
            let row = |it: &Value| ["volumeID", "name"].map(|field| cell(it, field));
            let rows: Vec<_> = rows(&listed).iter().map(row).collect();
            output::print(&output::table(["ID", "NAME"], &rows))?;
        }
    }
    Ok(())
}

pub(crate) async fn rm(context: &Context, volume: &str) -> Result<()> {
    let target = Target::find(context)?;
    let listed = all(&target).await?;
    let is_it = |it: &&Value| ["volumeID", "name"].iter().any(|field| cell(it, field) == volume);
    let Some(found) = rows(&listed).iter().find(is_it) else {
        bail!("there is no volume {volume}");
    };
    let path = format!("/volumes/{}", segment(&cell(found, "volumeID")));
    let answer = target.ask(Method::DELETE, &path)?.send().await;
    api::good(api::reached(answer)?).await.map(drop)
}

async fn all(target: &Target) -> Result<Value> {
    api::json(target.ask(Method::GET, "/volumes")?.send().await).await
}
