//! From a target to a program in a sandbox: look it up, check what it asks of its visitors, wake
//! it if need be, open a stream, pass the request on.

mod wake;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, HOST},
    request::Parts,
};
use parking_lot::Mutex;
use sandboxo_control::{ConnectError, Control, Lookup};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{AGENT_PORT, ByteStream, SandboxId, Secret};
use serde::Serialize;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::{
    Domains, Peer,
    forward::{Inside, Patience, forward, reshape},
    header::{self, API_KEY, Crossing, TRAFFIC_TOKEN},
    refusal::{self, Failure, Refused},
    secure::Greeter,
    signature::Signed,
    target::{self, DataPlane, Surface, Target},
};

#[derive(Debug, Clone)]
pub struct FrontDoorConfig {
    pub domains: Domains,
    /// Of the operator's surface: never passed on.
    pub operator_token: Option<Secret>,
    /// Until a program that took a request begins to answer.
    pub answer_timeout: Duration,
    /// Without a byte in either direction.
    pub standstill: Duration,
    pub max_requests: usize,
    /// How many requests may wait for sandboxes to wake.
    pub max_waiting: usize,
}

impl Default for FrontDoorConfig {
    fn default() -> Self {
        Self {
            domains: Domains::default(),
            operator_token: None,
            answer_timeout: Duration::from_mins(10),
            standstill: Duration::from_mins(10),
            max_requests: 16 * 1024,
            max_waiting: 512,
        }
    }
}

/// Pauses before a port that is not open is tried again: a server that was started a moment ago
/// may not listen yet.
const RETRIES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];

const HEALTH: &str = "/health";
/// The agent's routes that are for its zone only.
const ZONE_ONLY: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];

#[derive(Clone)]
pub struct FrontDoor {
    control: Control,
    config: Arc<FrontDoorConfig>,
    requests: Arc<Semaphore>,
    /// Where requests wait for sandboxes to wake.
    lot: Arc<Semaphore>,
    greeter: Greeter,
    tasks: Tasks,
}

/// Both planes behind one port.
#[derive(Clone)]
pub struct Site {
    door: FrontDoor,
    router: Router,
}

impl Site {
    /// `router` is the control plane; its fallback becomes the door's, since a sandbox may be
    /// named by headers on any path that nothing else answers.
    pub fn new(door: FrontDoor, router: Router) -> Self {
        let router = router.fallback(|request: Request<Body>| async {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(Unmatched(Arc::new(Mutex::new(Some(request)))));
            response
        });
        Self { door, router }
    }

    pub async fn answer(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let target = target::decide(&parts, &self.door.config.domains);
        if target != Target::ControlPlane {
            return self.door.go(target, parts, body).await;
        }
        match Signed::of(&parts) {
            Some(signed) => self.door.signed(&signed, parts, body).await,
            None => self.control_plane(Request::from_parts(parts, body)).await,
        }
    }

    async fn control_plane(&self, request: Request<Body>) -> Response {
        let mut response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        };
        let unmatched = response.extensions_mut().remove::<Unmatched>();
        match unmatched.and_then(|Unmatched(request)| request.lock().take()) {
            Some(request) => {
                let (parts, body) = request.into_parts();
                self.door.go(target::decide_unmatched(&parts), parts, body).await
            }
            None => response,
        }
    }
}

/// A request that the router gives back. The answer to it does not go through the router, which
/// would give a length to those that have none of their own: to HEAD, and to a switch of protocols.
#[derive(Clone)]
struct Unmatched(Arc<Mutex<Option<Request<Body>>>>);

impl FrontDoor {
    pub fn new(control: Control, config: FrontDoorConfig, tasks: Tasks) -> Self {
        let requests = Arc::new(Semaphore::new(config.max_requests));
        let lot = Arc::new(Semaphore::new(config.max_waiting));
        let greeter = Greeter::new();
        Self { control, config: Arc::new(config), requests, lot, greeter, tasks }
    }

    async fn go(&self, target: Target, parts: Parts, body: Body) -> Response {
        match target {
            Target::DataPlane(data_plane) => self.pass(&data_plane, parts, body).await,
            Target::ControlPlane => no_route(&parts),
            Target::Malformed(why) => refusal::malformed(&why),
            Target::NoSuchSandbox(id) => refusal::no_such_sandbox(&parts.headers, &id),
            Target::UnknownHost => refusal::unknown_host(&parts.headers),
        }
    }

    /// A signed URL names no sandbox: it is whose token made the signature.
    async fn signed(&self, signed: &Signed, parts: Parts, body: Body) -> Response {
        let live = self.control.sandboxes.live();
        let owner = live.iter().find(|record| {
            record.spec.agent_token.as_ref().is_some_and(|token| signed.fits(token.expose()))
        });
        let Some(owner) = owner else { return refusal::bad_signature(&parts.headers) };
        let data_plane = DataPlane {
            id: owner.id.label(),
            port: AGENT_PORT,
            surface: Surface::E2bHeader,
            path: target::path_and_query(&parts.uri).into_owned(),
        };
        self.pass(&data_plane, parts, body).await
    }

