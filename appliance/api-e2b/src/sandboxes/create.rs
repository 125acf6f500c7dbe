//! `POST /sandboxes` and `POST /v2/sandboxes`, which differ in their defaults.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use sandboxo_model::{IdempotencyKey, NewSandbox};

use crate::{
    ApiError, Surface,
    body::Body,
    caller::Caller,
    view::{Iam, NewSandboxBody, Sandbox, Unsupported as _},
};

struct Defaults {
    timeout_seconds: i64,
    /// `None`: always, whatever is asked.
    secure: Option<bool>,
}

const V1: Defaults = Defaults { timeout_seconds: 15, secure: Some(false) };
const V2: Defaults = Defaults { timeout_seconds: 300, secure: None };

pub(super) async fn v1(
    State(surface): State<Surface>,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<NewSandboxBody>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    create(surface, caller, &headers, body, V1).await
}

pub(super) async fn v2(
    State(surface): State<Surface>,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<NewSandboxBody>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    create(surface, caller, &headers, body, V2).await
}

async fn create(
    surface: Surface,
    caller: Caller,
    headers: &HeaderMap,
    body: NewSandboxBody,
    defaults: Defaults,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let new = new_sandbox(body, idempotency_key(headers)?, &defaults)?;
    let record = surface.control.sandboxes.create(caller.team, new).await?;
    let view = Sandbox::new(&record, surface.domain.as_deref());
    Ok((StatusCode::CREATED, Json(view)))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let mut given = headers.get_all("idempotency-key").iter();
    let (Some(value), more) = (given.next(), given.next()) else { return Ok(None) };
    let key = value.to_str().ok().and_then(|text| text.parse().ok());
    match (key, more) {
        (Some(key), None) => Ok(Some(key)),
        _ => Err(ApiError::Invalid(
            "Idempotency-Key: must be one value of 1 to 255 of a-z, 0-9 and -".into(),
        )),
    }
}

fn new_sandbox(
    body: NewSandboxBody,
    idempotency_key: Option<IdempotencyKey>,
    defaults: &Defaults,
) -> Result<NewSandbox, ApiError> {
    if let Some(field) = body.unsupported() {
        return Err(ApiError::Invalid(format!("{field}: not supported by this version")));
    }
    let seconds = body.timeout.unwrap_or(defaults.timeout_seconds);
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    let seconds =
        seconds.ok_or_else(|| ApiError::Invalid("timeout: must be greater than 0".into()))?;
    let lifecycle = body.lifecycle().map_err(|rule| ApiError::Invalid(rule.into()))?;
    let secure = defaults.secure.is_none_or(|default| body.secure.unwrap_or(default));
    let network = body.network.map(sandboxo_model::NetworkAsked::from);
    let private = network.as_ref().is_some_and(|it| it.allow_public_traffic == Some(false));
    if private && !secure {
        return Err(ApiError::Invalid("network.allowPublicTraffic: false needs secure".into()));
    }
    let tokens = body.iam.map(Iam::tokens).transpose().map_err(ApiError::Invalid)?;
    Ok(NewSandbox {
        lifecycle,
        template: body.template_id,
        timeout: Duration::from_secs(seconds),
        secure,
        env: body.env_vars.unwrap_or_default(),
        metadata: body.metadata.unwrap_or_default(),
        internet: body.allow_internet_access,
        network,
        volumes: body.volume_mounts.unwrap_or_default().into_iter().map(Into::into).collect(),
        tokens: tokens.unwrap_or_default(),
        idempotency_key,
    })
}
