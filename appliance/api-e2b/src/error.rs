//! Everything an E2B client can be told. The clients read `code` in the body, not the status.

use std::num::NonZeroU32;

use axum::{
    Json,
    http::{HeaderValue, Method, StatusCode, Uri, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use sandboxo_control::{
    BuildStatusError, CheckpointError, CreateError, CreateVolumeError, DeleteSnapshotError,
    DeleteTemplateError, DeleteVolumeError, ForkError, HistoryError, KillError, ListError,
    NetworkError, PauseError, PublishError, RequestBuildError, ResumeError, SecretError,
    SnapshotError, StartBuildError, TagError, TimeoutError, UploadError,
};
use sandboxo_model::{Field, Invalid};
use serde::Serialize;

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the API key is missing or wrong: send it as X-API-KEY")]
    Unauthenticated,
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{message}")]
    Conflict { message: String, error_code: Option<&'static str> },
    #[error("{0}")]
    OutcomeUnknown(String),
    #[error("{0}")]
    WrongMethod(String),
    /// Worth another try after a second.
    #[error("{0}")]
    Limited(String),
    #[error("more than {0} requests of this kind in a second")]
    TooOften(NonZeroU32),
    #[error("{0}")]
    Busy(String),
    /// A retry would meet the same.
    #[error("{message}")]
    Unable { message: String, error_code: &'static str },
    #[error("{message}")]
    TooSlow { message: String, error_code: &'static str },
    #[error("{0}")]
    NotOffered(String),
    /// Logged where it happened.
    #[error("{message}")]
    Failed { message: String, error_code: &'static str },
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Serialize)]
pub(crate) struct Body {
    code: u16,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl ApiError {
    fn parts(&self) -> (StatusCode, Option<&'static str>) {
        match self {
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, None),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, None),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, None),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, None),
            Self::Conflict { error_code, .. } => (StatusCode::CONFLICT, *error_code),
            Self::OutcomeUnknown(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, Some("idempotency_outcome_unknown"))
            }
            Self::WrongMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, None),
            Self::Limited(_) => (StatusCode::TOO_MANY_REQUESTS, Some("limit_reached")),
            Self::TooOften(_) => (StatusCode::TOO_MANY_REQUESTS, Some("rate_limited")),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, Some("busy")),
            Self::Unable { error_code, .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(error_code)),
            Self::TooSlow { error_code, .. } => (StatusCode::GATEWAY_TIMEOUT, Some(error_code)),
            Self::NotOffered(_) => (StatusCode::NOT_IMPLEMENTED, Some("not_offered")),
            Self::Failed { error_code, .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, Some(error_code))
            }
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        }
    }
}

impl ApiError {
    pub(crate) fn body(&self) -> Body {
        if let Self::Internal(source) = self {
            tracing::error!(error = source.as_ref() as &dyn std::error::Error, "request failed");
        }
        let (status, error_code) = self.parts();
        Body { code: status.as_u16(), message: self.to_string(), error_code }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, _) = self.parts();
        let body = self.body();
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        match self {
            Self::Limited(_) | Self::Busy(_) => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // Without it the Python client repeats every 503 and 504 by itself.
            Self::Unable { .. } | Self::TooSlow { .. } => {
                headers.insert("should-retry", HeaderValue::from_static("false"));
            }
            Self::Unauthenticated
            | Self::Invalid(_)
            | Self::TooLarge(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Conflict { .. }
            | Self::OutcomeUnknown(_)
            | Self::WrongMethod(_)
            // Who counts knows for how long.
            | Self::TooOften(_)
            | Self::NotOffered(_)
            | Self::Failed { .. }
            | Self::Internal(_) => {}
        }
        response
    }
}

pub(crate) async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    ApiError::NotFound(format!("no route {method} {}", uri.path()))
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::WrongMethod(format!("{} does not take {method}", uri.path()))
}

