//! `key`: who may use the E2B surface.

use anyhow::Result;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Context,
    admin::{cell, rows},
    api::{self, segment},
    target::Target,
};
use crate::output::{self, Form};

pub(crate) async fn ls(context: &Context) -> Result<()> {
    let keys = Target::find(context)?.admin_get("/keys").await?;
    match context.form {
        Form::Json => output::print_json(&keys)?,
        Form::Human => {
            let row = |key: &Value| {
                let created = output::moment(&cell(key, "createdAt"));
                let [id, team, name, mask] =
                    ["id", "team", "name", "mask"].map(|field| cell(key, field));
                [id, team, name, mask, created]
            };
            let rows: Vec<_> = rows(&keys).iter().map(row).collect();
            output::print(&output::table(["ID", "TEAM", "NAME", "KEY", "CREATED"], &rows))?;
        }
    }
    Ok(())
}

pub(crate) async fn create(context: &Context, name: &str) -> Result<()> {
    let target = Target::find(context)?;
    let request = target.admin(Method::POST, "/keys")?.json(&json!({ "name": name }));
    let made: Value = api::json(request.send().await).await?;
    match context.form {
        Form::Json => output::print_json(&made)?,
        Form::Human => {
            output::note("this key is shown once; only its hash is kept");
            output::print(&cell(&made, "key"))?;
        }
    }
    Ok(())
}

pub(crate) async fn rm(context: &Context, id: &str) -> Result<()> {
    Target::find(context)?.admin_delete(&format!("/keys/{}", segment(id))).await
}
