//! The listener's loop: connections in, each a task, all of them let go gently at the end.

mod socket;
mod unread;

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use futures_util::FutureExt as _;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, EXPECT},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use sandboxo_tasks::{Stop, Tasks};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use self::socket::{Fate, Socket};
use crate::Site;

#[derive(Debug, Clone, Copy)]
pub struct ServeConfig {
    /// For a request's head, and how long an idle connection is kept. Longer than clients keep
    /// theirs (five minutes): who closes first never meets a request on its way.
    pub head_timeout: Duration,
    pub max_headers: usize,
    /// A request's head, in bytes.
    pub max_head_bytes: usize,
    /// Further clients wait to be accepted.
    pub max_connections: usize,
    /// How long requests may go on after the stop.
    pub grace: Duration,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(320),
            max_headers: 128,
            max_head_bytes: 128 * 1024,
            max_connections: 16 * 1024,
            grace: Duration::from_secs(5),
        }
    }
}

/// Who is on the other end of the connection; an extension of every request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Peer {
    pub fn ip(self) -> IpAddr {
        self.0.ip()
    }
}

/// Accepts until the stop; then open requests get the grace.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    config: ServeConfig,
    tasks: Tasks,
    stop: Stop,
) {
    let seats = Arc::new(Semaphore::new(config.max_connections));
    loop {
        let accepted = async {
            let seat = Arc::clone(&seats).acquire_owned().await;
            (listener.accept().await, seat)
        };
        let (accepted, seat) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (site, requests) = (site.clone(), tasks.clone());
                tasks.spawn("http connection", |stop| async move {
                    let _seat = seat;
                    connection(stream, peer, site, config, requests, stop).await;
                });
            }
            Err(error) if concerns_one_client(&error) => {}
            Err(error) => {
                // Out of descriptors, most likely; they come back when connections end.
                tracing::error!(error = &error as &dyn std::error::Error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn concerns_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
    )
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    site: Site,
    config: ServeConfig,
    tasks: Tasks,
    stop: Stop,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = &error as &dyn std::error::Error, "set TCP_NODELAY");
    }
    let (socket, fate, left) = Socket::new(stream);
    let of_requests = fate.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (site, tasks, fate) = (site.clone(), tasks.clone(), of_requests.clone());
        async move { Ok::<_, Infallible>(answer(site, request, peer, tasks, &fate).await) }
    });
    let mut connection = Box::pin(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_headers(config.max_headers)
            .max_header_size(config.max_head_bytes)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades(),
    );
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(config.grace, &mut connection).await {
                Ok(ended) => ended,
                Err(_elapsed) => return,
            }
        }
    };
    if let Err(error) = ended {
        // An answer broke off, by no fault of the client's.
        if error.is_user() {
            fate.cut();
        }
        tracing::debug!(error = &error as &dyn std::error::Error, "http connection");
    }
    drop(connection);
    tokio::select! {
        () = stop.cancelled() => {}
        () = left.run_dry() => {}
    }
}

/// A panic is that request's own: it answers 500, and the connection goes on.
async fn answer(
    site: Site,
    request: Request<Incoming>,
    peer: SocketAddr,
    tasks: Tasks,
    fate: &Fate,
) -> Response<Body> {
    let waits_for_continue = request.headers().contains_key(EXPECT);
    let (parts, body) = request.into_parts();
    let (body, unread) = unread::watch(body, tasks);
    let mut request = Request::from_parts(parts, Body::new(body));
    request.extensions_mut().insert(Peer(peer));
    let mut response = answer_or_500(site, request).await;
    if !unread.finish(waits_for_continue).await {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        fate.linger();
    }
    response
}

async fn answer_or_500(site: Site, request: Request<Body>) -> Response<Body> {
    match AssertUnwindSafe(site.answer(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_panic) => {
            tracing::error!("a request panicked");
            let mut response =
                Response::new(Body::from(r#"{"code":500,"message":"internal error"}"#));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
    }
}
