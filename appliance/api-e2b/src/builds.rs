//! Builds of templates: requested, fed with files, started, looked at; and the tags of what they
//! make.

use axum::{
    Json, Router,
    body::Body as RawBody,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, Uri, header::HOST},
    routing::{get, post, put},
};
use futures_util::TryStreamExt as _;
use sandboxo_control::NewBuild;
use sandboxo_model::{FilesHash, From as BuiltFrom, Recipe, Step};
use sandboxo_zone_protocol::{BuildId, Credentials, Secret, TemplateId};
use serde::Deserialize;
use tokio_util::io::StreamReader;

use crate::{
    ApiError, Surface,
    body::Body,
    caller::Caller,
    query::Asked,
    view::builds::{AssignedTags, BuildInfo, BuildLogs, FileUpload, RequestedBuild, TemplateTag},
};

/// Lines of one answer.
const MAX_LINES: usize = 100;

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/v3/templates", post(request))
        .route("/templates/{id}/files/{hash}", get(link))
        // No key: the link is the proof.
        .route("/templates/uploads/{hash}", put(upload))
        .route("/v2/templates/{id}/builds/{build}", post(start))
        .route("/templates/{id}/builds/{build}/status", get(status))
        .route("/templates/{id}/builds/{build}/logs", get(logs))
        .route("/templates/tags", post(tag).delete(untag))
        .route("/templates/{id}/tags", get(tags))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestBody {
    name: Option<String>,
    /// What old clients call it.
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
}

async fn request(
    State(surface): State<Surface>,
    caller: Caller,
    Body(body): Body<RequestBody>,
) -> Result<(StatusCode, Json<RequestedBuild>), ApiError> {
    let RequestBody { name, alias, tags, cpu_count, memory_mb } = body;
    let name = name.or(alias).ok_or_else(|| ApiError::Invalid("name: is missing".into()))?;
    let new =
        NewBuild { name, tags: tags.unwrap_or_default(), vcpus: cpu_count, memory_mib: memory_mb };
    let requested = surface.control.builds.request(caller.team, new).await?;
    Ok((StatusCode::ACCEPTED, Json(requested.into())))
}

async fn link(
    State(surface): State<Surface>,
    caller: Caller,
    Path((id, hash)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<FileUpload>), ApiError> {
    let hash = hash_of(&hash)?;
    let link = surface.control.builds.link(caller.team, &id, &hash).await;
    let link = link.ok_or_else(|| not_found(&id))?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = uri.host().or_else(|| text(HOST.as_str()));
    let host = host.ok_or_else(|| ApiError::Invalid("the request names no host".into()))?;
    // Set by whatever ends TLS in front of this.
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    let url = format!("{scheme}://{host}/templates/uploads/{}?proof={}", hash.as_str(), link.proof);
    Ok((StatusCode::CREATED, Json(FileUpload { present: link.is_there, url })))
}

#[derive(Deserialize)]
struct Proof {
    proof: String,
}

async fn upload(
    State(surface): State<Surface>,
    Path(hash): Path<String>,
    Query(Proof { proof }): Query<Proof>,
    body: RawBody,
) -> Result<StatusCode, ApiError> {
    let hash = hash_of(&hash)?;
    let bytes = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    surface.control.builds.upload(&proof, &hash, bytes).await?;
    Ok(StatusCode::OK)
}

fn hash_of(text: &str) -> Result<FilesHash, ApiError> {
    text.parse().map_err(|error: sandboxo_model::NotAHash| ApiError::Invalid(error.to_string()))
}

/// Fields that only the client minds, such as `forceUpload`, are left alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartBody {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<RegistryBody>,
    #[serde(default)]
    steps: Vec<StepBody>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
    #[serde(default)]
    force: bool,
}

/// Who may have the image.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum RegistryBody {
    Registry {
        username: String,
        password: Secret,
    },
    /// Short credentials would have to be asked for with these, at the cloud's own API.
    Aws,
    Gcp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepBody {
    r#type: String,
    #[serde(default)]
    args: Vec<String>,
    files_hash: Option<String>,
    #[serde(default)]
    force: bool,
}

async fn start(
    State(surface): State<Surface>,
    caller: Caller,
    Path((id, build)): Path<(String, String)>,
    Body(body): Body<StartBody>,
) -> Result<StatusCode, ApiError> {
    let (template, build) = ids(&id, &build)?;
    let (recipe, credentials) = recipe(body)?;
    surface.control.builds.start(caller.team, template, build, recipe, credentials).await?;
    Ok(StatusCode::ACCEPTED)
}

