//! The routes under `/templates`: what there is, by which names.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, patch},
};
use sandboxo_control::{DeleteTemplateError, PublishError};
use sandboxo_model::TemplateRecord;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    ApiError, Surface,
    body::Body,
    caller::Caller,
    view::{Alias, PublishedTemplate, Template, TemplateWithBuilds},
};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/templates", get(list))
        .route("/v2/templates", get(list))
        .route("/templates/{id}", get(one).delete(delete).patch(publish_old))
        .route("/v2/templates/{id}", patch(publish))
        .route("/templates/aliases/{alias}", get(alias))
}

async fn list(
    State(surface): State<Surface>,
    caller: Caller,
) -> Result<Json<Vec<Template>>, ApiError> {
    let templates = surface.control.templates.list(caller.team);
    let builds = &surface.control.builds;
    let newest = builds.newest(caller.team).await?;
    let mut all: Vec<_> = templates.iter().map(|record| view(&surface, record)).collect();
    for record in builds.templates(caller.team) {
        let name = builds.full_name(&record);
        all.push(Template::built(&record, name, newest.get(&record.id)));
    }
    Ok(Json(all))
}

async fn one(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<TemplateWithBuilds>, ApiError> {
    let builds = &surface.control.builds;
    if let Some(record) = builds.template(caller.team, &id) {
        let newest = builds.newest(caller.team).await?;
        let name = builds.full_name(&record);
        let template = Template::built(&record, name, newest.get(&record.id));
        return Ok(Json(TemplateWithBuilds::new(template)));
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

#[derive(Deserialize)]
struct PublishBody {
    public: Option<bool>,
}

async fn publish(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
    Body(PublishBody { public }): Body<PublishBody>,
) -> Result<Json<PublishedTemplate>, ApiError> {
    let (templates, builds) = (&surface.control.templates, &surface.control.builds);
    let not_found = || not_found(&id);
    // Nothing else of a template can be changed this way.
    let Some(public) = public else {
        let imported = templates.resolve(caller.team, &id).filter(|it| it.team == caller.team);
        let imported = imported.map(|record| templates.full_name(&record));
        let built = || builds.template(caller.team, &id).map(|record| builds.full_name(&record));
        let name = imported.or_else(built).ok_or_else(not_found)?;
        return Ok(Json(PublishedTemplate { names: vec![name] }));
    };
    let name = match templates.publish(caller.team, &id, public).await {
        Ok(record) => templates.full_name(&record),
        Err(PublishError::NotFound(_)) => {
            builds.full_name(&*builds.publish(caller.team, &id, public).await?)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Json(PublishedTemplate { names: vec![name] }))
}

/// As old clients read it.
async fn publish_old(
    surface: State<Surface>,
    caller: Caller,
    id: Path<String>,
    body: Body<PublishBody>,
) -> Result<Json<Value>, ApiError> {
    publish(surface, caller, id, body).await.map(|_names| Json(json!({})))
}

/// Clients ask whether a name is taken: 403 says by another team.
async fn alias(
    State(surface): State<Surface>,
    caller: Caller,
    Path(alias): Path<String>,
) -> Result<Json<Alias>, ApiError> {
    let templates = &surface.control.templates;
    if let Some(record) = surface.control.builds.template(caller.team, &alias) {
        return Ok(Json(Alias { template_id: record.id.to_string(), public: record.public }));
    }
    if let Some(record) = templates.resolve(caller.team, &alias) {
        return Ok(Json(Alias { template_id: record.id.to_string(), public: record.public }));
    }
    if let Some(record) = surface.control.builds.usable(caller.team, &alias) {
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

fn not_found(text: &str) -> ApiError {
    ApiError::NotFound(format!("template '{text}' not found"))
}
