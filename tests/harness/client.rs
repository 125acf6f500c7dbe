//! As much of the E2B client as the stories need, over plain HTTP.

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    pub url: String,
    pub key: String,
    /// Of the operator's surface.
    pub token: String,
}

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// -1: ended by a signal, or cut off.
    pub exit_code: i64,
}

impl Client {
    pub(crate) fn new(url: &str, key: &str, token: &str) -> Self {
        let (url, key, token) = (url.to_owned(), key.to_owned(), token.to_owned());
        Self { http: reqwest::Client::new(), url, key, token }
    }

    pub fn api(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).header("X-API-Key", &self.key)
    }

    pub fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token)
    }

    /// To a port of a sandbox, told by headers.
    pub fn port(&self, method: Method, sandbox: &Value, port: u16, path: &str) -> RequestBuilder {
        let text =
            |field: &str| sandbox.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.http
            .request(method, format!("{}{path}", self.url))
            .header("E2b-Sandbox-Id", text("sandboxID"))
            .header("E2b-Sandbox-Port", port.to_string())
            .header("X-Access-Token", text("envdAccessToken"))
    }

    pub fn agent(&self, method: Method, sandbox: &Value, path: &str) -> RequestBuilder {
        self.port(method, sandbox, 49983, path)
    }

    pub async fn create(&self, body: Value) -> Result<Value> {
        let answer = self.api(Method::POST, "/v2/sandboxes").json(&body).send().await?;
        expect(answer, StatusCode::CREATED).await
    }

    pub async fn sandbox(&self) -> Result<Value> {
        self.create(json!({ "templateID": "base", "timeout": 600 })).await
    }

    /// Whatever it answers; `memory` is a field of the request.
    pub async fn pause(&self, sandbox: &Value, memory: bool) -> Result<StatusCode> {
        let path = format!("/sandboxes/{}/pause", id(sandbox)?);
        let pause = self.api(Method::POST, &path).json(&json!({ "memory": memory }));
        Ok(pause.send().await?.status())
    }

    /// Resumes a paused one, and gives any one ten minutes.
    pub async fn connect(&self, sandbox: &Value) -> Result<Value> {
        let path = format!("/v2/sandboxes/{}/connect", id(sandbox)?);
        let asked = self.api(Method::POST, &path).json(&json!({ "timeout": 600 })).send().await?;
        let status = asked.status();
        anyhow::ensure!(matches!(status.as_u16(), 200 | 201), "{status}: {}", asked.text().await?);
        Ok(asked.json().await?)
    }

    pub async fn kill(&self, sandbox: &Value) -> Result<StatusCode> {
        let path = format!("/sandboxes/{}", id(sandbox)?);
        Ok(self.api(Method::DELETE, &path).send().await?.status())
    }

    pub async fn running(&self) -> Result<Vec<String>> {
        self.listed("running").await
    }

    /// In these states, told apart by commas.
    pub async fn listed(&self, states: &str) -> Result<Vec<String>> {
        let list = self.api(Method::GET, "/v2/sandboxes").query(&[("state", states)]);
        let answer = list.send().await?;
        let listed = expect(answer, StatusCode::OK).await?;
        let ids = listed.as_array().context("a list")?.iter().map(id).collect::<Result<_>>()?;
        Ok(ids)
    }

    /// `bash -l -c`, as the SDK runs it, until its end.
    pub async fn run(&self, sandbox: &Value, command: &str) -> Result<Output> {
        self.run_as(sandbox, "user", command).await
    }

    pub async fn run_as(&self, sandbox: &Value, user: &str, command: &str) -> Result<Output> {
        let answer = self.start(sandbox, user, command).await?;
        ensure!(answer.status() == StatusCode::OK, "start: {}", answer.text().await?);
        let mut output = Output { stdout: String::new(), stderr: String::new(), exit_code: -1 };
        let body = answer.bytes().await?;
        for event in envelopes(&body)? {
            if let Some(error) = event.get("error") {
                bail!("the stream ended with {error}");
            }
            let event = event.get("event").unwrap_or(&Value::Null);
            for (name, into) in [("stdout", &mut output.stdout), ("stderr", &mut output.stderr)] {
                if let Some(text) = event.pointer(&format!("/data/{name}")).and_then(Value::as_str)
                {
                    into.push_str(&String::from_utf8_lossy(&STANDARD.decode(text)?));
                }
            }
            if let Some(end) = event.get("end") {
                output.exit_code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
            }
        }
        Ok(output)
    }

    /// Starts a command and hangs up: it goes on by itself.
    pub async fn start_and_leave(&self, sandbox: &Value, command: &str) -> Result<()> {
        let mut answer = self.start(sandbox, "user", command).await?;
        let first = answer.chunk().await?.context("the stream ended before its start event")?;
        ensure!(
            String::from_utf8_lossy(&first).contains("\"start\""),
            "not a start event: {first:?}"
        );
        Ok(())
    }

    /// The open stream of a started command.
    pub async fn start(&self, sandbox: &Value, user: &str, command: &str) -> Result<Response> {
        let message = json!({
            "process": { "cmd": "/bin/bash", "args": ["-l", "-c", command] },
            "stdin": false,
        });
        let message = serde_json::to_vec(&message)?;
        let mut envelope = vec![0];
        envelope.extend(u32::try_from(message.len())?.to_be_bytes());
        envelope.extend(message);
        let answer = self
            .agent(Method::POST, sandbox, "/process.Process/Start")
            .header("Content-Type", "application/connect+json")
            .header("Connect-Protocol-Version", "1")
            .basic_auth(user, Some(""))
            .body(envelope)
            .send()
            .await?;
        Ok(answer)
    }

    pub async fn read(&self, sandbox: &Value, path: &str) -> Result<Vec<u8>> {
        let answer =
            self.agent(Method::GET, sandbox, "/files").query(&[("path", path)]).send().await?;
        ensure!(answer.status() == StatusCode::OK, "read {path}: {}", answer.text().await?);
        Ok(answer.bytes().await?.to_vec())
    }
}

pub fn id(sandbox: &Value) -> Result<String> {
    Ok(sandbox.get("sandboxID").and_then(Value::as_str).context("sandboxID")?.to_owned())
}

async fn expect(answer: Response, status: StatusCode) -> Result<Value> {
    let got = answer.status();
    let text = answer.text().await?;
    ensure!(got == status, "{got}: {text}");
    Ok(serde_json::from_str(&text)?)
}

/// The messages of a Connect stream: a flag byte, a length, JSON.
fn envelopes(mut body: &[u8]) -> Result<Vec<Value>> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        let [_flags, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        let (message, rest) = rest.split_at_checked(length).context("a cut envelope")?;
        messages.push(serde_json::from_slice(message)?);
        body = rest;
    }
    Ok(messages)
}