fn recipe(body: StartBody) -> Result<(Recipe, Option<Credentials>), ApiError> {
    let StartBody {
        from_image,
        from_template,
        from_image_registry,
        steps,
        start_cmd,
        ready_cmd,
        force,
    } = body;
    let credentials = match from_image_registry {
        None => None,
        Some(RegistryBody::Registry { username: user, password }) => {
            Some(Credentials { user, password })
        }
        Some(RegistryBody::Aws | RegistryBody::Gcp) => {
            return Err(ApiError::NotOffered(
                "fromImageRegistry: this version takes a user name and a password (type \
                 \"registry\") and no account of a cloud"
                    .into(),
            ));
        }
    };
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let from = match (filled(from_image), filled(from_template)) {
        (Some(image), None) => {
            let name = image.parse().map_err(|error: sandboxo_model::NotAnImageName| {
                ApiError::Invalid(format!("fromImage: {error}"))
            });
            match &credentials {
                Some(_) => BuiltFrom::PrivateImage(name?),
                None => BuiltFrom::Image(name?),
            }
        }
        (None, Some(template)) => BuiltFrom::Template(template),
        (None, None) => {
            return Err(ApiError::Invalid("fromImage or fromTemplate has to be given".into()));
        }
        (Some(_), Some(_)) => {
            return Err(ApiError::Invalid("fromImage and fromTemplate exclude each other".into()));
        }
    };
    let step = |StepBody { r#type, args, files_hash, force }: StepBody| {
        let files = filled(files_hash).map(|hash| hash_of(&hash)).transpose()?;
        Ok::<_, ApiError>(Step { kind: r#type.to_ascii_uppercase(), args, files, force })
    };
    let steps = steps.into_iter().map(step).collect::<Result<_, _>>()?;
    let (start, ready) = (filled(start_cmd), filled(ready_cmd));
    Ok((Recipe { from, steps, start, ready, force }, credentials))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    logs_offset: Option<usize>,
    limit: Option<usize>,
}

async fn status(
    State(surface): State<Surface>,
    caller: Caller,
    Path((id, build)): Path<(String, String)>,
    Asked(Page { logs_offset, limit }): Asked<Page>,
) -> Result<Json<BuildInfo>, ApiError> {
    let (template, build) = ids(&id, &build)?;
    let limit = limit.unwrap_or(MAX_LINES).min(MAX_LINES);
    let builds = &surface.control.builds;
    let offset = logs_offset.unwrap_or(0);
    let status = builds.status(caller.team, template, build, offset, limit).await?;
    Ok(Json(status.into()))
}

async fn logs(
    State(surface): State<Surface>,
    caller: Caller,
    Path((id, build)): Path<(String, String)>,
) -> Result<Json<BuildLogs>, ApiError> {
    let (template, build) = ids(&id, &build)?;
    let builds = &surface.control.builds;
    let status = builds.status(caller.team, template, build, 0, MAX_LINES).await?;
    Ok(Json(status.into()))
}

fn ids(template: &str, build: &str) -> Result<(TemplateId, BuildId), ApiError> {
    let not_found =
        || ApiError::NotFound(format!("build '{build}' of template '{template}' not found"));
    Ok((
        template.parse().map_err(|_other| not_found())?,
        build.parse().map_err(|_other| not_found())?,
    ))
}

#[derive(Deserialize)]
struct TagBody {
    target: String,
    tags: Vec<String>,
}

async fn tag(
    State(surface): State<Surface>,
    caller: Caller,
    Body(TagBody { target, tags }): Body<TagBody>,
) -> Result<(StatusCode, Json<AssignedTags>), ApiError> {
    let (build, tags) = surface.control.builds.tag(caller.team, &target, tags).await?;
    Ok((StatusCode::CREATED, Json(AssignedTags { tags, build_id: build.to_string() })))
}

#[derive(Deserialize)]
struct UntagBody {
    name: String,
    tags: Vec<String>,
}

async fn untag(
    State(surface): State<Surface>,
    caller: Caller,
    Body(UntagBody { name, tags }): Body<UntagBody>,
) -> Result<StatusCode, ApiError> {
    surface.control.builds.untag(caller.team, &name, tags).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn tags(
    State(surface): State<Surface>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Vec<TemplateTag>>, ApiError> {
    let tags = surface.control.builds.tags(caller.team, &id).ok_or_else(|| not_found(&id))?;
    Ok(Json(tags.into_iter().map(TemplateTag::from).collect()))
}

fn not_found(text: &str) -> ApiError {
    ApiError::NotFound(format!("template '{text}' not found"))
}