pub(crate) async fn not_offered(method: Method, uri: Uri) -> ApiError {
    ApiError::NotOffered(format!("this version does not offer {method} {}", uri.path()))
}

impl From<Invalid> for ApiError {
    fn from(Invalid { field, rule }: Invalid) -> Self {
        Self::Invalid(format!("{}: {rule}", name(field)))
    }
}

/// This surface's name of a field.
fn name(field: Field) -> &'static str {
    match field {
        Field::Template => "templateID",
        Field::Timeout => "timeout",
        Field::Metadata => "metadata",
        Field::Value => "value",
        Field::Env => "envVars",
        Field::Network => "network",
        Field::MaskRequestHost => "network.maskRequestHost",
        Field::HttpsPorts => "network.httpsPorts",
        Field::Vcpus => "cpuCount",
        Field::MemoryMib => "memoryMB",
        Field::DiskMib => "diskSizeMB",
        Field::Pids => "pids",
        Field::User => "user",
        Field::Workdir => "workdir",
        Field::Count => "count",
    }
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        let message = error.to_string();
        match error {
            CreateError::Invalid(invalid) => invalid.into(),
            CreateError::TemplateNotFound(_) => Self::NotFound(message),
            CreateError::IdempotencyMismatch => {
                Self::Conflict { message, error_code: Some("idempotency_request_mismatch") }
            }
            CreateError::IdempotencyInProgress => {
                Self::Conflict { message, error_code: Some("idempotency_in_progress") }
            }
            CreateError::IdempotencyUnknown => Self::OutcomeUnknown(message),
            CreateError::LimitReached { .. } => Self::Limited(message),
            CreateError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            CreateError::CheckpointUnusable(_) => {
                Self::Unable { message, error_code: "checkpoint_unusable" }
            }
            CreateError::Mounts(_) | CreateError::NotMounted(_) => Self::Invalid(message),
            CreateError::VolumeFileGone(_) => {
                Self::Conflict { message, error_code: Some("volume_file_gone") }
            }
            CreateError::TimedOut => Self::TooSlow { message, error_code: "start_timed_out" },
            CreateError::Killed => {
                Self::Conflict { message, error_code: Some("killed_while_starting") }
            }
            CreateError::Failed => Self::Failed { message, error_code: "start_failed" },
            CreateError::ZoneUnavailable => Self::Busy(message),
            CreateError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<CreateVolumeError> for ApiError {
    fn from(error: CreateVolumeError) -> Self {
        let message = error.to_string();
        match error {
            CreateVolumeError::Name(_) => Self::Invalid(format!("name: {message}")),
            CreateVolumeError::NameTaken(_) => {
                Self::Conflict { message, error_code: Some("volume_exists") }
            }
            CreateVolumeError::NoSource(_) => Self::NotFound(format!("fromVolume: {message}")),
            CreateVolumeError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            CreateVolumeError::TimedOut => {
                Self::TooSlow { message, error_code: "volume_timed_out" }
            }
            CreateVolumeError::ZoneUnavailable => Self::Busy(message),
            CreateVolumeError::Failed => Self::Failed { message, error_code: "volume_failed" },
            CreateVolumeError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<DeleteVolumeError> for ApiError {
    fn from(error: DeleteVolumeError) -> Self {
        let message = error.to_string();
        match error {
            DeleteVolumeError::NotFound(_) => Self::NotFound(message),
            DeleteVolumeError::InUse(_) => {
                Self::Conflict { message, error_code: Some("volume_in_use") }
            }
            DeleteVolumeError::ZoneUnavailable => Self::Busy(message),
            DeleteVolumeError::Failed => Self::Failed { message, error_code: "volume_failed" },
            DeleteVolumeError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            DeleteVolumeError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        let message = error.to_string();
        match error {
            SecretError::Name(_) => Self::Invalid(format!("name: {message}")),
            SecretError::Invalid(invalid) => invalid.into(),
            SecretError::TooMany => Self::Invalid(message),
            SecretError::NameTaken(_) => {
                Self::Conflict { message, error_code: Some("secret_exists") }
            }
            SecretError::NotFound(_) => Self::NotFound(message),
            SecretError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            SecretError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<KillError> for ApiError {
    fn from(error: KillError) -> Self {
        let message = error.to_string();
        match error {
            KillError::NotFound(_) => Self::NotFound(message),
            KillError::Busy | KillError::ZoneUnavailable => Self::Busy(message),
            KillError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<PauseError> for ApiError {
    fn from(error: PauseError) -> Self {
        let message = error.to_string();
        match error {
            PauseError::NotFound(_) => Self::NotFound(message),
            PauseError::AlreadyPaused(_) => Self::Conflict { message, error_code: None },
            PauseError::Busy | PauseError::ZoneUnavailable => Self::Busy(message),
            PauseError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            PauseError::AgentUnresponsive => {
                let error_code = "sandbox_snapshot_guest_agent_unresponsive";
                Self::Unable { message, error_code }
            }
            PauseError::DeletedFileOpen(_) => {
                Self::Conflict { message, error_code: Some("deleted_file_open") }
            }
            PauseError::Ended => {
                Self::Conflict { message, error_code: Some("ended_while_pausing") }
            }
            PauseError::TimedOut => Self::TooSlow { message, error_code: "pause_timed_out" },
            PauseError::Failed => Self::Failed { message, error_code: "pause_failed" },
            PauseError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<CheckpointError> for ApiError {
    fn from(error: CheckpointError) -> Self {
        let message = error.to_string();
        match error {
            CheckpointError::NotFound(_) => Self::NotFound(message),
            CheckpointError::Busy | CheckpointError::ZoneUnavailable => Self::Busy(message),
            CheckpointError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            CheckpointError::AgentUnresponsive => {
                let error_code = "sandbox_snapshot_guest_agent_unresponsive";
                Self::Unable { message, error_code }
            }
            CheckpointError::DeletedFileOpen(_) => {
                Self::Conflict { message, error_code: Some("deleted_file_open") }
            }
            CheckpointError::Ended => {
                Self::Conflict { message, error_code: Some("ended_while_saving") }
            }
            CheckpointError::TimedOut => Self::TooSlow { message, error_code: "save_timed_out" },
            CheckpointError::Failed => Self::Failed { message, error_code: "save_failed" },
        }
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        match error {
            SnapshotError::Name(_) | SnapshotError::Foreign(_) | SnapshotError::NameTaken(_) => {
                Self::Invalid(format!("name: {message}"))
            }
            SnapshotError::Checkpoint(error) => error.into(),
            SnapshotError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            SnapshotError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<ForkError> for ApiError {
    fn from(error: ForkError) -> Self {
        let message = error.to_string();
        match error {
            ForkError::Invalid(invalid) => invalid.into(),
            ForkError::Checkpoint(error) => error.into(),
            ForkError::Stopping(_) => Self::Busy(message),
        }
    }
}

impl From<DeleteSnapshotError> for ApiError {
    fn from(error: DeleteSnapshotError) -> Self {
        let message = error.to_string();
        match error {
            DeleteSnapshotError::NotFound(_) => Self::NotFound(message),
            DeleteSnapshotError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            DeleteSnapshotError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<ResumeError> for ApiError {
    fn from(error: ResumeError) -> Self {
        let message = error.to_string();
        match error {
            ResumeError::Invalid(invalid) => invalid.into(),
            ResumeError::NotFound(_) | ResumeError::CheckpointLost => Self::NotFound(message),
            ResumeError::AlreadyRunning(_) => Self::Conflict { message, error_code: None },
            ResumeError::VolumeFileGone(_) => {
                Self::Conflict { message, error_code: Some("volume_file_gone") }
            }
            ResumeError::Killed => {
                Self::Conflict { message, error_code: Some("killed_while_starting") }
            }
            ResumeError::Busy | ResumeError::ZoneUnavailable => Self::Busy(message),
            ResumeError::LimitReached { .. } => Self::Limited(message),
            ResumeError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            ResumeError::CheckpointUnusable(_) => {
                Self::Unable { message, error_code: "checkpoint_unusable" }
            }
            ResumeError::TimedOut => Self::TooSlow { message, error_code: "start_timed_out" },
            ResumeError::Failed => Self::Failed { message, error_code: "resume_failed" },
            ResumeError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<TimeoutError> for ApiError {
    fn from(error: TimeoutError) -> Self {
        let message = error.to_string();
        match error {
            TimeoutError::Invalid(invalid) => invalid.into(),
            TimeoutError::NotFound(_) => Self::NotFound(message),
            TimeoutError::Busy => Self::Busy(message),
            TimeoutError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            TimeoutError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<NetworkError> for ApiError {
    fn from(error: NetworkError) -> Self {
        let message = error.to_string();
        match error {
            NetworkError::Invalid(invalid) => invalid.into(),
            NetworkError::NotFound(_) => Self::NotFound(message),
            NetworkError::Busy | NetworkError::ZoneUnavailable => Self::Busy(message),
            NetworkError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            NetworkError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Spool(source) => Self::Busy(source.to_string()),
            HistoryError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<ListError> for ApiError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::BadToken => Self::Invalid(format!("nextToken: {error}")),
            ListError::BadLimit => {
                Self::Invalid(format!("limit: must be between 1 and {}", ListError::MAX_LIMIT))
            }
            ListError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<DeleteTemplateError> for ApiError {
    fn from(error: DeleteTemplateError) -> Self {
        let message = error.to_string();
        match error {
            DeleteTemplateError::NotFound(_) => Self::NotFound(message),
            DeleteTemplateError::InUse { .. } => Self::Invalid(message),
            DeleteTemplateError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            DeleteTemplateError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        let message = error.to_string();
        match error {
            PublishError::NotFound(_) => Self::NotFound(message),
            PublishError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            PublishError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<RequestBuildError> for ApiError {
    fn from(error: RequestBuildError) -> Self {
        let message = error.to_string();
        match error {
            RequestBuildError::Name(_)
            | RequestBuildError::Foreign(_)
            | RequestBuildError::NameTaken(_) => Self::Invalid(format!("name: {message}")),
            RequestBuildError::Invalid(invalid) => invalid.into(),
            RequestBuildError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            RequestBuildError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<StartBuildError> for ApiError {
    fn from(error: StartBuildError) -> Self {
        let message = error.to_string();
        match error {
            StartBuildError::NotFound(_) => Self::NotFound(message),
            StartBuildError::NotWaiting(_) | StartBuildError::Recipe(_) => Self::Invalid(message),
            StartBuildError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            StartBuildError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<BuildStatusError> for ApiError {
    fn from(error: BuildStatusError) -> Self {
        let message = error.to_string();
        match error {
            BuildStatusError::NotFound(_) => Self::NotFound(message),
            BuildStatusError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> Self {
        let message = error.to_string();
        match error {
            UploadError::BadLink => Self::Forbidden(message),
            UploadError::TooLarge | UploadError::TooMuch { .. } => Self::TooLarge(message),
            UploadError::Cut(_) => Self::Invalid(message),
            UploadError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            UploadError::Write(source) => Self::Internal(source.into()),
        }
    }
}

impl From<TagError> for ApiError {
    fn from(error: TagError) -> Self {
        let message = error.to_string();
        match error {
            TagError::Name(_) => Self::Invalid(message),
            TagError::NotFound(_) => Self::NotFound(message),
            TagError::DiskFull => Self::Unable { message, error_code: "disk_full" },
            TagError::Store(source) => Self::Internal(source.into()),
        }
    }
}
