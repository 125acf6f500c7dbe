//! Builds and tags, as clients read them.

use sandboxo_control::{BuildStatus, Requested, StatusPhase, Tag};
use sandboxo_model::{BuildFailure, BuildLine};
use sandboxo_zone_protocol::Timestamp;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestedBuild {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    public: bool,
    names: Vec<String>,
    tags: Vec<String>,
    aliases: Vec<String>,
}

impl From<Requested> for RequestedBuild {
    fn from(requested: Requested) -> Self {
        let Requested { template, build, alias, name, tags } = requested;
        Self {
            template_id: template.to_string(),
            build_id: build.to_string(),
            public: false,
            names: vec![name],
            tags,
            aliases: vec![alias],
        }
    }
}

#[derive(Serialize)]
pub(crate) struct FileUpload {
    pub(crate) present: bool,
    pub(crate) url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildInfo {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "buildID")]
    build_id: String,
    status: &'static str,
    /// The older form of the entries; clients require the field and read the other.
    logs: [String; 0],
    log_entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

#[derive(Serialize)]
struct Entry {
    timestamp: Timestamp,
    message: String,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reason {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    log_entries: Vec<Entry>,
}

impl From<BuildStatus> for BuildInfo {
    fn from(status: BuildStatus) -> Self {
        let BuildStatus { build, template, phase, lines } = status;
        let (status, reason) = match phase {
            StatusPhase::Waiting => ("waiting", None),
            StatusPhase::Building => ("building", None),
            StatusPhase::Ready => ("ready", None),
            StatusPhase::Failed(BuildFailure { message, step }, last) => {
                let step = step.map(|step| step.to_string());
                let log_entries = last.into_iter().map(Entry::from).collect();
                ("error", Some(Reason { message, step, log_entries }))
            }
        };
        Self {
            template_id: template.to_string(),
            build_id: build.to_string(),
            status,
            logs: [],
            log_entries: lines.into_iter().map(Entry::from).collect(),
            reason,
        }
    }
}

impl From<BuildLine> for Entry {
    fn from(BuildLine { at, level, message, step }: BuildLine) -> Self {
        let step = step.map(|step| step.to_string());
        Self { timestamp: at, message, level: level.name(), step }
    }
}

#[derive(Serialize)]
pub(crate) struct BuildLogs {
    logs: Vec<Entry>,
}

impl From<BuildStatus> for BuildLogs {
    fn from(status: BuildStatus) -> Self {
        Self { logs: status.lines.into_iter().map(Entry::from).collect() }
    }
}

#[derive(Serialize)]
pub(crate) struct AssignedTags {
    pub(crate) tags: Vec<String>,
    #[serde(rename = "buildID")]
    pub(crate) build_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateTag {
    tag: String,
    #[serde(rename = "buildID")]
    build_id: String,
    created_at: Timestamp,
}

impl From<Tag> for TemplateTag {
    fn from(Tag { name, build, at }: Tag) -> Self {
        Self { tag: name, build_id: build.to_string(), created_at: at }
    }
}
