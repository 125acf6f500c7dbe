//! The agent in the sandbox of a build: commands and files, over streams that a checkpoint may cut.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use sandboxo_agent_proto::{
    connect::{Codec, Envelope, Envelopes, Failure},
    process::{
        ProcessConfig, StartRequest, StartResponse,
        process_event::{Event, data_event::Output},
    },
};
use sandboxo_zone_protocol::{AGENT_PORT, ConnectError, SandboxId, Secret};
use tokio::sync::mpsc;

use crate::context::Context;

/// Far above the pieces that the agent sends.
const MAX_MESSAGE: usize = 16 << 20;
/// Of a refusal, which is a sentence.
const MAX_REFUSAL: usize = 64 << 10;

type Body = BoxBody<Bytes, std::io::Error>;

pub(super) struct Agent {
    pub(super) context: Arc<Context>,
    pub(super) sandbox: SandboxId,
    pub(super) token: Option<Secret>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Command {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) user: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    /// The agent ends it then.
    pub(super) limit: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

pub(super) enum Said {
    Started,
    Bytes(Stream, Bytes),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) is_success: bool,
    /// `exit status 1`, `signal: killed`.
    pub(super) status: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    /// In the agent's words.
    #[error("{0}")]
    Refused(Failure),
    #[error("the sandbox of the build ended")]
    Gone(#[source] ConnectError),
    #[error("the connection to the sandbox of the build was cut")]
    Cut,
    #[error("{status}: {message}")]
    Files { status: StatusCode, message: String },
}

impl Agent {
    /// Until its end. It goes on when the future is dropped.
    pub(super) async fn run(
        &self,
        command: Command,
        mut said: impl FnMut(Said),
    ) -> Result<Exit, AgentError> {
        let Command { program, args, user, env, workdir, limit } = command;
        let start = StartRequest {
            process: Some(ProcessConfig { cmd: program, args, envs: env, cwd: workdir }),
            pty: None,
            tag: None,
            stdin: Some(false),
        };
        let body = Full::new(Codec::Proto.envelop(&start)).map_err(|never| match never {}).boxed();
        let credentials = STANDARD.encode(format!("{user}:"));
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/process.Process/Start")
            .header(header::CONTENT_TYPE, "application/connect+proto")
            .header("Connect-Protocol-Version", "1")
            .header(header::AUTHORIZATION, format!("Basic {credentials}"));
        if let Some(limit) = limit {
            request = request.header("Connect-Timeout-Ms", limit.as_millis().to_string());
        }
        let mut answer = self.send(request, body).await?;
        if answer.status() != StatusCode::OK {
            let (_, text) = refusal(answer).await?;
            let failure = serde_json::from_str(&text);
            return Err(failure.map_or(AgentError::Cut, AgentError::Refused));
        }
        let mut envelopes = Envelopes::new(MAX_MESSAGE);
        let mut exit = None;
        loop {
            while let Some(envelope) = envelopes.next() {
                let message = match envelope.map_err(|_bad| AgentError::Cut)? {
                    Envelope::Message(message) => message,
                    Envelope::End(Err(failure)) => return Err(AgentError::Refused(failure)),
                    Envelope::End(Ok(())) => return exit.ok_or(AgentError::Cut),
                };
                let message: StartResponse =
                    Codec::Proto.decode(&message).map_err(|_bad| AgentError::Cut)?;
                match message.event.and_then(|event| event.event) {
                    Some(Event::Start(_)) => said(Said::Started),
                    Some(Event::Data(data)) => match data.output {
                        Some(Output::Stdout(bytes) | Output::Pty(bytes)) => {
                            said(Said::Bytes(Stream::Out, bytes));
                        }
                        Some(Output::Stderr(bytes)) => said(Said::Bytes(Stream::Err, bytes)),
                        None => {}
                    },
                    Some(Event::End(end)) => {
                        let is_success = end.exited && end.exit_code == 0;
                        exit = Some(Exit { is_success, status: end.status });
                    }
                    Some(Event::Keepalive(_)) | None => {}
                }
            }
            match answer.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        envelopes.push(&bytes);
                    }
                }
                Some(Err(_)) | None => return Err(AgentError::Cut),
            }
        }
    }

    /// As root. The folders above it are made.
    pub(super) async fn put(
        &self,
        path: &str,
        bytes: mpsc::Receiver<std::io::Result<Bytes>>,
    ) -> Result<(), AgentError> {
        let frames = futures_util::stream::unfold(bytes, |mut bytes| async move {
            let piece = bytes.recv().await?;
            Some((piece.map(Frame::data), bytes))
        });
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/files?username=root&path={path}"))
            .header(header::CONTENT_TYPE, "application/octet-stream");
        let answer = self.send(request, BodyExt::boxed(StreamBody::new(frames))).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let (status, message) = refusal(answer).await?;
        Err(AgentError::Files { status, message })
    }

    async fn send(
        &self,
        mut request: http::request::Builder,
        body: Body,
    ) -> Result<Response<Incoming>, AgentError> {
        if let Some(token) = &self.token {
            request = request.header("X-Access-Token", token.expose());
        }
        let request = request
            .header(header::HOST, "agent")
            .body(body)
            .map_err(|_not_a_request| AgentError::Cut)?;
        let stream = self.context.zone.connect(self.sandbox, AGENT_PORT).await;
        let stream = stream.map_err(AgentError::Gone)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_cut| AgentError::Cut)?;
        drop(self.context.tasks.spawn("build connection", |stop| async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(error = &error as &dyn std::error::Error, "build connection");
                },
                () = stop.cancelled() => {}
            }
        }));
        sender.send_request(request).await.map_err(|_cut| AgentError::Cut)
    }
}

async fn refusal(answer: Response<Incoming>) -> Result<(StatusCode, String), AgentError> {
    let (parts, body) = answer.into_parts();
    let body = http_body_util::Limited::new(body, MAX_REFUSAL).collect().await;
    let bytes = body.map_err(|_cut| AgentError::Cut)?.to_bytes();
    Ok((parts.status, String::from_utf8_lossy(&bytes).into_owned()))
}
