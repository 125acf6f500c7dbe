//! Volumes: made, listed, deleted, and the tokens for what is in them.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use sandboxo_model::VolumeRecord;
use serde::{Deserialize, Serialize};

use crate::{ApiError, Surface, body::Body, caller::Caller};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/volumes", get(list).post(create))
        .route("/volumes/{id}", get(show).delete(delete))
}

#[derive(Serialize)]
struct Volume {
    #[serde(rename = "volumeID")]
    id: String,
    name: String,
}

#[derive(Serialize)]
struct VolumeAndToken {
    #[serde(flatten)]
    volume: Volume,
    /// For the files in it.
    token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewVolume {
    name: String,
    /// Whose files it begins with, by name or id.
    from_volume: Option<String>,
}

impl From<&VolumeRecord> for Volume {
    fn from(record: &VolumeRecord) -> Self {
        Self { id: record.id.to_string(), name: record.name.to_string() }
    }
}

fn with_token(surface: &Surface, record: &VolumeRecord) -> VolumeAndToken {
    VolumeAndToken { volume: record.into(), token: surface.control.volumes.token(record) }
}

async fn list(State(surface): State<Surface>, caller: Caller) -> Json<Vec<Volume>> {
    let volumes = surface.control.volumes.list(caller.team);
    Json(volumes.iter().map(Arc::as_ref).map(Volume::from).collect())
}

async fn create(
    State(surface): State<Surface>,
    caller: Caller,
    Body(NewVolume { name, from_volume }): Body<NewVolume>,
) -> Result<(StatusCode, Json<VolumeAndToken>), ApiError> {
    let made = surface.control.volumes.create(caller.team, &name, from_volume.as_deref()).await?;
    Ok((StatusCode::CREATED, Json(with_token(&surface, &made))))
}

async fn show(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<VolumeAndToken>, ApiError> {
    let found = surface.control.volumes.get(caller.team, &id);
    let found = found.ok_or_else(|| ApiError::NotFound(format!("volume '{id}' not found")))?;
    Ok(Json(with_token(&surface, &found)))
}

async fn delete(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    surface.control.volumes.delete(caller.team, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
