//! Which request goes where, who may make it, and what all answers have in common.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::{
    agent::Agent,
    asker::Asker,
    auth::{FileClaim, Operation, check_file_claim, same},
    body::{Body, empty, full},
    clock,
    files::{Composition, Refusal, compose, download, upload},
    identity::Identity,
    paths,
    query::Query,
    rpc::{self, Call},
    users::User,
};

const TOKEN: &str = "x-access-token";
/// Of a request that lists files.
const LIST_LIMIT: usize = 1024 * 1024;
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Content-Disposition, Content-Encoding, Content-Length, Content-Range, Last-Modified",
);
const ANY: HeaderValue = HeaderValue::from_static("*");

/// `asker`: of a connection from within.
pub(crate) async fn answer(
    agent: &Arc<Agent>,
    asker: Option<Asker>,
    request: Request<Incoming>,
) -> Response<Body> {
    let is_browser = request.headers().contains_key(header::ORIGIN);
    if let Some(answer) = preflight(&request) {
        return answer;
    }
    let mut response = route(agent, asker, request).await.unwrap_or_else(|refusal| fail(&refusal));
    if is_browser {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

/// Any page may ask anything: the token is what protects, and no cookie is looked at.
fn preflight(request: &Request<Incoming>) -> Option<Response<Body>> {
    let headers = request.headers();
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    if request.method() != Method::OPTIONS || !headers.contains_key(header::ORIGIN) {
        return None;
    }
    let mut response = status(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    out.insert(
        header::VARY,
        HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"),
    );
    Some(response)
}

async fn route(
    agent: &Arc<Agent>,
    asker: Option<Asker>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let who = agent.identity().ok_or_else(|| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the sandbox is nobody's yet")
    })?;
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let is_read = method == Method::GET || method == Method::HEAD;
    let open = match path.as_str() {
        "/health" => is_read,
        // A signature may stand for the token.
        "/files" => is_read || method == Method::POST,
        _ => false,
    };
    if !open
        && let Err(refusal) = check_token(&who, request.headers())
        && (path != "/envs" || !has_them_already(&who, asker).await)
    {
        return Err(refusal);
    }
    match path.as_str() {
        "/health" if is_read => Ok(healthy()),
        "/files" if is_read => read_file(&who, &request),
        "/files" if method == Method::POST => write_file(agent, &who, request).await,
        "/files/compose" if method == Method::POST => compose_file(agent, who, request).await,
        "/metrics" if is_read => Ok(json(&agent.meter.read(clock::now().as_second()))),
        "/envs" if is_read => Ok(json(&who.environment)),
        "/health" | "/files" | "/files/compose" | "/metrics" | "/envs" => Err(wrong_method()),
        _ => call(agent, who, request, &path).await,
    }
}

fn check_token(who: &Identity, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = &who.token else { return Ok(()) };
    let given = text(headers, TOKEN);
    if given.is_some_and(|given| same(given, token)) {
        return Ok(());
    }
    let message = "unauthorized access: the access token is missing or does not match";
    Err(Refusal::new(StatusCode::UNAUTHORIZED, message))
}

/// The variables: a program of the default user that ran before they were set, such as a server
/// of the template's, asks without a token. Others of that user have them from their start. Root
/// is not let in, since the agent dials ports for whoever is outside.
async fn has_them_already(who: &Identity, asker: Option<Asker>) -> bool {
    let (Some(asker), Ok(user)) = (asker, who.find_user(None)) else { return false };
    user.uid != 0
        && spawn_blocking(move || asker.uid()).await.is_ok_and(|uid| uid == Some(user.uid))
}

fn healthy() -> Response<Body> {
    let mut response = status(StatusCode::NO_CONTENT);
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}

/// `/package.Service/Method`
async fn call(
    agent: &Arc<Agent>,
    who: Arc<Identity>,
    request: Request<Incoming>,
    path: &str,
) -> Result<Response<Body>, Refusal> {
    let unknown = || Refusal::new(StatusCode::NOT_FOUND, format!("nothing is served at '{path}'"));
    let (service, method) = path.trim_start_matches('/').split_once('/').ok_or_else(unknown)?;
    if !matches!(service, "process.Process" | "filesystem.Filesystem") {
        return Err(unknown());
    }
    if request.method() != Method::POST {
        return Err(wrong_method());
    }
    let method = method.to_owned();
    let (parts, body) = request.into_parts();
    let Some(call) = Call::new(&parts.headers, body) else { return Ok(rpc::unsupported()) };
    Ok(if service == "process.Process" {
        agent.processes.clone().serve(who, &method, call).await
    } else {
        agent.filesystem.clone().serve(who, &method, call).await
    })
}

fn read_file(who: &Identity, request: &Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    check_signature(who, request.headers(), &query, Operation::Read)?;
    let user = find_user(who, query.filled("username"))?;
    let path = query.get("path").unwrap_or_default();
    let path = paths::resolve(path, &user.home, who.workdir.as_deref());
    download(&path, request.headers())
}

async fn write_file(
    agent: &Agent,
    who: &Identity,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    check_signature(who, request.headers(), &query, Operation::Write)?;
    let user = find_user(who, query.filled("username"))?;
    let (parts, body) = request.into_parts();
    let path = query.filled("path");
    let written = upload(user, who.workdir.clone(), path, &parts.headers, body).await?;
    agent.watchers.catch_up();
    Ok(json(&written))
}

async fn compose_file(
    agent: &Agent,
    who: Arc<Identity>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let body = Limited::new(request.into_body(), LIST_LIMIT).collect().await;
    let body = body.map_err(|error| Refusal::bad(error.to_string()))?.to_bytes();
    let wish: Composition = serde_json::from_slice(&body)
        .map_err(|error| Refusal::bad(format!("the body is not as described: {error}")))?;
    let user = find_user(&who, wish.username.as_deref())?;
    let composed = spawn_blocking(move || compose(&wish, &user, who.workdir.as_deref()));
    let given_up =
        |_panic| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the composition was given up");
    let written = composed.await.map_err(given_up)??;
    agent.watchers.catch_up();
    Ok(json(&written))
}

fn check_signature(
    who: &Identity,
    headers: &HeaderMap,
    query: &Query,
    operation: Operation,
) -> Result<(), Refusal> {
    let claim = FileClaim {
        header: text(headers, TOKEN),
        path: query.get("path").unwrap_or_default(),
        username: query.get("username").unwrap_or_default(),
        operation,
        signature: query.filled("signature"),
        expiration: query.filled("signature_expiration"),
    };
    check_file_claim(claim, who.token.as_deref(), clock::now().as_second())
        .map_err(|error| Refusal::new(StatusCode::UNAUTHORIZED, error.to_string()))
}

fn find_user(who: &Identity, name: Option<&str>) -> Result<User, Refusal> {
    who.find_user(name).map_err(|error| {
        let message = format!("error looking up user '{}': {error}", error.0);
        Refusal::new(StatusCode::UNAUTHORIZED, message)
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn wrong_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not served here")
}

fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = code;
    response
}

fn json(value: &impl Serialize) -> Response<Body> {
    respond_json(StatusCode::OK, value)
}

fn fail(refusal: &Refusal) -> Response<Body> {
    #[derive(Serialize)]
    struct Told<'a> {
        code: u16,
        message: &'a str,
    }
    let Refusal { status, message } = refusal;
    respond_json(*status, &Told { code: status.as_u16(), message })
}

fn respond_json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Our own types have string keys throughout; an empty body would be noticed.
    let body = serde_json::to_vec(value).unwrap_or_default();
    rpc::respond(status, "application/json", full(body))
}
