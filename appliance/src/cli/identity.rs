//! `identity`: the keys of the tokens that say who sandboxes are.

use anyhow::Result;
use reqwest::Method;
use serde_json::Value;

use super::{Context, admin::cell, api, target::Target};
use crate::output::{self, Form};

pub(crate) async fn rotate(context: &Context) -> Result<()> {
    let request = Target::find(context)?.admin(Method::POST, "/identity/keys")?;
    let made: Value = api::json(request.send().await).await?;
    match context.form {
        Form::Json => output::print_json(&made)?,
        Form::Human => {
            output::note(&format!(
                "it signs from {} on",
                output::moment(&cell(&made, "signsFrom"))
            ));
            output::print(&cell(&made, "kid"))?;
        }
    }
    Ok(())
}
