//! The E2B surface as the command line uses it, and how its refusals read.

use anyhow::{Result, anyhow, bail};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::target::Target;

/// What a surface says when it refuses.
#[derive(Debug, Deserialize)]
struct Refusal {
    message: Option<String>,
    error: Option<String>,
}

/// A sandbox as the surface shows it; `Serialize` is for `--json`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "sandboxID")]
    pub(crate) id: String,
    #[serde(rename = "templateID")]
    pub(crate) template: String,
    #[serde(default)]
    pub(crate) alias: Option<String>,
    #[serde(default, skip_serializing)]
    pub(crate) envd_access_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_count: Option<u32>,
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<std::collections::BTreeMap<String, String>>,
}

impl Target {
    pub(crate) fn ask(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let key = self.key()?.expose();
        Ok(self.http.request(method, self.api(path)).header("X-API-Key", key))
    }

    pub(crate) async fn create(&self, body: &serde_json::Value) -> Result<Sandbox> {
        json(self.ask(Method::POST, "/v2/sandboxes")?.json(body).send().await).await
    }

    pub(crate) async fn sandbox_of(&self, id: &str) -> Result<Sandbox> {
        json(self.ask(Method::GET, &format!("/sandboxes/{}", segment(id)))?.send().await).await
    }

    /// Ended, or never there.
    pub(crate) async fn is_gone(&self, id: &str) -> Result<bool> {
        let answer = self.ask(Method::GET, &format!("/sandboxes/{}", segment(id)))?.send().await;
        let answer = reached(answer)?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(true);
        }
        good(answer).await?;
        Ok(false)
    }

    /// `false`: there was none.
    pub(crate) async fn kill(&self, id: &str) -> Result<bool> {
        let answer = self.ask(Method::DELETE, &format!("/sandboxes/{}", segment(id)))?.send().await;
        let answer = reached(answer)?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        good(answer).await?;
        Ok(true)
    }
}

/// A whole list, page by page.
pub(crate) async fn pages<T: DeserializeOwned>(
    target: &Target,
    path: &str,
    filters: &[(&str, String)],
) -> Result<Vec<T>> {
    let mut listed = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let mut query = vec![("limit", "100".to_owned())];
        query.extend_from_slice(filters);
        query.extend(next.take().map(|token| ("nextToken", token)));
        let request = target.ask(Method::GET, path)?.query(&query);
        let answer = good(reached(request.send().await)?).await?;
        let token = answer.headers().get("X-Next-Token").and_then(|token| token.to_str().ok());
        let token = token.filter(|token| !token.is_empty()).map(str::to_owned);
        let page: Vec<T> = json(Ok(answer)).await?;
        if token.is_some() && page.is_empty() {
            bail!("the server's list does not end");
        }
        listed.extend(page);
        match token {
            Some(token) => next = Some(token),
            None => return Ok(listed),
        }
    }
}

/// A path segment of whatever somebody typed.
pub(crate) fn segment(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

pub(crate) async fn json<T: DeserializeOwned>(answer: reqwest::Result<Response>) -> Result<T> {
    let answer = good(reached(answer)?).await?;
    let text = answer.text().await?;
    serde_json::from_str(&text)
        .map_err(|error| anyhow!("the server's answer can't be read: {error}"))
}

/// An answer that is no refusal.
pub(crate) async fn good(answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let text = answer.text().await.unwrap_or_default();
    let said = serde_json::from_str::<Refusal>(&text)
        .ok()
        .and_then(|refusal| refusal.message.or(refusal.error))
        .unwrap_or_else(|| text.chars().take(300).collect());
    Err(match status {
        StatusCode::UNAUTHORIZED => anyhow!("the server refused the key: {said}"),
        _ if said.is_empty() => anyhow!("the server answered {status}"),
        _ => anyhow!("{said} ({})", status.as_u16()),
    })
}

pub(crate) fn reached(answer: reqwest::Result<Response>) -> Result<Response> {
    answer.map_err(|error| {
        let place = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        if error.is_connect() {
            anyhow!("nothing answers at {place}: is the appliance running? (`sandboxo serve`)")
        } else {
            anyhow::Error::new(error).context(format!("ask {place}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_stays_one_segment() {
        assert_eq!(segment("sbx-loc-0"), "sbx-loc-0");
        assert_eq!(segment("../a?b#c/d é"), "..%2Fa%3Fb%23c%2Fd%20%C3%A9");
    }
}
