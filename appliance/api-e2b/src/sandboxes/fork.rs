//! `POST /sandboxes/{id}/fork`: one answer for each copy.

use axum::{Json, extract::State, http::StatusCode};
use serde::Deserialize;

use super::life::seconds;
use crate::{
    ApiError, Surface,
    body::{Body, Id},
    caller::Caller,
    view::{Forked, Sandbox},
};

#[derive(Deserialize)]
pub(super) struct Fork {
    timeout: Option<i64>,
    count: Option<i64>,
}

const FORK_SECONDS: i64 = 15;

pub(super) async fn fork(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(Fork { timeout, count }): Body<Fork>,
) -> Result<(StatusCode, Json<Vec<Forked>>), ApiError> {
    let timeout = seconds("timeout", timeout.unwrap_or(FORK_SECONDS))?;
    // What is no number of copies is refused as none is.
    let count = usize::try_from(count.unwrap_or(1)).unwrap_or_default();
    let copies = surface.control.sandboxes.fork(caller.team, id, count, timeout).await?;
    let copies = copies.into_iter().map(|copy| match copy {
        Ok(record) => Forked::Sandbox(Sandbox::new(&record, surface.domain.as_deref())),
        Err(error) => Forked::Error(ApiError::from(error).body()),
    });
    Ok((StatusCode::CREATED, Json(copies.collect())))
}
