//! The routes under `/sandboxes`.

mod create;
mod fork;
mod life;
mod list;
mod logs;
mod metrics;
mod network;
mod sleep;

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post, put},
};

use crate::{
    ApiError, Surface,
    body::{Id, no_sandbox},
    caller::Caller,
    view::Detail,
};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/sandboxes", get(list::running).post(create::v1))
        .route("/v2/sandboxes", get(list::page).post(create::v2))
        .route("/sandboxes/metrics", get(metrics::latest))
        .route("/sandboxes/{id}", get(detail).delete(kill))
        .route("/sandboxes/{id}/timeout", post(life::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(life::refresh))
        .route("/sandboxes/{id}/pause", post(sleep::pause))
        .route("/sandboxes/{id}/resume", post(sleep::resume))
        .route("/sandboxes/{id}/connect", post(sleep::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(sleep::connect_v2))
        .route("/sandboxes/{id}/fork", post(fork::fork))
        .route("/sandboxes/{id}/network", put(network::replace))
        .route("/sandboxes/{id}/metrics", get(metrics::range))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
}

async fn detail(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
) -> Result<Json<Detail>, ApiError> {
    let record = surface.control.sandboxes.get(caller.team, id);
    let record = record.ok_or_else(|| no_sandbox(&format!("'{}'", id.label())))?;
    let now = surface.control.sandboxes.now();
    Ok(Json(Detail::new(&record, surface.domain.as_deref(), now)))
}

async fn kill(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
) -> Result<StatusCode, ApiError> {
    surface.control.sandboxes.kill(caller.team, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
