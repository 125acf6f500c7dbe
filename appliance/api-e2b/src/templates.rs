//! The routes under `/templates`: what there is, by which names.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use sandboxo_control::DeleteTemplateError;
use sandboxo_model::{SnapshotRecord, TemplateRecord};

use crate::{
    ApiError, Surface,
    caller::Caller,
    error,
    view::{Alias, Template, TemplateWithBuilds},
};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/templates", get(list))
        .route("/v2/templates", get(list))
        .route("/templates/{id}", get(one).delete(delete).patch(error::not_offered))
        .route("/templates/aliases/{alias}", get(alias))
}

async fn list(State(surface): State<Surface>, caller: Caller) -> Json<Vec<Template>> {
    let templates = surface.control.templates.list(caller.team);
    let built = surface.control.builds.templates(caller.team);
    let imported = templates.iter().map(|record| view(&surface, record));
    Json(imported.chain(built.iter().map(|record| built_view(&surface, record))).collect())
}

async fn one(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<TemplateWithBuilds>, ApiError> {
    let own = surface.control.builds.template(caller.team, &id);
    if let Some(record) = own {
        return Ok(Json(TemplateWithBuilds::new(built_view(&surface, &record))));
    }
    let record = surface.control.templates.resolve(caller.team, &id);
    let record = record.ok_or_else(|| not_found(&id))?;
    Ok(Json(TemplateWithBuilds::new(view(&surface, &record))))
}

/// Also of a snapshot, which clients know as a template.
async fn delete(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    match surface.control.templates.delete(caller.team, &id).await {
        Ok(()) => {}
        Err(DeleteTemplateError::NotFound(_)) => {
            match surface.control.builds.delete(caller.team, &id).await {
                Err(DeleteTemplateError::NotFound(_)) => {
                    surface.control.snapshots.delete(caller.team, &id).await?;
                }
                done => done?,
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Clients ask whether a name is taken: 403 says by another team.
async fn alias(
    State(surface): State<Surface>,
    caller: Caller,
    Path(alias): Path<String>,
) -> Result<Json<Alias>, ApiError> {
    let templates = &surface.control.templates;
    if let Some(record) = surface.control.builds.template(caller.team, &alias) {
        return Ok(Json(Alias { template_id: record.id.to_string(), public: false }));
    }
    if let Some(record) = templates.resolve(caller.team, &alias) {
        return Ok(Json(Alias { template_id: record.id.to_string(), public: record.public }));
    }
    if templates.is_foreign(caller.team, &alias) {
        return Err(ApiError::Forbidden(format!("template '{alias}' belongs to another team")));
    }
    Err(not_found(&alias))
}

fn view(surface: &Surface, record: &TemplateRecord) -> Template {
    Template::new(record, surface.control.templates.full_name(record))
}

fn built_view(surface: &Surface, record: &SnapshotRecord) -> Template {
    Template::built(record, surface.control.builds.full_name(record))
}

fn not_found(text: &str) -> ApiError {
    ApiError::NotFound(format!("template '{text}' not found"))
}
