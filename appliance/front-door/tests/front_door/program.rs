//! What runs inside: by the port, a program that tells what it saw, or one that misbehaves.

use std::{convert::Infallible, sync::Arc};

use axum::body::{Body, Bytes};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{ConnectError, fake::Opened};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    sync::{Notify, Semaphore, mpsc, watch},
};
use tokio_rustls::TlsAcceptor;

pub(crate) const HTTP: u16 = 8080;
pub(crate) const AGENT: u16 = 49983;
pub(crate) const CLOSED: u16 = 9;
/// Takes a request and closes.
pub(crate) const SILENT: u16 = 81;
/// Answers in another protocol.
pub(crate) const GARBAGE: u16 = 82;
/// Takes a request and does nothing.
pub(crate) const DEAF: u16 = 83;
/// Begins to listen at the third try.
pub(crate) const LATE: u16 = 84;
/// Its body ends where the connection ends.
pub(crate) const OLD: u16 = 85;
pub(crate) const BUSY: u16 = 86;
pub(crate) const LOST: u16 = 87;
/// Takes a request's head and says what the test wrote for it.
pub(crate) const SCRIPTED: u16 = 88;

/// Takes a request's head, says what the test wrote for it, and closes.
pub(crate) const HASTY: u16 = 89;

/// Speaks TLS, as anybody.
pub(crate) const SECURE: u16 = 8443;

/// The test's hand in the programs.
pub(crate) struct Programs {
    tasks: Tasks,
    late: Semaphore,
    script: watch::Sender<&'static [u8]>,
    /// Lets a program go on.
    pub(crate) go: Notify,
    /// A deaf program has taken a request.
    pub(crate) taken: Notify,
    /// A program's connection has ended.
    pub(crate) ended: Notify,
}

/// A request as the program saw it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) port: u16,
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(it, _)| it == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// Of a certificate for another name, signed by itself.
fn identity() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["elsewhere.test".to_owned()]).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.into()], made.signing_key.into())
            .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

impl Programs {
    pub(crate) fn new(tasks: Tasks) -> Arc<Self> {
        let (go, taken, ended) = (Notify::new(), Notify::new(), Notify::new());
        let (late, script) = (Semaphore::new(2), watch::Sender::default());
        Arc::new(Self { tasks, late, script, go, taken, ended })
    }

    pub(crate) fn script(&self, answer: &'static str) {
        self.script.send_replace(answer.as_bytes());
    }

    pub(crate) fn open(self: &Arc<Self>, opened: Opened) -> Result<(), ConnectError> {
        let Opened { port, stream, .. } = opened;
        match port {
            CLOSED => return Err(ConnectError::PortClosed(port)),
            BUSY => return Err(ConnectError::TooMany),
            LOST => return Err(ConnectError::AgentLost),
            LATE => {
                if let Ok(refusal) = self.late.try_acquire() {
                    refusal.forget();
                    return Err(ConnectError::PortClosed(port));
                }
            }
            _ => {}
        }
        let this = Arc::clone(self);
        self.tasks.spawn("program", |_stop| async move {
            match port {
                SILENT => drop(head(stream).await),
                GARBAGE => say(head(stream).await, b"220 mail.test ESMTP\r\n").await,
                DEAF => {
                    let _open = head(stream).await;
                    this.taken.notify_one();
                    this.go.notified().await;
                }
                OLD => {
                    let mut stream = head(stream).await;
                    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\npart").await.unwrap();
                    // Until the other side is gone.
                    stream.read_to_end(&mut Vec::new()).await.unwrap();
                }
                HASTY => {
                    let mut stream = head(stream).await;
                    let answer = *this.script.borrow();
                    stream.write_all(answer).await.unwrap();
                }
                SCRIPTED => {
                    let mut stream = head(stream).await;
                    let answer = *this.script.borrow();
                    stream.write_all(answer).await.unwrap();
                    // Nothing of a body is read.
                    this.go.notified().await;
                }
                SECURE => match identity().accept(stream).await {
                    Ok(stream) => this.http(port, stream).await,
                    // Whoever was there did not speak it.
                    Err(_error) => {}
                },
                _ => this.http(port, stream).await,
            }
            this.ended.notify_one();
        });
        Ok(())
    }

