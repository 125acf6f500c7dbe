//! Connect calls over HTTP: one message or a stream of them each way.

use std::{marker::PhantomData, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sandboxo_agent_proto::connect::{
    Code, Envelope, EnvelopeError, Envelopes, Failure, Form, end_of_stream,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::body::{Body, full};

/// The longest message that is taken: input is sent whole.
const MESSAGE_LIMIT: usize = 256 * 1024 * 1024;
/// Whatever a client asks for: proxies on the way drop what is silent for a minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

pub(crate) trait Message: prost::Message + Default + Serialize + DeserializeOwned {}

impl<M: prost::Message + Default + Serialize + DeserializeOwned> Message for M {}

/// What a request said before its messages.
pub(crate) struct Call {
    pub(crate) form: Form,
    pub(crate) user: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keepalive: Duration,
    body: Incoming,
    compressed: bool,
}

impl Call {
    /// `None`: the body has a type that no codec reads.
    pub(crate) fn new(headers: &HeaderMap, body: Incoming) -> Option<Self> {
        let form = Form::of_content_type(text(headers, header::CONTENT_TYPE.as_str())?)?;
        let encoding = if form.streamed { "connect-content-encoding" } else { "content-encoding" };
        let compressed = text(headers, encoding).is_some_and(|coding| coding != "identity");
        Some(Self {
            form,
            user: text(headers, header::AUTHORIZATION.as_str()).and_then(user_of),
            timeout: text(headers, "connect-timeout-ms").and_then(timeout_of),
            keepalive: keepalive_of(text(headers, "keepalive-ping-interval")),
            body,
            compressed,
        })
    }

    fn check(&self) -> Result<(), Failure> {
        if self.compressed {
            let message = "compressed messages are not supported; send identity";
            return Err(Failure::new(Code::Unimplemented, message));
        }
        Ok(())
    }
}

/// The user is the name of Basic authentication; the password says nothing.
fn user_of(authorization: &str) -> Option<String> {
    let (scheme, credentials) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(credentials.trim()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (user, _password) = decoded.split_once(':')?;
    (!user.is_empty()).then(|| user.to_owned())
}

/// 0 is no limit. Ten digits at most, says the protocol.
fn timeout_of(value: &str) -> Option<Duration> {
    let milliseconds: u64 = value.parse().ok().filter(|_| value.len() <= 10)?;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

fn keepalive_of(asked: Option<&str>) -> Duration {
    let seconds = asked.and_then(|value| value.parse().ok()).filter(|seconds| *seconds > 0);
    seconds.map_or(LONGEST_SILENCE, Duration::from_secs).min(LONGEST_SILENCE)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) async fn unary<Q: Message, R: Message>(
    call: Call,
    answer: impl AsyncFnOnce(Q) -> Result<R, Failure>,
) -> Response<Body> {
    let codec = call.form.codec;
    unary_body(call, async |request| Ok(full(codec.encode(&answer(request).await?)))).await
}

/// For an answer that is too large to be held as one message.
pub(crate) async fn unary_body<Q: Message>(
    mut call: Call,
    answer: impl AsyncFnOnce(Q) -> Result<Body, Failure>,
) -> Response<Body> {
    if call.form.streamed {
        return unsupported();
    }
    let codec = call.form.codec;
    let timeout = call.timeout;
    let outcome = async {
        call.check()?;
        let bytes = whole(&mut call.body).await?;
        let request = codec.decode(&bytes).map_err(|error| bad_message(&error))?;
        drop(bytes);
        answer(request).await
    };
    match within(timeout, outcome).await {
        Ok(body) => respond(StatusCode::OK, call.form.content_type(), body),
        Err(failure) => unary_failure(&failure),
    }
}

pub(crate) async fn server_stream<Q: Message, B>(
    call: Call,
    answer: impl FnOnce(Q) -> Result<B, Failure>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
{
    if !call.form.streamed {
        return unsupported();
    }
    let form = call.form;
    let first = async {
        call.check()?;
        let mut messages = Messages::<Q>::of_whole(call);
        let message = messages.next().await?;
        // So that the connection can be used again, and tells when the client leaves.
        drop(messages.body.as_mut().and_then(|body| body.frame().now_or_never()));
        message.ok_or_else(|| Failure::new(Code::InvalidArgument, "the request has no message"))
    };
    let body = match first.await.and_then(answer) {
        Ok(body) => body.boxed_unsync(),
        Err(failure) => full(end_of_stream(Err(&failure))),
    };
    respond(StatusCode::OK, form.content_type(), body)
}

pub(crate) async fn client_stream<Q: Message, R: Message>(
    call: Call,
    answer: impl AsyncFnOnce(Messages<Q>) -> Result<R, Failure>,
) -> Response<Body> {
    if !call.form.streamed {
        return unsupported();
    }
    let (form, timeout) = (call.form, call.timeout);
    let outcome = async {
        call.check()?;
        answer(Messages::of_whole(call)).await
    };
    let body = match within(timeout, outcome).await {
        Ok(message) => {
            let mut both = BytesMut::from(&form.codec.envelop(&message)[..]);
            both.extend_from_slice(&end_of_stream(Ok(())));
            both.freeze()
        }
        Err(failure) => end_of_stream(Err(&failure)),
    };
    respond(StatusCode::OK, form.content_type(), full(body))
}

pub(crate) fn unimplemented(call: &Call, service: &str, method: &str) -> Response<Body> {
    let failure = Failure::new(Code::Unimplemented, format!("{service} has no method {method}"));
    if call.form.streamed {
        let body = full(end_of_stream(Err(&failure)));
        return respond(StatusCode::OK, call.form.content_type(), body);
    }
    unary_failure(&failure)
}

/// Neither codec reads the body, or the method is called in the other shape.
pub(crate) fn unsupported() -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn unary_failure(failure: &Failure) -> Response<Body> {
    let status = StatusCode::from_u16(failure.code.http_status())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, "application/json", full(failure.to_json()))
}

pub(crate) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let value = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

async fn within<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(timeout) = timeout else { return work.await };
    let late = |_elapsed| Failure::new(Code::DeadlineExceeded, "the call's time is up");
    tokio::time::timeout(timeout, work).await.map_err(late)?
}

async fn whole(body: &mut Incoming) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| cut(&error))?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            // Most messages come in one piece.
            first = data;
            continue;
        }
        if all.is_empty() {
            let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0);
            all.reserve(first.len() + data.len() + expected.min(MESSAGE_LIMIT));
            all.extend_from_slice(&first);
            first = Bytes::new();
        }
        if all.len() + data.len() > MESSAGE_LIMIT {
            let limit = MESSAGE_LIMIT;
            return Err(bad_envelope(&EnvelopeError::TooLarge { length: all.len(), limit }));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// The messages of a streamed request.
pub(crate) struct Messages<Q> {
    codec: sandboxo_agent_proto::connect::Codec,
    body: Option<Incoming>,
    envelopes: Envelopes,
    of: PhantomData<fn() -> Q>,
}

impl<Q: Message> Messages<Q> {
    fn of_whole(call: Call) -> Self {
        Self {
            codec: call.form.codec,
            body: Some(call.body),
            envelopes: Envelopes::new(MESSAGE_LIMIT),
            of: PhantomData,
        }
    }

    /// `None`: the client has said all.
    pub(crate) async fn next(&mut self) -> Result<Option<Q>, Failure> {
        loop {
            match self.envelopes.next() {
                Some(Ok(Envelope::Message(bytes))) => {
                    let message = self.codec.decode(&bytes);
                    return message.map(Some).map_err(|error| bad_message(&error));
                }
                Some(Ok(Envelope::End(_))) => return Ok(None),
                Some(Err(error)) => return Err(bad_envelope(&error)),
                None => {}
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            let Some(frame) = body.frame().await else {
                self.body = None;
                self.envelopes.finish().map_err(|error| bad_envelope(&error))?;
                continue;
            };
            if let Ok(data) = frame.map_err(|error| cut(&error))?.into_data() {
                self.envelopes.push(&data);
            }
        }
    }
}

fn bad_message(error: &sandboxo_agent_proto::connect::DecodeError) -> Failure {
    Failure::new(Code::InvalidArgument, error.to_string())
}

fn bad_envelope(error: &EnvelopeError) -> Failure {
    let code = match error {
        EnvelopeError::Compressed => Code::Internal,
        EnvelopeError::TooLarge { .. } => Code::ResourceExhausted,
        EnvelopeError::BadEnd | EnvelopeError::Cut => Code::InvalidArgument,
    };
    Failure::new(code, error.to_string())
}

fn cut(error: &hyper::Error) -> Failure {
    Failure::new(Code::Canceled, format!("the request was cut: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_the_name_of_basic_authentication() {
        for (header, user) in [
            ("Basic dXNlcjo=", Some("user")),
            ("basic cm9vdDpwdw==", Some("root")),
            ("Basic Og==", None),
            ("Basic !!", None),
            ("Bearer dXNlcjo=", None),
            ("", None),
        ] {
            assert_eq!(user_of(header).as_deref(), user, "{header}");
        }
    }

    #[test]
    fn timeouts_are_milliseconds_and_zero_is_none() {
        for (value, wanted) in [
            ("1500", Some(Duration::from_millis(1500))),
            ("0", None),
            ("-1", None),
            ("soon", None),
            ("99999999999", None),
        ] {
            assert_eq!(timeout_of(value), wanted, "{value}");
        }
    }

    #[test]
    fn row_33_no_stream_is_silent_for_as_long_as_proxies_wait() {
        for (asked, seconds) in [
            (None, 30),
            (Some("50"), 30),
            (Some("3600"), 30),
            (Some("1"), 1),
            (Some("0"), 30),
            (Some("often"), 30),
        ] {
            assert_eq!(keepalive_of(asked), Duration::from_secs(seconds), "{asked:?}");
        }
    }
}
