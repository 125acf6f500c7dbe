//! A process or a watch in a sandbox, as its client hears it: Connect messages, one by one.

use std::{collections::VecDeque, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::Client;

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// The flag of a message that ends its stream.
const LAST: u8 = 2;

pub struct Stream {
    answer: Response,
    bytes: VecDeque<u8>,
    ended: bool,
    /// What the stream's last message says went wrong.
    pub failure: Option<Value>,
}

/// All that was heard of a process.
#[derive(Debug, Default)]
pub struct Heard {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub pty: Vec<u8>,
    pub keepalives: usize,
    pub end: Option<Value>,
    pub failure: Option<Value>,
}

impl Heard {
    pub fn exit_code(&self) -> Option<i64> {
        // JSON leaves a zero out.
        self.end.as_ref().map(|end| end.get("exitCode").and_then(Value::as_i64).unwrap_or(0))
    }

    pub fn status(&self) -> &str {
        self.end.as_ref().and_then(|end| end.get("status")).and_then(Value::as_str).unwrap_or("")
    }

    /// Why the stream failed, in Connect's words.
    pub fn failed(&self) -> &str {
        let code = self.failure.as_ref().and_then(|failure| failure.get("code"));
        code.and_then(Value::as_str).unwrap_or("")
    }

    fn take(&mut self, event: &Value) -> Result<()> {
        for (name, into) in [
            ("/data/stdout", &mut self.stdout),
            ("/data/stderr", &mut self.stderr),
            ("/data/pty", &mut self.pty),
        ] {
            if let Some(text) = event.pointer(name).and_then(Value::as_str) {
                into.extend(STANDARD.decode(text)?);
            }
        }
        self.keepalives += usize::from(event.get("keepalive").is_some());
        if let Some(end) = event.get("end") {
            self.end = Some(end.clone());
        }
        Ok(())
    }
}

impl Stream {
    pub fn new(answer: Response) -> Result<Self> {
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        Ok(Self { answer, bytes: VecDeque::new(), ended: false, failure: None })
    }

    /// `None` at the stream's own end; one that is cut is an error.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some((flags, message)) = self.taken()? {
                if flags & LAST == 0 {
                    return Ok(Some(message.get("event").cloned().unwrap_or(message)));
                }
                self.ended = true;
                self.failure = message.get("error").cloned();
                continue;
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.bytes.extend(&chunk),
                None if self.ended && self.bytes.is_empty() => return Ok(None),
                None => bail!("the stream was cut"),
            }
        }
    }

    fn taken(&mut self) -> Result<Option<(u8, Value)>> {
        let bytes = self.bytes.make_contiguous();
        let Some((&[flags, ref length @ ..], rest)) = bytes.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length))?;
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(message)?;
        self.bytes.drain(..length + 5);
        Ok(Some((flags, message)))
    }

    /// The first event of a process.
    pub async fn pid(&mut self) -> Result<u64> {
        let first = self.next().await?.context("the stream ended before its first event")?;
        first.pointer("/start/pid").and_then(Value::as_u64).with_context(|| first.to_string())
    }

    /// Until the process has said this, in its output or on its terminal.
    pub async fn until(&mut self, wanted: &str) -> Result<String> {
        let (mut heard, mut said) = (Heard::default(), String::new());
        let late = Instant::now() + PATIENCE;
        loop {
            let event = timeout_at(late, self.next()).await;
            let event = event.with_context(|| format!("no {wanted:?} in time, but {said:?}"))??;
            let event = event.with_context(|| format!("no {wanted:?}, but {said:?}"))?;
            heard.take(&event)?;
            said = String::from_utf8_lossy(&[&heard.stdout[..], &heard.pty].concat()).into_owned();
            if said.contains(wanted) {
                return Ok(said);
            }
        }
    }

    pub async fn rest(mut self) -> Result<Heard> {
        let mut heard = Heard::default();
        while let Some(event) = self.next().await? {
            heard.take(&event)?;
        }
        heard.failure = self.failure.take();
        Ok(heard)
    }
}