    async fn http(
        self: &Arc<Self>,
        port: u16,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) {
        let service = service_fn(move |request| {
            let this = Arc::clone(self);
            async move { Ok::<_, Infallible>(this.answer(port, request).await) }
        });
        let http = hyper::server::conn::http1::Builder::new();
        let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        // An error is the other side's leaving.
        drop(connection.await);
    }

    async fn answer(self: &Arc<Self>, port: u16, mut request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/ticks" => self.in_two("tick 1\n", Some("tick 2\n")),
            "/broken" => self.in_two("whole?", None),
            "/count" => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Response::new(Body::from(body.len().to_string()))
            }
            "/echo" => Response::new(Body::new(request.into_body())),
            "/large" => Response::new(Body::from(vec![b'x'; 4 << 20])),
            "/head" => {
                let mut response = Response::new(Body::empty());
                response.headers_mut().insert(header::CONTENT_LENGTH, 1234.into());
                response
            }
            "/hops" => Response::builder()
                .status(StatusCode::TEMPORARY_REDIRECT)
                .header("connection", "x-private")
                .header("x-private", "1")
                .header("keep-alive", "timeout=5")
                .header("proxy-authenticate", "Basic")
                .header("location", "/elsewhere?a=%2F")
                .header("set-cookie", "a=1")
                .header("set-cookie", "b=2")
                .header("access-control-allow-origin", "https://app.test")
                .body(Body::empty())
                .unwrap(),
            "/upgrade" => {
                let upgrade = hyper::upgrade::on(&mut request);
                self.tasks.spawn("echo", |_stop| async move {
                    let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                    drop(tokio::io::copy(&mut from, &mut to).await);
                });
                Response::builder()
                    .status(StatusCode::SWITCHING_PROTOCOLS)
                    .header("connection", "Upgrade")
                    .header("upgrade", "websocket")
                    .header("sec-websocket-protocol", "chat.v2")
                    .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
                    .body(Body::empty())
                    .unwrap()
            }
            "/no-upgrade" => Response::builder()
                .status(StatusCode::FORBIDDEN)
                .body(Body::from("not for you"))
                .unwrap(),
            _ => {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let headers = parts.headers.iter();
                let seen = Seen {
                    port,
                    method: parts.method.to_string(),
                    uri: parts.uri.to_string(),
                    headers: headers
                        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
                        .collect(),
                    body: text(&body),
                };
                Response::new(Body::from(serde_json::to_vec(&seen).unwrap()))
            }
        }
    }

    /// The second piece comes when the test lets it; `None` breaks off.
    fn in_two(
        self: &Arc<Self>,
        first: &'static str,
        second: Option<&'static str>,
    ) -> Response<Body> {
        let (pieces, mut queue) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let this = Arc::clone(self);
        self.tasks.spawn("pieces", |_stop| async move {
            // Nobody takes a piece of the answer to HEAD.
            if pieces.send(Ok(first.into())).await.is_err() {
                return;
            }
            this.go.notified().await;
            let second = second.map(Bytes::from).ok_or_else(|| std::io::ErrorKind::Other.into());
            drop(pieces.send(second).await);
        });
        let pieces = futures_util::stream::poll_fn(move |cx| queue.poll_recv(cx));
        Response::builder()
            .header(header::CONTENT_TYPE, "text/event-stream")
            .body(Body::from_stream(pieces))
            .unwrap()
    }
}

/// Reads to the end of a request's head.
async fn head(mut stream: DuplexStream) -> DuplexStream {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    stream
}

async fn say(mut stream: DuplexStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
}
