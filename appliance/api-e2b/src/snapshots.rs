//! Snapshots: taken of a sandbox, listed. Clients delete them as templates.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use sandboxo_zone_protocol::Kept;
use serde::Deserialize;

use crate::{
    ApiError, Surface,
    body::{Body, Id},
    caller::Caller,
    query::{Asked, Snapshots},
    view::SnapshotInfo,
};

pub(crate) fn router() -> Router<Surface> {
    Router::new().route("/sandboxes/{id}/snapshots", post(take)).route("/snapshots", get(list))
}

#[derive(Deserialize)]
struct Take {
    name: Option<String>,
    memory: Option<bool>,
}

async fn take(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(Take { name, memory }): Body<Take>,
) -> Result<(StatusCode, Json<SnapshotInfo>), ApiError> {
    let kept = if memory == Some(false) { Kept::Files } else { Kept::Memory };
    let sandboxes = &surface.control.sandboxes;
    let taken = sandboxes.snapshot(caller.team, id, name.as_deref(), kept).await?;
    Ok((StatusCode::CREATED, Json(taken.into())))
}

async fn list(
    State(surface): State<Surface>,
    caller: Caller,
    Asked(asked): Asked<Snapshots>,
) -> Result<(HeaderMap, Json<Vec<SnapshotInfo>>), ApiError> {
    let mut headers = HeaderMap::new();
    let Some(query) = asked.query()? else { return Ok((headers, Json(Vec::new()))) };
    let page = surface.control.snapshots.list(caller.team, query)?;
    if let Some(next) = page.next.and_then(|next| next.to_string().parse().ok()) {
        headers.insert("x-next-token", next);
    }
    Ok((headers, Json(page.items.into_iter().map(SnapshotInfo::from).collect())))
}
