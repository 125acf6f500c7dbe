//! The operator's surface as the command line uses it.

use anyhow::Result;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::{api, target::Target};

impl Target {
    pub(crate) fn admin(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let token = self.token()?.expose();
        Ok(self.http.request(method, self.api(&format!("/admin/v1{path}"))).bearer_auth(token))
    }

    pub(crate) async fn admin_get(&self, path: &str) -> Result<Value> {
        api::json(self.admin(Method::GET, path)?.send().await).await
    }

    pub(crate) async fn admin_delete(&self, path: &str) -> Result<()> {
        let answer = self.admin(Method::DELETE, path)?.send().await;
        api::good(api::reached(answer)?).await?;
        Ok(())
    }
}

/// Of an object in a list that the table shows; nothing for what is not there.
pub(crate) fn cell(row: &Value, field: &str) -> String {
    match row.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    }
}

pub(crate) fn rows(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
