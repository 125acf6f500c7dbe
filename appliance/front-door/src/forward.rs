//! One request over one stream into a sandbox, and the answer back. Nothing is buffered, and no
//! stream serves two requests: the next sandbox may have the same address.

use std::{future::Future, time::Duration};

use axum::body::Body;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
};
use http_body::Body as _;
use hyper::{client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use sandboxo_control::Sandboxes;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{ByteStream, SandboxId};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    body::{Download, Moved, Upload},
    header,
    last_words::LastWords,
    refusal::Failure,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the last byte of the request that moved to the head of the answer.
    pub(crate) answer: Duration,
    /// Without a byte in either direction while a body is on its way.
    pub(crate) standstill: Duration,
}

/// The sandbox at the other end. When it is gone, everything open to it is cut.
pub(crate) struct Inside<'d> {
    pub(crate) id: SandboxId,
    pub(crate) sandboxes: &'d Sandboxes,
    pub(crate) tasks: &'d Tasks,
}

impl Inside<'_> {
    fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let (id, sandboxes) = (self.id, self.sandboxes.clone());
        async move { sandboxes.gone(id).await }
    }
}

/// A program's head may be as large as its own server lets it be; this is far above all known ones.
const MAX_HEADERS: usize = 256;

/// `request` is what the program is to see; `upgrade` is the client's side, if it asks for one.
pub(crate) async fn forward(
    inside: Inside<'_>,
    stream: Box<dyn ByteStream>,
    request: Request<Body>,
    upgrade: Option<OnUpgrade>,
    patience: Patience,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, Failure> {
    let moved = Moved::new();
    let handshake = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(LastWords::new(stream)));
    let (mut sender, connection) = handshake.await.map_err(|error| failure_of(&error))?;
    let gone = inside.gone();
    inside.tasks.spawn("sandbox connection", |stop| async move {
        tokio::select! {
            biased;
            ended = connection.with_upgrades() => {
                if let Err(error) = ended {
                    tracing::debug!(error = &error as &dyn std::error::Error, "sandbox connection");
                }
            }
            // A connection that is dropped breaks its bodies off with an error.
            () = gone => {}
            () = stop.cancelled() => {}
        }
    });

    let request = request.map(|inner| Upload { inner, moved: moved.clone() });
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    let answer = loop {
        let due = moved.last() + patience.answer;
        tokio::select! {
            biased;
            answer = &mut answer => break answer.map_err(|error| failure_of(&error))?,
            () = tokio::time::sleep_until(due) => {
                if moved.last() + patience.answer <= due {
                    return Err(Failure::AnswerTimeout);
                }
            }
        }
    };

    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let client = upgrade.ok_or(Failure::BadAnswer)?;
        return Ok(switch(&inside, answer, client, permit));
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers = header::outward(parts.headers, parts.status);
    parts.version = Version::HTTP_11;
    let body = Download::new(body, moved, patience.standstill, permit);
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// Both sides leave HTTP; from here on bytes are copied until one side ends.
fn switch(
    inside: &Inside<'_>,
    mut answer: Response<hyper::body::Incoming>,
    client: OnUpgrade,
    permit: OwnedSemaphorePermit,
) -> Response<Body> {
    let program = hyper::upgrade::on(&mut answer);
    let gone = inside.gone();
    inside.tasks.spawn("upgraded connection", |stop| async move {
        let _permit = permit;
        let copied = async {
            let (client, program) = tokio::try_join!(client, program)?;
            let (mut client, mut program) = (TokioIo::new(client), TokioIo::new(program));
            tokio::io::copy_bidirectional(&mut client, &mut program).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = gone => {}
            copied = copied => {
                if let Err(error) = copied {
                    tracing::debug!(error = error.as_ref() as &dyn std::error::Error, "upgraded connection");
                }
            }
        }
    });
    let (mut parts, _no_body) = answer.into_parts();
    parts.headers = header::outward(parts.headers, parts.status);
    Response::from_parts(parts, Body::empty())
}

fn failure_of(error: &hyper::Error) -> Failure {
    if error.is_parse() { Failure::BadAnswer } else { Failure::NoAnswer }
}

/// Puts a request in the form that goes over the stream: raw path, HTTP/1.1, its body's framing.
/// `None`: the path isn't one.
pub(crate) fn reshape(
    method: Method,
    path: &str,
    headers: http::HeaderMap,
    body: Body,
) -> Option<Request<Body>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse::<Uri>().ok()?;
    *request.headers_mut() = headers;
    let unknown_length =
        !request.body().is_end_stream() && !request.headers().contains_key(CONTENT_LENGTH);
    if unknown_length {
        // Without it the client half would leave out the body of a GET.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Some(request)
}
