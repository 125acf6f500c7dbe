//! The agent in a sandbox, reached through the data plane: its process service and its files.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use sandboxo_agent_proto::{
    connect::{Code, Codec, Envelope, Envelopes, Failure},
    process::{
        CloseStdinRequest, CloseStdinResponse, ProcessEvent, ProcessSelector, SendSignalRequest,
        SendSignalResponse, Signal, StartRequest, StartResponse, StreamInputResponse,
        UpdateRequest, UpdateResponse, process_selector::Selector,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    api::{self, Sandbox},
    target::Target,
};

const PORT: u16 = 49983;
/// Far above the pieces that the agent sends.
const MAX_MESSAGE: usize = 16 << 20;

#[derive(Clone)]
pub(crate) struct Agent {
    target: Target,
    sandbox: String,
    token: Option<String>,
    user: Option<String>,
    codec: Codec,
}

impl Agent {
    pub(crate) fn of(target: &Target, sandbox: &Sandbox, user: Option<String>) -> Self {
        Self {
            target: target.clone(),
            sandbox: sandbox.id.clone(),
            token: sandbox.envd_access_token.clone(),
            user,
            codec: Codec::Proto,
        }
    }

    /// As the SDKs speak.
    pub(crate) fn in_json(self) -> Self {
        Self { codec: Codec::Json, ..self }
    }

    /// Finds the sandbox first, since its token is told there.
    pub(crate) async fn find(target: &Target, id: &str, user: Option<String>) -> Result<Self> {
        Ok(Self::of(target, &target.sandbox_of(id).await?, user))
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self
            .target
            .http
            .request(method, self.target.sandbox(path))
            .header("E2b-Sandbox-Id", &self.sandbox)
            .header("E2b-Sandbox-Port", PORT);
        if let Some(token) = &self.token {
            request = request.header("X-Access-Token", token);
        }
        if let Some(user) = &self.user {
            request = request.basic_auth(user, Some(""));
        }
        request
    }

    /// A file's request: the user stands in the query there.
    pub(crate) fn file(&self, method: Method, path: &str) -> RequestBuilder {
        let mut query = vec![("path", path)];
        query.extend(self.user.as_deref().map(|user| ("username", user)));
        self.request(method, "/files").query(&query)
    }

    /// The agent kills the process when `limit` is over.
    pub(crate) async fn start(
        &self,
        start: &StartRequest,
        limit: Option<Duration>,
    ) -> Result<Events> {
        let mut request = self
            .request(Method::POST, "/process.Process/Start")
            .header("Content-Type", streamed(self.codec))
            .header("Connect-Protocol-Version", "1")
            .header("Keepalive-Ping-Interval", "50")
            .body(self.codec.envelop(start));
        if let Some(limit) = limit {
            request = request.header("Connect-Timeout-Ms", limit.as_millis().to_string());
        }
        let answer = request.send().await;
        let answer = data_plane(answer).await?;
        Ok(Events { answer, envelopes: Envelopes::new(MAX_MESSAGE), codec: self.codec })
    }

    /// `body` is a stream of envelopes, the first of which names the process.
    pub(crate) async fn stream_input(&self, body: Body) -> Result<()> {
        let answer = self
            .request(Method::POST, "/process.Process/StreamInput")
            .header("Content-Type", streamed(Codec::Proto))
            .header("Connect-Protocol-Version", "1")
            .body(body)
            .send()
            .await;
        let mut answer = data_plane(answer).await?;
        let mut envelopes = Envelopes::new(MAX_MESSAGE);
        while let Some(bytes) = answer.chunk().await.context("read the agent's answer")? {
            envelopes.push(&bytes);
            while let Some(envelope) = envelopes.next() {
                match envelope? {
                    Envelope::Message(message) => {
                        Codec::Proto.decode::<StreamInputResponse>(&message)?;
                    }
                    Envelope::End(outcome) => return outcome.map_err(|failure| told(&failure)),
                }
            }
        }
        Ok(envelopes.finish()?)
    }

    pub(crate) async fn close_stdin(&self, pid: u32) -> Result<()> {
        let request = CloseStdinRequest { process: Some(selector(pid)) };
        self.call::<_, CloseStdinResponse>("CloseStdin", &request).await?;
        Ok(())
    }

    pub(crate) async fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        let request = SendSignalRequest { process: Some(selector(pid)), signal: signal.into() };
        self.call::<_, SendSignalResponse>("SendSignal", &request).await?;
        Ok(())
    }

    pub(crate) async fn update(&self, request: &UpdateRequest) -> Result<()> {
        self.call::<_, UpdateResponse>("Update", request).await?;
        Ok(())
    }

    async fn call<Q, A>(&self, method: &str, request: &Q) -> Result<A>
    where
        Q: prost::Message + Serialize,
        A: prost::Message + Default + DeserializeOwned,
    {
        let answer = self
            .request(Method::POST, &format!("/process.Process/{method}"))
            .header("Content-Type", "application/proto")
            .header("Connect-Protocol-Version", "1")
            .body(Codec::Proto.encode(request))
            .send()
            .await;
        let answer = data_plane(answer).await?;
        let body: Bytes = answer.bytes().await.context("read the agent's answer")?;
        Ok(Codec::Proto.decode(&body)?)
    }
}

/// What a started process says, until its end.
pub(crate) struct Events {
    answer: Response,
    envelopes: Envelopes,
    codec: Codec,
}

impl Events {
    /// `None` after the end of the stream. A stream that is cut is an error, never an end.
    pub(crate) async fn next(&mut self) -> Result<Option<ProcessEvent>> {
        loop {
            match self.envelopes.next() {
                Some(envelope) => match envelope? {
                    Envelope::Message(message) => {
                        let started: StartResponse = self.codec.decode(&message)?;
                        return Ok(started.event);
                    }
                    Envelope::End(Ok(())) => return Ok(None),
                    Envelope::End(Err(failure)) => return Err(told(&failure)),
                },
                None => match self.answer.chunk().await {
                    Ok(Some(bytes)) => self.envelopes.push(&bytes),
                    Ok(None) => bail!("the connection ended before the command did"),
                    Err(error) => {
                        return Err(anyhow::Error::new(error)
                            .context("the connection was lost before the command ended"));
                    }
                },
            }
        }
    }
}

fn streamed(codec: Codec) -> &'static str {
    match codec {
        Codec::Json => "application/connect+json",
        Codec::Proto => "application/connect+proto",
    }
}

pub(crate) fn selector(pid: u32) -> ProcessSelector {
    ProcessSelector { selector: Some(Selector::Pid(pid)) }
}

/// The agent's own words, without the code where they say it all.
fn told(failure: &Failure) -> anyhow::Error {
    if failure.code == Code::DeadlineExceeded {
        anyhow!("the command's time is over")
    } else if failure.message.is_empty() {
        anyhow!("the agent refused: {}", failure.code)
    } else {
        anyhow!("{}", failure.message)
    }
}

/// Refusals of the data plane and of the agent read alike.
async fn data_plane(answer: reqwest::Result<Response>) -> Result<Response> {
    let answer = api::reached(answer)?;
    if answer.status() == StatusCode::BAD_GATEWAY {
        bail!("the sandbox is gone, or its agent does not answer");
    }
    api::good(answer).await
}
