//! An appliance's door on a TCP port, one sandbox behind it, and a client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Bytes, routing::get};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use sandboxo_control::{Control, ControlConfig, ImportTemplate};
use sandboxo_front_door::{Domains, FrontDoor, FrontDoorConfig, ServeConfig, Site};
use sandboxo_model::{Lifecycle, NetworkAsked, NewSandbox, SandboxRecord};
use sandboxo_spool::Spool;
use sandboxo_store::Store;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{
    Secret, TeamId,
    fake::{FakeZone, ManualClock, SeededRandom},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::program::{Programs, Seen};

pub(crate) const DOMAIN: &str = "sbx.test";
pub(crate) const OPERATOR: &str = "the-operators-token";

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) zone: Arc<FakeZone>,
    pub(crate) programs: Arc<Programs>,
    pub(crate) key: String,
    /// The label of a public sandbox with an agent token.
    pub(crate) id: String,
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) tasks: Tasks,
    pub(crate) site: Site,
    address: SocketAddr,
    pub(crate) team: TeamId,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn seen(&self) -> Seen {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let domains = Domains::new([DOMAIN]);
        Self::with(FrontDoorConfig { domains, ..FrontDoorConfig::default() }).await
    }

    pub(crate) async fn with(config: FrontDoorConfig) -> Self {
        let clock = Arc::new(ManualClock::default());
        let zone = FakeZone::new(clock.clone());
        let tasks = Tasks::new();
        let control = Control::start(
            ControlConfig::default(),
            Store::in_memory().unwrap(),
            Spool::temporary(),
            zone.clone(),
            clock,
            Arc::new(SeededRandom::new(3)),
            tasks.clone(),
        )
        .await
        .unwrap();
        let key = control
            .keys
            .ensure_first(|_key| Ok::<_, sandboxo_store::StoreError>(()))
            .await
            .unwrap()
            .unwrap();
        let (team, key) = (key.record.team, key.secret.expose().to_owned());
        let tar = Box::new(&b"a root"[..]);
        control.templates.import(team, ImportTemplate::new("base"), tar).await.unwrap();
        let programs = Programs::new(tasks.clone());
        let inside = Arc::clone(&programs);
        zone.on_connect(move |opened| inside.open(opened));

        let surfaces = Router::new()
            .route("/health", get(|| async { "the appliance" }))
            .route("/sandboxes", get(|| async { "the list" }));
        let config = FrontDoorConfig { operator_token: Some(Secret::new(OPERATOR)), ..config };
        let site = Site::new(FrontDoor::new(control.clone(), config, tasks.clone()), surfaces);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, served) = (tasks.clone(), site.clone());
        tasks.spawn_critical("http", |stop| {
            sandboxo_front_door::serve(listener, served, ServeConfig::default(), connections, stop)
        });
        let record = control.sandboxes.create(team, new(NetworkAsked::default())).await.unwrap();
        let id = record.id.label();
        Self { control, zone, programs, key, id, record, tasks, site, address, team }
    }

    pub(crate) async fn create(&self, network: NetworkAsked) -> Arc<SandboxRecord> {
        self.create_with(network, Lifecycle::default()).await
    }

    pub(crate) async fn create_with(
        &self,
        network: NetworkAsked,
        lifecycle: Lifecycle,
    ) -> Arc<SandboxRecord> {
        let new = NewSandbox { lifecycle, ..new(network) };
        self.control.sandboxes.create(self.team, new).await.unwrap()
    }

    /// Without a listener, so that time can stand still.
    pub(crate) async fn site_ask(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> http::Response<axum::body::Body> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.site.answer(request.body(axum::body::Body::empty()).unwrap()).await
    }

    pub(crate) fn host(&self, port: u16) -> String {
        host(port, &self.id)
    }

    /// `line` is a method and a path.
    pub(crate) async fn ask(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(line, headers, "").await
    }

    /// By the E2B headers.
    pub(crate) async fn ask_port(&self, line: &str, port: u16, more: &[(&str, &str)]) -> Answer {
        let port = port.to_string();
        let route = [("e2b-sandbox-id", self.id.as_str()), ("e2b-sandbox-port", &port)];
        self.ask(line, &[&route, more].concat()).await
    }

    pub(crate) async fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let (parts, body) = self.begin(line, headers, body).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// An answer whose body is still on its way.
    pub(crate) async fn begin(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Response<Incoming> {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        self.tasks.spawn("client", |_stop| async move { drop(connection.await) });
        sender.send_request(request).await.unwrap()
    }

    /// A client that speaks for itself.
    pub(crate) async fn raw(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }
}

pub(crate) fn host(port: u16, id: &str) -> String {
    format!("{port}-{id}.{DOMAIN}")
}

/// Reads until the text has come.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut piece = [0; 4096];
        let length = within(stream.read(&mut piece)).await.unwrap();
        assert!(length > 0, "ended without {text:?}: {}", String::from_utf8_lossy(&read));
        read.extend(piece.iter().take(length));
    }
    String::from_utf8(read).unwrap()
}

/// What has not come by now never will.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}

fn new(network: NetworkAsked) -> NewSandbox {
    NewSandbox {
        template: "base".into(),
        timeout: Duration::from_mins(5),
        secure: true,
        env: [].into(),
        metadata: [].into(),
        internet: None,
        network: Some(network),
        lifecycle: Lifecycle::default(),
        volumes: Vec::new(),
        tokens: sandboxo_model::Tokens::default(),
        idempotency_key: None,
    }
}
