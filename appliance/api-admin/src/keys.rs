//! `/keys`: API keys of a team.

use axum::{
    Json,
    extract::{Path, State, rejection::JsonRejection},
    http::StatusCode,
};
use sandboxo_control::Scope;
use sandboxo_model::{ApiKeyRecord, KeyMask};
use sandboxo_zone_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AdminError, Operator, Surface};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    id: String,
    team: String,
    name: String,
    mask: String,
    created_at: Timestamp,
    /// Only ever in the answer to its making.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct New {
    name: String,
    /// A team's name; the first one's when there is none.
    team: Option<String>,
}

pub(crate) async fn list(State(surface): State<Surface>, _: Operator) -> Json<Vec<View>> {
    let keys = surface.control.keys.list(Scope::Operator);
    Json(keys.iter().map(|key| view(&surface, key, None)).collect())
}

pub(crate) async fn create(
    State(surface): State<Surface>,
    _: Operator,
    body: Result<Json<New>, JsonRejection>,
) -> Result<(StatusCode, Json<View>), AdminError> {
    let Json(New { name, team }) =
        body.map_err(|rejection| AdminError::Invalid(rejection.body_text()))?;
    let team = crate::templates::team(&surface, team.as_deref())?;
    let new = surface.control.keys.create(team, &name).await?;
    let key = new.secret.expose().to_owned();
    Ok((StatusCode::CREATED, Json(view(&surface, &new.record, Some(key)))))
}

pub(crate) async fn revoke(
    State(surface): State<Surface>,
    _: Operator,
    Path(id): Path<String>,
) -> Result<StatusCode, AdminError> {
    let unknown = || AdminError::NotFound(format!("key '{id}' not found"));
    let parsed = id.parse().map_err(|_not_an_id| unknown())?;
    match surface.control.keys.revoke(Scope::Operator, parsed).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err(unknown()),
        Err(source) => Err(AdminError::Internal(source.into())),
    }
}

fn view(surface: &Surface, record: &ApiKeyRecord, key: Option<String>) -> View {
    let ApiKeyRecord { id, team, name, hash: _, mask, created_at } = record;
    let KeyMask { prefix, value_length: _, first, last } = mask;
    let team = surface.control.keys.team(*team);
    View {
        id: id.to_string(),
        team: team.map(|team| team.name.clone()).unwrap_or_default(),
        name: name.clone(),
        mask: format!("{prefix}{first}…{last}"),
        created_at: *created_at,
        key,
    }
}
