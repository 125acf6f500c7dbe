//! Measurements of one sandbox in a range of time, and the latest of several.

use axum::{Json, extract::State};
use serde::Deserialize;

use crate::{
    ApiError, Surface,
    body::{Id, no_sandbox, sandbox_id},
    caller::Caller,
    query::{Asked, Range},
    view::{LatestMetrics, Metric},
};

pub(super) async fn range(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Asked(range): Asked<Range>,
) -> Result<Json<Vec<Metric>>, ApiError> {
    let range = range.try_into()?;
    let metrics = surface.control.sandboxes.metrics(caller.team, id, range).await?;
    let metrics = metrics.ok_or_else(|| no_sandbox(&format!("'{}'", id.label())))?;
    Ok(Json(Metric::all(&metrics)))
}

#[derive(Deserialize)]
pub(super) struct Ids {
    #[serde(default)]
    sandbox_ids: String,
}

const MAX_IDS: usize = 100;

pub(super) async fn latest(
    State(surface): State<Surface>,
    caller: Caller,
    Asked(Ids { sandbox_ids }): Asked<Ids>,
) -> Result<Json<LatestMetrics>, ApiError> {
    let ids: Vec<_> = sandbox_ids.split(',').filter_map(sandbox_id).collect();
    if ids.len() > MAX_IDS {
        return Err(ApiError::Invalid(format!("sandbox_ids: must be at most {MAX_IDS}")));
    }
    let latest = surface.control.sandboxes.latest_metrics(caller.team, &ids);
    let sandboxes = latest
        .into_iter()
        .filter_map(|(id, metrics)| Some((id.label(), Metric::all(&metrics).pop()?)))
        .collect();
    Ok(Json(LatestMetrics { sandboxes }))
}
