//! The log of a sandbox, also of one that has ended.

use axum::{Json, extract::State};
use sandboxo_model::{LogEntry, LogQuery};

use crate::{
    ApiError, Surface,
    body::{Id, no_sandbox},
    caller::Caller,
    query::{Asked, Logs, LogsSince},
    view::{LogLines, LogPage},
};

pub(super) async fn v1(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<LogsSince>,
) -> Result<Json<LogLines>, ApiError> {
    let found = read(&surface, &caller, Id(id), asked.try_into()?).await?;
    Ok(Json(LogLines::of(found)))
}

pub(super) async fn v2(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<Logs>,
) -> Result<Json<LogPage>, ApiError> {
    let found = read(&surface, &caller, Id(id), asked.try_into()?).await?;
    Ok(Json(LogPage::of(found)))
}

async fn read(
    surface: &Surface,
    caller: &Caller,
    Id(id): Id,
    query: LogQuery,
) -> Result<Vec<LogEntry>, ApiError> {
    let found = surface.control.sandboxes.logs(caller.team, id, query).await?;
    found.ok_or_else(|| no_sandbox(&format!("'{}'", id.label())))
}
