//! Pausing, and what ends it: resume and connect.

use axum::{Json, extract::State, http::StatusCode};
use sandboxo_control::Connected;
use sandboxo_zone_protocol::Kept;
use serde::Deserialize;

use super::life::seconds;
use crate::{
    ApiError, Surface,
    body::{Body, Id},
    caller::Caller,
    view::Sandbox,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pause {
    memory: Option<bool>,
    /// A sandbox whose agent does not answer is never paused.
    #[serde(rename = "requireHealthyGuest")]
    _require_healthy_guest: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    timeout: Option<i64>,
    auto_pause: Option<bool>,
    memory: Option<bool>,
}

const RESUME_SECONDS: i64 = 15;

/// The older clients always send a timeout.
#[derive(Deserialize)]
pub(super) struct ConnectV1 {
    timeout: i64,
    memory: Option<bool>,
}

/// The newer ones only if it was set.
#[derive(Deserialize)]
pub(super) struct ConnectV2 {
    timeout: Option<i64>,
    memory: Option<bool>,
}

const CONNECT_SECONDS: i64 = 300;

pub(super) async fn pause(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(body): Body<Pause>,
) -> Result<StatusCode, ApiError> {
    let kept = if body.memory == Some(false) { Kept::Files } else { Kept::Memory };
    surface.control.sandboxes.pause(caller.team, id, kept).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn resume(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(body): Body<Resume>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let timeout = seconds("timeout", body.timeout.unwrap_or(RESUME_SECONDS))?;
    let reboot = body.memory == Some(false);
    let sandboxes = &surface.control.sandboxes;
    let record = sandboxes.resume(caller.team, id, timeout, reboot, body.auto_pause).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::new(&record, surface.domain.as_deref()))))
}

pub(super) async fn connect_v1(
    surface: State<Surface>,
    caller: Caller,
    id: Id,
    Body(ConnectV1 { timeout, memory }): Body<ConnectV1>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    connect(surface, caller, id, timeout, memory).await
}

pub(super) async fn connect_v2(
    surface: State<Surface>,
    caller: Caller,
    id: Id,
    Body(ConnectV2 { timeout, memory }): Body<ConnectV2>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    connect(surface, caller, id, timeout.unwrap_or(CONNECT_SECONDS), memory).await
}

/// Clients tell by the status whether it ran.
async fn connect(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    timeout: i64,
    memory: Option<bool>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let timeout = seconds("timeout", timeout)?;
    let reboot = memory == Some(false);
    let connected = surface.control.sandboxes.connect(caller.team, id, timeout, reboot).await?;
    let (status, record) = match connected {
        Connected::Running(record) => (StatusCode::OK, record),
        Connected::Resumed(record) => (StatusCode::CREATED, record),
    };
    Ok((status, Json(Sandbox::new(&record, surface.domain.as_deref()))))
}
