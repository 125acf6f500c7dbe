//! `/templates`: every team's, and imports of root file systems and images.

use axum::{
    Json,
    body::Body,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::StatusCode,
};
use futures_util::TryStreamExt as _;
use sandboxo_control::{DeleteTemplateError, ImportTemplate, Scope};
use sandboxo_model::{SnapshotRecord, TeamRecord, TemplateRecord, TemplateRef};
use sandboxo_zone_protocol::{Platform, Resources, TeamId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_util::io::StreamReader;

use crate::{AdminError, Operator, Surface};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    id: String,
    team: String,
    name: String,
    public: bool,
    image: String,
    /// Of one that is built: not told.
    size_bytes: Option<u64>,
    image_names: Vec<String>,
    vcpus: u32,
    memory_mib: u32,
    disk_mib: u32,
    platform: &'static str,
    user: String,
    workdir: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Import {
    name: String,
    team: Option<String>,
    public: Option<bool>,
    vcpus: Option<u32>,
    memory_mib: Option<u32>,
    disk_mib: Option<u32>,
    platform: Option<Platform>,
    user: Option<String>,
    workdir: Option<String>,
    /// Comma between them.
    image: Option<String>,
}

pub(crate) async fn list(State(surface): State<Surface>, _: Operator) -> Json<Vec<View>> {
    let templates = surface.control.templates.list(Scope::Operator);
    let built = surface.control.builds.templates(Scope::Operator);
    let imported = templates.iter().map(|record| view(&surface, record));
    Json(imported.chain(built.iter().filter_map(|record| built_view(&surface, record))).collect())
}

/// The body is a tar stream, gzipped or not, of any size: a root file system, or one image.
pub(crate) async fn import(
    State(surface): State<Surface>,
    _: Operator,
    query: Result<Query<Import>, QueryRejection>,
    body: Body,
) -> Result<(StatusCode, Json<View>), AdminError> {
    let Query(asked) = query.map_err(|rejection| AdminError::Invalid(rejection.body_text()))?;
    let Import {
        name,
        team: team_name,
        public,
        vcpus,
        memory_mib,
        disk_mib,
        platform,
        user,
        workdir,
        image,
    } = asked;
    let team = team(&surface, team_name.as_deref())?;
    let mut import = ImportTemplate::new(name);
    let Resources { vcpus: cpus, memory_mib: memory, disk_mib: disk, pids } = import.resources;
    import.resources = Resources {
        vcpus: vcpus.unwrap_or(cpus),
        memory_mib: memory_mib.unwrap_or(memory),
        disk_mib: disk_mib.unwrap_or(disk),
        pids,
    };
    import.platform = platform.unwrap_or(import.platform);
    import.public = public.unwrap_or(import.public);
    import.user = user;
    import.workdir = workdir.or(import.workdir);
    let images = image.unwrap_or_default();
    import.image_names =
        images.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let tar = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    let record = surface.control.templates.import(team, import, Box::new(tar)).await?;
    Ok((StatusCode::CREATED, Json(view(&surface, &record))))
}

pub(crate) async fn delete(
    State(surface): State<Surface>,
    _: Operator,
    Path(name): Path<String>,
) -> Result<StatusCode, AdminError> {
    match surface.control.templates.delete(Scope::Operator, &name).await {
        Err(DeleteTemplateError::NotFound(_)) => {
            surface.control.builds.delete(Scope::Operator, &name).await?;
        }
        done => done?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// By name; without one the team that every appliance begins with.
pub(crate) fn team(surface: &Surface, name: Option<&str>) -> Result<TeamId, AdminError> {
    let name = name.unwrap_or(TeamRecord::DEFAULT);
    let teams = surface.control.keys.teams();
    let team = teams.iter().find(|team| team.name == name);
    team.map(|team| team.id).ok_or_else(|| AdminError::Invalid(format!("team: no team {name:?}")))
}

/// The version that is meant without a tag, or the newest. `None`: there is none yet.
fn built_view(surface: &Surface, record: &SnapshotRecord) -> Option<View> {
    let newest = || record.builds.values().max_by_key(|build| build.at);
    let build = record.builds.get(TemplateRef::DEFAULT_TAG).or_else(newest)?;
    let team = surface.control.keys.team(record.team);
    Some(View {
        id: record.id.to_string(),
        team: team.map(|team| team.name.clone()).unwrap_or_default(),
        name: record.name.as_ref().map(ToString::to_string).unwrap_or_default(),
        public: record.public,
        image: build.image.to_string(),
        size_bytes: None,
        image_names: Vec::new(),
        vcpus: build.resources.vcpus,
        memory_mib: build.resources.memory_mib,
        disk_mib: build.resources.disk_mib,
        platform: build.platform.name(),
        user: build.user.clone(),
        workdir: build.workdir.clone(),
        created_at: record.created_at,
        updated_at: build.at,
    })
}

fn view(surface: &Surface, record: &TemplateRecord) -> View {
    let TemplateRecord {
        id,
        team,
        name,
        public,
        image,
        image_bytes,
        image_names,
        build: _,
        resources,
        platform,
        env: _,
        user,
        workdir,
        created_at,
        updated_at,
    } = record;
    let team = surface.control.keys.team(*team);
    View {
        id: id.to_string(),
        team: team.map(|team| team.name.clone()).unwrap_or_default(),
        name: name.to_string(),
        public: *public,
        image: image.to_string(),
        size_bytes: Some(*image_bytes),
        image_names: image_names.iter().map(ToString::to_string).collect(),
        vcpus: resources.vcpus,
        memory_mib: resources.memory_mib,
        disk_mib: resources.disk_mib,
        platform: platform.name(),
        user: user.clone(),
        workdir: workdir.clone(),
        created_at: *created_at,
        updated_at: *updated_at,
    }
}
