//! One question over HTTP, redirects followed, and what its answer means.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, LOCATION, RANGE, USER_AGENT},
    uri::Parts,
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use sandboxo_zone_protocol::PullError;
use tokio::time::timeout;
use tower::Service;

use crate::{
    allowed::{Allowed, is_public},
    manifest::unusable,
};

const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// Until the head of an answer is there.
const ANSWERS_WITHIN: Duration = Duration::from_mins(1);
/// Of a small document.
const ARRIVES_WITHIN: Duration = Duration::from_mins(2);
/// Registries send on to where blobs lie, which may send on once more.
const MAX_HOPS: usize = 5;

type Https = Client<HttpsConnector<HttpConnector<Lookup>>, Empty<Bytes>>;

#[derive(Clone)]
pub(crate) struct Web {
    pub(crate) allowed: Arc<Allowed>,
    /// Made when it is first needed: it reads the host's list of authorities.
    https: Arc<OnceLock<Https>>,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It may pass by itself.
    Again(String),
    Final(PullError),
}

impl From<PullError> for Failed {
    fn from(error: PullError) -> Self {
        Self::Final(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// Who asks has to say more.
    Challenge,
    Again,
    NotFound,
    Unauthorized,
    Odd,
}

pub(crate) fn verdict(status: StatusCode) -> Verdict {
    match status.as_u16() {
        200 | 206 => Verdict::Fine,
        401 => Verdict::Challenge,
        403 => Verdict::Unauthorized,
        404 => Verdict::NotFound,
        408 | 425 | 429 | 500..=599 => Verdict::Again,
        _ => Verdict::Odd,
    }
}

pub(crate) struct Question<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) accept: &'static str,
    /// From this byte on.
    pub(crate) from: u64,
    /// For the host of the question alone.
    pub(crate) authorization: Option<HeaderValue>,
}

impl Web {
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self { allowed: Arc::new(allowed), https: Arc::default() }
    }

    /// Its answer, whatever it says.
    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<Response<Incoming>, Failed> {
        let Question { uri: first, accept, from, authorization } = question;
        let mut uri = first.clone();
        for _hop in 0..=MAX_HOPS {
            self.allowed.check(&uri)?;
            let mut request = Request::get(&uri)
                .header(USER_AGENT, concat!("sandboxo/", env!("CARGO_PKG_VERSION")))
                .header(ACCEPT, accept);
            if from > 0 {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            let is_home = (uri.scheme(), uri.authority()) == (first.scheme(), first.authority());
            if let Some(value) = authorization.clone().filter(|_| is_home) {
                request = request.header(AUTHORIZATION, value);
            }
            let request = request
                .body(Empty::new())
                .map_err(|error| unusable(format!("its place is no URL: {error}")))?;
            let answer = self.send(&uri, request).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            uri = to
                .and_then(|to| joined(&uri, to))
                .ok_or_else(|| unusable("the registry sends on to nowhere"))?;
        }
        Err(unusable("the registry sends from one place to the next without end").into())
    }

    async fn send(
        &self,
        uri: &Uri,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, Failed> {
        let host = uri.host().unwrap_or_default();
        let asked = self.https().request(request);
        match timeout(ANSWERS_WITHIN, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_refused(&error) => {
                Err(Failed::Final(PullError::NotAllowed(host.to_owned())))
            }
            Ok(Err(error)) => Err(Failed::Again(format!("{host}: {}", innermost(&error)))),
            Err(_elapsed) => Err(Failed::Again(format!("{host} does not answer"))),
        }
    }

    fn https(&self) -> &Https {
        self.https.get_or_init(|| {
            let mut http = HttpConnector::new_with_resolver(Lookup(Arc::clone(&self.allowed)));
            http.enforce_http(false);
            http.set_connect_timeout(Some(CONNECTS_WITHIN));
            let https = HttpsConnectorBuilder::new()
                .with_tls_config(tls())
                .https_or_http()
                .enable_http1()
                .wrap_connector(http);
            Client::builder(TokioExecutor::new()).build(https)
        })
    }
}

/// A document that is no larger than this.
pub(crate) async fn document(body: Incoming, max: usize) -> Result<Bytes, Failed> {
    match timeout(ARRIVES_WITHIN, Limited::new(body, max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(unusable(format!("a document of more than {} KiB", max >> 10)).into())
        }
        Ok(Err(error)) => Err(Failed::Again(format!("the answer was cut: {error}"))),
        Err(_elapsed) => Err(Failed::Again("the answer does not come to its end".into())),
    }
}

/// Where an answer sends on to.
fn joined(from: &Uri, to: &str) -> Option<Uri> {
    let to = to.split('#').next()?;
    let absolute = match to {
        _ if to.starts_with("//") => format!("{}:{to}", from.scheme_str()?),
        _ if to.starts_with('/') => {
            let mut parts = Parts::default();
            parts.scheme = from.scheme().cloned();
            parts.authority = from.authority().cloned();
            parts.path_and_query = to.parse().ok();
            return Uri::from_parts(parts).ok();
        }
        _ => to.to_owned(),
    };
    absolute.parse().ok().filter(|uri: &Uri| uri.scheme().is_some())
}

/// The host's own authorities, so that an operator's is known here too.
#[expect(clippy::expect_used, reason = "ring has what the default versions need")]
fn tls() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (known, _unread) = roots.add_parsable_certificates(found.certs);
    if known == 0 {
        tracing::warn!(
            "this host knows no authorities (ca-certificates is not installed?), so no registry \
             is believed"
        );
    }
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Names to addresses that may be asked.
#[derive(Clone)]
struct Lookup(Arc<Allowed>);

#[derive(Debug, thiserror::Error)]
#[error("no address of it may be asked")]
struct Refused;

type Found = std::vec::IntoIter<SocketAddr>;

impl Service<Name> for Lookup {
    type Response = Found;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Found, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let is_named = self.0.names(name.as_str());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let fit: Vec<_> = found.filter(|at| is_named || is_public(at.ip())).collect();
            if fit.is_empty() { Err(Refused.into()) } else { Ok(fit.into_iter()) }
        })
    }
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

fn is_refused(error: &hyper_util::client::legacy::Error) -> bool {
    causes(error).any(<dyn std::error::Error>::is::<Refused>)
}

/// The layers around it all say that there is a cause.
fn innermost(error: &hyper_util::client::legacy::Error) -> String {
    causes(error).last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_answers_send_on_to() {
        let from: Uri = "https://a.example/v2/x?y=1".parse().unwrap();
        for (to, expected) in [
            ("https://b.example/z?sig=%2F", Some("https://b.example/z?sig=%2F")),
            ("/z?q", Some("https://a.example/z?q")),
            ("//b.example/z", Some("https://b.example/z")),
            ("https://b.example/z#part", Some("https://b.example/z")),
            ("z", None),
            ("", None),
            ("https://b example/", None),
        ] {
            let joined = joined(&from, to).map(|uri| uri.to_string());
            assert_eq!(joined.as_deref(), expected, "{to}");
        }
    }

    #[test]
    fn what_answers_mean() {
        for (status, expected) in [
            (200, Verdict::Fine),
            (206, Verdict::Fine),
            (401, Verdict::Challenge),
            (403, Verdict::Unauthorized),
            (404, Verdict::NotFound),
            (429, Verdict::Again),
            (503, Verdict::Again),
            (204, Verdict::Odd),
            (400, Verdict::Odd),
        ] {
            assert_eq!(verdict(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
