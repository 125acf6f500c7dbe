//! Secrets: stored, listed, replaced, deleted, and never told.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL},
    middleware,
    response::Response,
    routing::get,
};
use sandboxo_model::SecretRecord;
use sandboxo_zone_protocol::{Secret as Value, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    ApiError, Surface,
    body::Body,
    caller::Caller,
    query::{Asked, Paging},
};

const MAX_BODY_BYTES: usize = 512 << 10;

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/secrets", get(list).post(create))
        .route("/secrets/{secret}", get(show).post(update).delete(delete))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::map_response(not_to_keep))
}

async fn not_to_keep(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    #[serde(rename = "secretID")]
    id: String,
    name: String,
    current_version: u64,
    metadata: BTreeMap<String, String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl From<&SecretRecord> for Secret {
    fn from(record: &SecretRecord) -> Self {
        Self {
            id: record.id.to_string(),
            name: record.name.to_string(),
            current_version: record.version,
            metadata: record.metadata.clone(),
            created_at: record.created_at,
            updated_at: record.updated_at,
        }
    }
}

#[derive(Deserialize)]
struct NewSecret {
    name: String,
    value: Value,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct SecretUpdate {
    value: Value,
    metadata: Option<BTreeMap<String, String>>,
}

async fn list(
    State(surface): State<Surface>,
    caller: Caller,
    Asked(paging): Asked<Paging>,
) -> Result<(HeaderMap, Json<Vec<Secret>>), ApiError> {
    let (limit, after) = paging.split()?;
    let page = surface.control.secrets.list(caller.team, limit, after.as_deref())?;
    let mut headers = HeaderMap::new();
    if let Some(next) = page.next.and_then(|next| next.to_string().parse().ok()) {
        headers.insert("x-next-token", next);
    }
    Ok((headers, Json(page.items.iter().map(Arc::as_ref).map(Secret::from).collect())))
}

async fn create(
    State(surface): State<Surface>,
    caller: Caller,
    Body(NewSecret { name, value, metadata }): Body<NewSecret>,
) -> Result<(StatusCode, Json<Secret>), ApiError> {
    let secrets = &surface.control.secrets;
    let metadata = metadata.unwrap_or_default();
    let made = secrets.create(caller.team, &name, value.expose(), metadata).await?;
    Ok((StatusCode::CREATED, Json((&*made).into())))
}

async fn show(
    State(surface): State<Surface>,
    caller: Caller,
    Path(secret): Path<String>,
) -> Result<Json<Secret>, ApiError> {
    let found = surface.control.secrets.get(caller.team, &secret);
    let found = found.ok_or_else(|| ApiError::NotFound(format!("secret '{secret}' not found")))?;
    Ok(Json((&*found).into()))
}

async fn update(
    State(surface): State<Surface>,
    caller: Caller,
    Path(secret): Path<String>,
    Body(SecretUpdate { value, metadata }): Body<SecretUpdate>,
) -> Result<Json<Secret>, ApiError> {
    let secrets = &surface.control.secrets;
    let updated = secrets.update(caller.team, &secret, value.expose(), metadata).await?;
    Ok(Json((&*updated).into()))
}

async fn delete(
    State(surface): State<Surface>,
    caller: Caller,
    Path(secret): Path<String>,
) -> Result<StatusCode, ApiError> {
    surface.control.secrets.delete(caller.team, &secret).await?;
    Ok(StatusCode::NO_CONTENT)
}
