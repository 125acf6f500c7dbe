//! Everything the operator can be told.

use axum::{
    Json,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use sandboxo_control::{
    DeleteTemplateError, ImportTemplateError, KeyError, ListError, NewKeyError,
};
use sandboxo_model::{Field, Invalid};
use serde::Serialize;

#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("the operator's token is missing or wrong: send it as Authorization: Bearer")]
    Unauthenticated,
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    WrongMethod(String),
    #[error("{0}")]
    Conflict(String),
    #[error("the zone's disk is full")]
    DiskFull,
    #[error("the zone is not available")]
    Unavailable,
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Serialize)]
struct Body {
    code: u16,
    message: String,
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(source) => {
                tracing::error!(
                    error = source.as_ref() as &dyn std::error::Error,
                    "request failed"
                );
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let body = Body { code: status.as_u16(), message: self.to_string() };
        (status, Json(body)).into_response()
    }
}

/// The router has cut what all paths begin with.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> AdminError {
    AdminError::WrongMethod(format!("/admin/v1{} does not take {method}", uri.path()))
}

impl From<Invalid> for AdminError {
    fn from(Invalid { field, rule }: Invalid) -> Self {
        let name = match field {
            Field::Template => "name",
            Field::Timeout => "timeout",
            Field::Metadata => "metadata",
            Field::Value => "value",
            Field::Env => "env",
            Field::Network => "network",
            Field::MaskRequestHost => "mask_request_host",
            Field::HttpsPorts => "https_ports",
            Field::Vcpus => "vcpus",
            Field::MemoryMib => "memory_mib",
            Field::DiskMib => "disk_mib",
            Field::Pids => "pids",
            Field::User => "user",
            Field::Workdir => "workdir",
            Field::Count => "count",
        };
        Self::Invalid(format!("{name}: {rule}"))
    }
}

impl From<ImportTemplateError> for AdminError {
    fn from(error: ImportTemplateError) -> Self {
        let message = error.to_string();
        match error {
            ImportTemplateError::Name(_) | ImportTemplateError::NameTaken(_) => {
                Self::Invalid(format!("name: {message}"))
            }
            ImportTemplateError::ImageName(_) => Self::Invalid(format!("image: {message}")),
            ImportTemplateError::Invalid(invalid) => invalid.into(),
            ImportTemplateError::Rejected(_) => Self::Invalid(format!("archive: {message}")),
            ImportTemplateError::Read(source) => {
                Self::Invalid(format!("archive: it ended early: {source}"))
            }
            ImportTemplateError::DiskFull => Self::DiskFull,
            ImportTemplateError::Zone(source) => Self::Internal(source),
            ImportTemplateError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<NewKeyError> for AdminError {
    fn from(error: NewKeyError) -> Self {
        match error {
            NewKeyError::TooSoon(_) => Self::Conflict(error.to_string()),
            NewKeyError::DiskFull => Self::DiskFull,
            NewKeyError::Keep(source) => Self::Internal(source.into()),
            NewKeyError::Stopping(source) => Self::Internal(source.into()),
        }
    }
}

impl From<DeleteTemplateError> for AdminError {
    fn from(error: DeleteTemplateError) -> Self {
        let message = error.to_string();
        match error {
            DeleteTemplateError::NotFound(_) => Self::NotFound(message),
            DeleteTemplateError::InUse { .. } => Self::Conflict(message),
            DeleteTemplateError::DiskFull => Self::DiskFull,
            DeleteTemplateError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<KeyError> for AdminError {
    fn from(error: KeyError) -> Self {
        let message = error.to_string();
        match error {
            KeyError::BadName => Self::Invalid(format!("name: {message}")),
            KeyError::NoTeam => Self::Invalid(format!("team: {message}")),
            KeyError::NameTaken => Self::Conflict(message),
            KeyError::Store(source) => Self::Internal(source.into()),
        }
    }
}

impl From<ListError> for AdminError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::BadToken | ListError::BadLimit => Self::Invalid(error.to_string()),
            ListError::Store(source) => Self::Internal(source.into()),
        }
    }
}