impl Client {
    /// One message to the agent, one back.
    pub async fn call(
        &self,
        sandbox: &Value,
        method: &str,
        message: Value,
    ) -> Result<(u16, Value)> {
        let call = self.agent(Method::POST, sandbox, &format!("/{method}"));
        let answer = call.basic_auth("user", Some("")).json(&message).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    /// A call that must work.
    pub async fn ask(&self, sandbox: &Value, method: &str, message: Value) -> Result<Value> {
        let (status, answer) = self.call(sandbox, method, message).await?;
        ensure!(status == 200, "{method}: {status} {answer}");
        Ok(answer)
    }

    pub async fn open(
        &self,
        sandbox: &Value,
        method: &str,
        message: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Stream> {
        let message = serde_json::to_vec(message)?;
        let mut envelope = vec![0];
        envelope.extend(u32::try_from(message.len())?.to_be_bytes());
        envelope.extend(message);
        let mut call = self
            .agent(Method::POST, sandbox, &format!("/{method}"))
            .header("Content-Type", "application/connect+json")
            .basic_auth("user", Some(""))
            .body(envelope);
        for (name, value) in headers {
            call = call.header(*name, *value);
        }
        Stream::new(call.send().await?)
    }

    /// `bash -c`, with an open standard input.
    pub async fn feedable(&self, sandbox: &Value, script: &str) -> Result<(u64, Stream)> {
        let process = json!({
            "process": { "cmd": "/bin/bash", "args": ["-c", script] },
            "stdin": true,
        });
        let mut stream = self.open(sandbox, "process.Process/Start", &process, &[]).await?;
        Ok((stream.pid().await?, stream))
    }

    /// As the SDK opens one.
    pub async fn terminal(&self, sandbox: &Value) -> Result<(u64, Stream)> {
        let terminal = json!({
            "process": {
                "cmd": "/bin/bash",
                "args": ["-i", "-l"],
                "envs": { "TERM": "xterm-256color", "PS1": "$ " },
            },
            "pty": { "size": { "cols": 80, "rows": 24 } },
        });
        let mut stream = self.open(sandbox, "process.Process/Start", &terminal, &[]).await?;
        Ok((stream.pid().await?, stream))
    }

    /// To its terminal.
    pub async fn type_in(&self, sandbox: &Value, pid: u64, text: &str) -> Result<()> {
        let input = json!({ "process": { "pid": pid }, "input": { "pty": STANDARD.encode(text) } });
        self.ask(sandbox, "process.Process/SendInput", input).await.map(drop)
    }

    /// To its standard input; the answer may be a refusal.
    pub async fn feed(&self, sandbox: &Value, pid: u64, bytes: &[u8]) -> Result<(u16, Value)> {
        let input =
            json!({ "process": { "pid": pid }, "input": { "stdin": STANDARD.encode(bytes) } });
        self.call(sandbox, "process.Process/SendInput", input).await
    }

    pub async fn end_input(&self, sandbox: &Value, pid: u64) -> Result<()> {
        let process = json!({ "process": { "pid": pid } });
        self.ask(sandbox, "process.Process/CloseStdin", process).await.map(drop)
    }

    pub async fn resize(&self, sandbox: &Value, pid: u64, columns: u16, rows: u16) -> Result<()> {
        let size = json!({ "process": { "pid": pid }, "pty": { "size": { "cols": columns, "rows": rows } } });
        self.ask(sandbox, "process.Process/Update", size).await.map(drop)
    }

    /// Whether a process of that number is there.
    pub async fn is_alive(&self, sandbox: &Value, pid: u64) -> Result<bool> {
        let looked = self.run_as(sandbox, "root", &format!("kill -0 {pid}")).await?;
        Ok(looked.exit_code == 0)
    }

    /// What the agent itself holds of the sandbox's memory.
    pub async fn agent_kib(&self, sandbox: &Value) -> Result<u64> {
        let read = self.run_as(sandbox, "root", "sed -n 's/^VmRSS: *//p' /proc/1/status").await?;
        let number = read.stdout.split(' ').next().unwrap_or_default();
        number.trim().parse().with_context(|| format!("{read:?}"))
    }
}
