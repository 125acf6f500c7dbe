//! JSON that E2B clients see. Fields are not left out where the Python models require them.

pub(crate) mod builds;
mod iam;
mod logs;
mod network;

use std::collections::{BTreeMap, BTreeSet};

use sandboxo_control::Metrics;
use sandboxo_model::{
    BuildPhase, BuildRecord, Lifecycle, MountAsked, Phase, SandboxRecord, SnapshotRecord, Standing,
    TemplateRecord, TemplateRef, TemplateUse, resources,
};
use sandboxo_zone_protocol::{BuildId, Kept, Measured, OnDeadline, Secret, Timestamp, VolumeMount};
use serde::{Deserialize, Serialize};

use crate::ENVD_VERSION;

pub(crate) use iam::Iam;
pub(crate) use logs::{LogLines, LogPage};
pub(crate) use network::NetworkBody;
use network::NetworkView;

/// The field is from an older kind of id; clients require it and do nothing with it.
const CLIENT_ID: &str = "sandboxo";

/// The answer to create and connect.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the contract's")]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: &'static str,
    alias: Option<String>,
    envd_access_token: Option<String>,
    traffic_access_token: Option<String>,
    domain: Option<String>,
}

impl Sandbox {
    pub(crate) fn new(record: &SandboxRecord, domain: Option<&str>) -> Self {
        let TemplateUse { id, alias } = &record.template;
        let expose = |secret: &Secret| secret.expose().to_owned();
        Self {
            template_id: id.to_string(),
            sandbox_id: record.id.label(),
            client_id: CLIENT_ID,
            envd_version: ENVD_VERSION,
            alias: alias.clone(),
            envd_access_token: record.spec.agent_token.as_ref().map(expose),
            traffic_access_token: record.ingress.traffic_token.as_ref().map(expose),
            domain: domain.map(str::to_owned),
        }
    }
}

/// What became of one copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Forked {
    Sandbox(Sandbox),
    Error(crate::error::Body),
}

#[derive(Serialize)]
pub(crate) struct SnapshotInfo {
    #[serde(rename = "snapshotID")]
    snapshot_id: String,
    names: Vec<String>,
}

impl From<sandboxo_control::Snapshot> for SnapshotInfo {
    fn from(sandboxo_control::Snapshot { id, names }: sandboxo_control::Snapshot) -> Self {
        Self { snapshot_id: id, names }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    alias: Option<String>,
    started_at: Timestamp,
    end_at: Timestamp,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    state: &'static str,
    envd_version: &'static str,
    metadata: BTreeMap<String, String>,
    volume_mounts: Vec<Mount>,
}

/// A volume, by its name, in a sandbox.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mount {
    name: String,
    path: String,
}

impl From<&VolumeMount> for Mount {
    fn from(VolumeMount { volume: _, name, path }: &VolumeMount) -> Self {
        Self { name: name.clone(), path: path.to_string() }
    }
}

impl From<Mount> for MountAsked {
    fn from(Mount { name, path }: Mount) -> Self {
        Self { name, path }
    }
}