    async fn pass(&self, to: &DataPlane, parts: Parts, body: Body) -> Response {
        let DataPlane { id, port, surface, path } = to;
        let Parts { method, uri, headers, mut extensions, .. } = parts;
        let refuse = |failure| {
            let (surface, port) = (*surface, *port);
            Refused { failure, surface, id, port, path }.respond(&headers)
        };
        let Ok(parsed) = id.parse::<SandboxId>() else {
            return match surface {
                Surface::AgentEnv => refusal::malformed("the sandbox id is not one"),
                Surface::E2bHeader | Surface::E2bHost => refuse(Failure::NoSandbox),
            };
        };
        let admitted = match self.admit(parsed, *port, path, &headers) {
            Ok(lookup) => self.awake(parsed, *surface, lookup).await,
            Err(failure) => Err(failure),
        };
        let record = match admitted {
            Ok(record) => record,
            Err(failure) => return refuse(failure),
        };
        let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() else {
            return refuse(Failure::Busy);
        };
        let stream = match self.open(parsed, *port).await {
            Ok(stream) => stream,
            Err(failure) => return refuse(failure),
        };
        let stream = if record.ingress.https_ports.contains(port) {
            match self.greeter.greet(stream).await {
                Ok(stream) => stream,
                Err(failure) => return refuse(self.why_not(parsed).unwrap_or(failure)),
            }
        } else {
            stream
        };
        let upgrade = header::upgrade_of(&headers)
            .and_then(|_protocol| extensions.remove::<hyper::upgrade::OnUpgrade>());
        let masked = record.ingress.mask_request_host.as_deref();
        let masked = masked.map(|host| host.replace("${PORT}", &port.to_string()));
        let inward = header::inward(
            headers.clone(),
            &Crossing {
                method: &method,
                uri: &target::path_and_query(&uri),
                host: host(&uri, &headers),
                scheme: "http",
                peer: extensions.get::<Peer>().map(|peer| peer.ip()),
                to_agent: *port == AGENT_PORT,
                masked_host: masked.as_deref(),
                strip_api_key: self.is_api_key(&headers),
                strip_authorization: self.is_operator(&headers),
            },
        );
        let Some(request) = reshape(method, path, inward, body) else {
            return refusal::malformed("the path is not one");
        };
        let patience =
            Patience { answer: self.config.answer_timeout, standstill: self.config.standstill };
        let inside = Inside { id: parsed, sandboxes: &self.control.sandboxes, tasks: &self.tasks };
        match forward(inside, stream, request, upgrade, patience, permit).await {
            Ok(response) => response,
            // It may have died under the request: then that is what happened.
            Err(failure) => refuse(self.why_not(parsed).unwrap_or(failure)),
        }
    }

    /// What the sandbox asks of visitors. The agent checks its own token.
    fn admit(
        &self,
        id: SandboxId,
        port: u16,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Lookup, Failure> {
        let lookup = self.control.sandboxes.lookup(id);
        let record = match &lookup {
            Lookup::Ready(record)
            | Lookup::Paused(record)
            | Lookup::Pausing(record)
            | Lookup::Resuming(record) => record,
            Lookup::NotFound => return Err(Failure::NoSandbox),
        };
        if port == AGENT_PORT {
            let route = path.split_once('?').map_or(path, |(route, _query)| route);
            if ZONE_ONLY.contains(&route) {
                return Err(Failure::AgentRoute);
            }
            // Clients ask this to know whether it runs, and soon it will not.
            if let Lookup::Pausing(record) = &lookup
                && route == HEALTH
                && !record.auto_resume
            {
                return Ok(Lookup::Paused(Arc::clone(record)));
            }
            return Ok(lookup);
        }
        if let Some(token) = &record.ingress.traffic_token {
            let given = headers.get(TRAFFIC_TOKEN).ok_or(Failure::TrafficTokenMissing)?;
            if !same(given.as_bytes(), token) {
                return Err(Failure::TrafficTokenWrong);
            }
        }
        Ok(lookup)
    }

    async fn open(&self, id: SandboxId, port: u16) -> Result<Box<dyn ByteStream>, Failure> {
        let mut pauses = RETRIES.into_iter();
        loop {
            let failure = match self.control.sandboxes.open(id, port).await {
                Ok(stream) => return Ok(stream),
                Err(ConnectError::NotFound) => self.why_not(id).unwrap_or(Failure::NoSandbox),
                Err(ConnectError::PortClosed(_)) => match pauses.next() {
                    Some(pause) => {
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    None => Failure::PortClosed,
                },
                Err(ConnectError::AgentLost) => Failure::AgentLost,
                Err(ConnectError::TooMany) => Failure::TooManyConnections,
                Err(ConnectError::Unavailable) => Failure::ZoneUnavailable,
            };
            return Err(failure);
        }
    }

    /// `None`: it runs.
    fn why_not(&self, id: SandboxId) -> Option<Failure> {
        match self.control.sandboxes.lookup(id) {
            Lookup::Ready(_) => None,
            Lookup::Paused(_) => Some(Failure::Paused),
            Lookup::Pausing(_) | Lookup::Resuming(_) => Some(Failure::Moving),
            Lookup::NotFound => Some(Failure::NoSandbox),
        }
    }

    fn is_api_key(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(API_KEY).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| self.control.keys.authenticate(value).is_some())
    }

    fn is_operator(&self, headers: &HeaderMap) -> bool {
        let (Some(token), Some(value)) = (&self.config.operator_token, headers.get(AUTHORIZATION))
        else {
            return false;
        };
        value.as_bytes().strip_prefix(b"Bearer ").is_some_and(|given| same(given, token))
    }
}

fn same(given: &[u8], token: &Secret) -> bool {
    given.ct_eq(token.expose().as_bytes()).into()
}

fn host<'r>(uri: &'r http::Uri, headers: &'r HeaderMap) -> &'r str {
    let header = headers.get(HOST).and_then(|value: &HeaderValue| value.to_str().ok());
    uri.authority().map(http::uri::Authority::as_str).or(header).unwrap_or_default()
}

#[derive(Serialize)]
struct NoRoute {
    code: u16,
    message: String,
}

fn no_route(parts: &Parts) -> Response {
    let status = StatusCode::NOT_FOUND;
    let message = format!("no route {} {}", parts.method, parts.uri.path());
    (status, Json(NoRoute { code: status.as_u16(), message })).into_response()
}
