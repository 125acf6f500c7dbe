//! Starts the agent and speaks to it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sandboxo_agent_proto::connect::{Envelope, Envelopes, Failure};
use serde_json::{Value, json};

pub(crate) struct Agent {
    child: Child,
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandboxo-agent"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let base = format!("http://{address}");
        Self { child, base, client: reqwest::Client::new() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) async fn call(&self, method: &str, request: Value) -> (u16, Value) {
        self.call_with(method, request, &[]).await
    }

    pub(crate) async fn call_with(
        &self,
        method: &str,
        request: Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut call = self.client.post(self.url(&format!("/{method}"))).json(&request);
        for (name, value) in headers {
            call = call.header(*name, *value);
        }
        let response = call.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// The answer of a call that must work.
    pub(crate) async fn ask(&self, method: &str, request: Value) -> Value {
        let (status, answer) = self.call(method, request).await;
        assert_eq!(status, 200, "{method}: {answer}");
        answer
    }

    /// The code of a call that must fail, and its message.
    pub(crate) async fn refused(&self, method: &str, request: Value) -> (String, String) {
        let (status, answer) = self.call(method, request).await;
        assert_ne!(status, 200, "{method}: {answer}");
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }

    pub(crate) async fn open(&self, method: &str, request: Value) -> Events {
        self.open_with(method, request, &[]).await
    }

    pub(crate) async fn open_with(
        &self,
        method: &str,
        request: Value,
        headers: &[(&str, &str)],
    ) -> Events {
        let mut call = self
            .client
            .post(self.url(&format!("/{method}")))
            .header("content-type", "application/connect+json")
            .body(envelope(&request));
        for (name, value) in headers {
            call = call.header(*name, *value);
        }
        let response = call.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "application/connect+json");
        Events { response, envelopes: Envelopes::new(1 << 20) }
    }

    /// A process that is heard from its start.
    pub(crate) async fn start_process(&self, request: Value) -> (u64, Events) {
        let mut events = self.open("process.Process/Start", request).await;
        let pid = events.started().await;
        (pid, events)
    }

    pub(crate) async fn shell(&self, script: &str) -> Outcome {
        let (_pid, events) = self.start_process(shell(script)).await;
        events.outcome().await
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// By the state that `ps` shows.
    pub(crate) fn children_in_state(&self, state: char) -> usize {
        let children =
            |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let is_so = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(state))
        };
        children(self.child.id()).split_whitespace().filter(|pid| is_so(pid)).count()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}

pub(crate) fn shell(script: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}, "stdin": false})
}

pub(crate) fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// One answer of many messages.
pub(crate) struct Events {
    response: reqwest::Response,
    envelopes: Envelopes,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    /// The end event, if there was one.
    pub(crate) end: Option<Value>,
    pub(crate) failure: Option<Failure>,
}

impl Outcome {
    pub(crate) fn exit_code(&self) -> i64 {
        self.end.as_ref().unwrap()["exitCode"].as_i64().unwrap_or(0)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Events {
    /// `Err`: the stream has ended, so or so.
    pub(crate) async fn next(&mut self) -> Result<Value, Result<(), Failure>> {
        loop {
            match self.envelopes.next() {
                Some(Ok(Envelope::Message(bytes))) => {
                    return Ok(serde_json::from_slice(&bytes).unwrap());
                }
                Some(Ok(Envelope::End(end))) => return Err(end),
                Some(Err(error)) => panic!("{error}"),
                None => {}
            }
            let chunk = self.response.chunk().await.unwrap();
            self.envelopes.push(&chunk.expect("a stream has an end of its own"));
        }
    }

    pub(crate) async fn started(&mut self) -> u64 {
        let event = self.next().await.unwrap();
        event["event"]["start"]["pid"].as_u64().unwrap()
    }

    /// Bytes of output, of whatever kind, until there are so many.
    pub(crate) async fn output(&mut self, enough: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        while seen.len() < enough {
            let event = self.next().await.unwrap();
            for kind in ["stdout", "stderr", "pty"] {
                if let Some(text) = event["event"]["data"][kind].as_str() {
                    seen.extend(STANDARD.decode(text).unwrap());
                }
            }
        }
        seen
    }

    /// A terminal says things in its own time.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            let more = tokio::time::timeout(Duration::from_secs(10), self.output(1)).await;
            let more = more.unwrap_or_else(|_late| panic!("no {wanted:?} in {seen:?}"));
            seen += &String::from_utf8_lossy(&more);
        }
        seen
    }

    pub(crate) async fn outcome(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let mut event = match self.next().await {
                Ok(event) => event["event"].clone(),
                Err(end) => {
                    outcome.failure = end.err();
                    return outcome;
                }
            };
            assert!(outcome.end.is_none(), "after the end: {event}");
            if event["end"].is_object() {
                outcome.end = Some(event["end"].take());
                continue;
            }
            for (kind, out) in [
                ("stdout", &mut outcome.stdout),
                ("stderr", &mut outcome.stderr),
                ("pty", &mut outcome.pty),
            ] {
                if let Some(text) = event["data"][kind].as_str() {
                    out.extend(STANDARD.decode(text).unwrap());
                }
            }
        }
    }
}

/// Until something holds that no event tells of.
pub(crate) async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come about");
}

pub(crate) fn process_exists(pid: u64) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}
