//! How long it lives: timeout and refreshes.

use std::time::Duration;

use axum::{extract::State, http::StatusCode};
use serde::Deserialize;

use crate::{
    ApiError, Surface,
    body::{Body, Id},
    caller::Caller,
};

#[derive(Deserialize)]
pub(super) struct Timeout {
    timeout: i64,
}

#[derive(Deserialize)]
pub(super) struct Refresh {
    duration: Option<i64>,
}

const REFRESH_SECONDS: i64 = 15;
const MAX_REFRESH_SECONDS: i64 = 3600;

/// Overwrites, shorter or longer; zero ends it.
pub(super) async fn set_timeout(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(body): Body<Timeout>,
) -> Result<StatusCode, ApiError> {
    let timeout = seconds("timeout", body.timeout)?;
    surface.control.sandboxes.set_timeout(caller.team, id, timeout).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Only ever extends.
pub(super) async fn refresh(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(body): Body<Refresh>,
) -> Result<StatusCode, ApiError> {
    let asked = body.duration.unwrap_or(REFRESH_SECONDS);
    if asked > MAX_REFRESH_SECONDS {
        return Err(ApiError::Invalid(format!(
            "duration: must be between 0 and {MAX_REFRESH_SECONDS} seconds"
        )));
    }
    let duration = seconds("duration", asked)?;
    surface.control.sandboxes.extend(caller.team, id, duration).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) fn seconds(field: &str, asked: i64) -> Result<Duration, ApiError> {
    let seconds = u64::try_from(asked);
    seconds
        .map(Duration::from_secs)
        .map_err(|_negative| ApiError::Invalid(format!("{field}: must not be negative")))
}