impl Listed {
    pub(crate) fn new(record: &SandboxRecord, now: Timestamp) -> Self {
        let SandboxRecord {
            id,
            team: _,
            template: TemplateUse { id: template, alias },
            zone: _,
            spec,
            timeout: _,
            metadata,
            internet: _,
            network: _,
            ingress: _,
            identity: _,
            auto_resume: _,
            created_at: _,
            phase,
        } = record;
        Self {
            template_id: template.to_string(),
            sandbox_id: id.label(),
            client_id: CLIENT_ID,
            alias: alias.clone(),
            started_at: record.started_at(),
            end_at: match phase {
                Phase::Running { expires_at, .. } | Phase::Pausing { expires_at, .. } => {
                    *expires_at
                }
                Phase::Paused { paused_at, .. } | Phase::Resuming { paused_at, .. } => *paused_at,
                Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. } => {
                    spec.deadline
                }
            },
            cpu_count: spec.resources.vcpus,
            memory_mb: spec.resources.memory_mib,
            disk_size_mb: spec.resources.disk_mib,
            state: match record.standing(now) {
                Standing::Asleep => "paused",
                Standing::Usable { .. } | Standing::Gone => "running",
            },
            envd_version: ENVD_VERSION,
            metadata: metadata.clone(),
            volume_mounts: spec.volumes.iter().map(Mount::from).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    listed: Listed,
    envd_access_token: Option<String>,
    allow_internet_access: Option<bool>,
    domain: Option<String>,
    /// Left out rather than null: the Python model has no null here.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkView>,
    lifecycle: LifecycleView,
    /// What the pause that it is in has kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_mode: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LifecycleView {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl Detail {
    pub(crate) fn new(record: &SandboxRecord, domain: Option<&str>, now: Timestamp) -> Self {
        Self {
            listed: Listed::new(record, now),
            envd_access_token: record.spec.agent_token.as_ref().map(|it| it.expose().to_owned()),
            allow_internet_access: record.internet,
            domain: domain.map(str::to_owned),
            network: record.network.as_ref().map(NetworkView::from),
            lifecycle: LifecycleView {
                auto_resume: record.auto_resume,
                on_timeout: match record.spec.on_deadline {
                    OnDeadline::Kill => "kill",
                    OnDeadline::Pause(_) => "pause",
                },
            },
            pause_mode: match record.phase {
                Phase::Paused { kept, .. } | Phase::Resuming { kept, .. } => Some(match kept {
                    Kept::Memory => "full",
                    Kept::Files => "filesystem",
                }),
                Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Pausing { .. }
                | Phase::Killing { .. }
                | Phase::Dead { .. } => None,
            },
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    timestamp: Timestamp,
    timestamp_unix: i64,
    cpu_count: u32,
    cpu_used_pct: f32,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Metric {
    pub(crate) fn all(metrics: &Metrics) -> Vec<Self> {
        let Metrics { vcpus, samples } = metrics;
        samples.iter().map(|sample| Self::new(*vcpus, sample)).collect()
    }

    fn new(cpu_count: u32, sample: &Measured) -> Self {
        let Measured {
            at,
            cpu_used_percent,
            memory_used_bytes,
            memory_total_bytes,
            memory_cache_bytes,
            disk_used_bytes,
            disk_total_bytes,
        } = *sample;
        Self {
            timestamp: at,
            timestamp_unix: at.as_second(),
            cpu_count,
            cpu_used_pct: cpu_used_percent,
            mem_used: memory_used_bytes,
            mem_total: memory_total_bytes,
            mem_cache: memory_cache_bytes,
            disk_used: disk_used_bytes,
            disk_total: disk_total_bytes,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct LatestMetrics {
    pub(crate) sandboxes: BTreeMap<String, Metric>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the contract's")]
#[serde(rename_all = "camelCase")]
pub(crate) struct Template {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Teams have no members: nobody in particular made it.
    created_by: Option<()>,
    /// Spawns aren't counted; the models require the fields.
    last_spawned_at: Option<Timestamp>,
    spawn_count: u32,
    /// Of the builds that are kept: the one in use.
    build_count: u32,
    envd_version: &'static str,
    build_status: &'static str,
}

impl Template {
    pub(crate) fn new(record: &TemplateRecord, full_name: String) -> Self {
        let TemplateRecord {
            id,
            team: _,
            name,
            public,
            image: _,
            image_bytes: _,
            image_names: _,
            build,
            resources,
            platform: _,
            env: _,
            user: _,
            workdir: _,
            created_at,
            updated_at,
        } = record;
        Self {
            template_id: id.to_string(),
            build_id: build.to_string(),
            cpu_count: resources.vcpus,
            memory_mb: resources.memory_mib,
            disk_size_mb: resources.disk_mib,
            public: *public,
            aliases: vec![name.to_string()],
            names: vec![full_name],
            created_at: *created_at,
            updated_at: *updated_at,
            created_by: None,
            last_spawned_at: None,
            spawn_count: 0,
            build_count: 1,
            envd_version: ENVD_VERSION,
            build_status: "ready",
        }
    }
}

impl Template {
    /// One that builds make. The version that clients get who name no tag speaks for it, or the
    /// newest.
    pub(crate) fn built(
        record: &SnapshotRecord,
        full_name: String,
        attempt: Option<&BuildRecord>,
    ) -> Self {
        let newest = record.builds.values().max_by_key(|build| build.at);
        let shown = record.builds.get(TemplateRef::DEFAULT_TAG).or(newest);
        let resources = shown.map_or(resources::DEFAULT, |build| build.resources);
        let builds: BTreeSet<_> = record.builds.values().map(|build| build.id).collect();
        Self {
            template_id: record.id.to_string(),
            build_id: shown
                .map(|build| build.id)
                .or_else(|| attempt.map(|build| build.id))
                .unwrap_or(BuildId::NIL)
                .to_string(),
            cpu_count: resources.vcpus,
            memory_mb: resources.memory_mib,
            disk_size_mb: resources.disk_mib,
            public: record.public,
            aliases: record.name.iter().map(ToString::to_string).collect(),
            names: vec![full_name],
            created_at: record.created_at,
            updated_at: newest.map_or(record.created_at, |build| build.at),
            created_by: None,
            last_spawned_at: None,
            spawn_count: 0,
            build_count: u32::try_from(builds.len()).unwrap_or(u32::MAX),
            envd_version: ENVD_VERSION,
            build_status: match (shown, attempt.map(|build| &build.phase)) {
                (Some(_), _) | (None, Some(BuildPhase::Ready { .. })) => "ready",
                (None, Some(BuildPhase::Waiting)) => "waiting",
                (None, Some(BuildPhase::Building { .. })) => "building",
                // Also where none is kept any more: there won't be one.
                (None, Some(BuildPhase::Failed { .. }) | None) => "error",
            },
        }
    }
}

#[derive(Serialize)]
pub(crate) struct TemplateWithBuilds {
    #[serde(flatten)]
    template: Template,
    builds: [Build; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "buildID")]
    id: String,
    status: &'static str,
    created_at: Timestamp,
    updated_at: Timestamp,
    finished_at: Timestamp,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u32,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u32,
    envd_version: &'static str,
}

impl TemplateWithBuilds {
    pub(crate) fn new(template: Template) -> Self {
        let build = Build {
            id: template.build_id.clone(),
            status: template.build_status,
            // Each import makes the build anew.
            created_at: template.updated_at,
            updated_at: template.updated_at,
            finished_at: template.updated_at,
            cpu_count: template.cpu_count,
            memory_mb: template.memory_mb,
            disk_size_mb: template.disk_size_mb,
            envd_version: template.envd_version,
        };
        Self { template, builds: [build] }
    }
}

#[derive(Serialize)]
pub(crate) struct PublishedTemplate {
    pub(crate) names: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Alias {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) public: bool,
}

/// `POST /sandboxes` and `POST /v2/sandboxes`.
///
/// A feature that this version does not have is a field of any JSON: whoever asks for it is told.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSandboxBody {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) timeout: Option<i64>,
    pub(crate) secure: Option<bool>,
    #[serde(rename = "allow_internet_access")]
    pub(crate) allow_internet_access: Option<bool>,
    pub(crate) network: Option<NetworkBody>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    pub(crate) env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    /// Read by the program of the `mcp-gateway` template, to which the SDK gives it again.
    #[serde(rename = "mcp")]
    _mcp: Option<serde_json::Value>,
    pub(crate) iam: Option<Iam>,
    pub(crate) volume_mounts: Option<Vec<Mount>>,
}

#[derive(Deserialize)]
struct AutoResume {
    enabled: bool,
}

impl NewSandboxBody {
    /// What is wrong names its field.
    pub(crate) fn lifecycle(&self) -> Result<Lifecycle, &'static str> {
        let auto_resume = self.auto_resume.as_ref().is_some_and(|it| it.enabled);
        let on_timeout = match (self.auto_pause == Some(true), self.auto_pause_memory) {
            (false, Some(false)) => return Err("autoPauseMemory: false needs autoPause"),
            (true, Some(false)) if auto_resume => {
                return Err("autoPauseMemory: false does not go with autoResume");
            }
            (true, Some(false)) => OnDeadline::Pause(Kept::Files),
            (true, _) => OnDeadline::Pause(Kept::Memory),
            (false, _) => OnDeadline::Kill,
        };
        Ok(Lifecycle { on_timeout, auto_resume })
    }
}

/// The name of the first field that asks for a feature this version does not have.
pub(crate) trait Unsupported {
    fn unsupported(&self) -> Option<&'static str>;
}

impl Unsupported for NewSandboxBody {
    fn unsupported(&self) -> Option<&'static str> {
        self.network.as_ref().and_then(Unsupported::unsupported)
    }
}
