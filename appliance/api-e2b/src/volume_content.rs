//! The files in volumes, for whoever bears a volume's token. Errors have the code as a text here.

use axum::{
    Json, Router,
    body::Body as RawBody,
    extract::{FromRequestParts, Path, Query},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::TryStreamExt as _;
use sandboxo_control::OpenVolumeError;
use sandboxo_zone_protocol::{
    Attributes, EntryKind, VolumeEntry, VolumeFileError, VolumeFiles, VolumePath,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{ApiError, Surface, body::Body};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/volumecontent/{id}/path", get(stat).patch(change).delete(remove))
        .route("/volumecontent/{id}/dir", get(list).post(make_dir))
        .route("/volumecontent/{id}/file", get(read).put(write))
}

struct ContentError {
    status: StatusCode,
    message: String,
}

impl ContentError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

#[derive(Serialize)]
struct ErrorBody {
    code: String,
    message: String,
}

impl IntoResponse for ContentError {
    fn into_response(self) -> Response {
        let code = self.status.as_u16().to_string();
        (self.status, Json(ErrorBody { code, message: self.message })).into_response()
    }
}

impl From<ApiError> for ContentError {
    fn from(error: ApiError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<OpenVolumeError> for ContentError {
    fn from(error: OpenVolumeError) -> Self {
        let status = match &error {
            OpenVolumeError::BadToken => StatusCode::UNAUTHORIZED,
            OpenVolumeError::Gone => StatusCode::NOT_FOUND,
            OpenVolumeError::ZoneUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            OpenVolumeError::Failed(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a volume fails");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, error.to_string())
    }
}

impl From<VolumeFileError> for ContentError {
    fn from(error: VolumeFileError) -> Self {
        let status = match &error {
            VolumeFileError::NotFound => StatusCode::NOT_FOUND,
            VolumeFileError::Exists
            | VolumeFileError::NotADirectory
            | VolumeFileError::IsADirectory => StatusCode::CONFLICT,
            VolumeFileError::Root
            | VolumeFileError::TooMany(_)
            | VolumeFileError::TooDeep(_)
            | VolumeFileError::Cut(_) => StatusCode::BAD_REQUEST,
            VolumeFileError::Full => StatusCode::INSUFFICIENT_STORAGE,
            VolumeFileError::Io(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a volume's file fails");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, error.to_string())
    }
}

/// What is no file or directory as asked is not there, to a client that only reads.
fn looked_for(error: VolumeFileError) -> ContentError {
    if matches!(error, VolumeFileError::NotADirectory | VolumeFileError::IsADirectory) {
        ContentError::new(StatusCode::NOT_FOUND, error.to_string())
    } else {
        error.into()
    }
}

/// The volume whose token came along.
struct Opened(Arc<dyn VolumeFiles>);

impl FromRequestParts<Surface> for Opened {
    type Rejection = ContentError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Surface,
    ) -> Result<Self, Self::Rejection> {
        let id = Path::<String>::from_request_parts(parts, surface).await;
        let Path(id) = id.map_err(|_not_text| OpenVolumeError::BadToken)?;
        let token = bearer(&parts.headers).ok_or(OpenVolumeError::BadToken)?;
        Ok(Self(surface.control.volumes.files(token, &id).await?))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[derive(Deserialize)]
struct Asked {
    path: String,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

impl Asked {
    fn attributes(&self) -> Attributes {
        Attributes { uid: self.uid, gid: self.gid, mode: self.mode }
    }
}

/// With the path that it names.
struct Question(VolumePath, Asked);

impl FromRequestParts<Surface> for Question {
    type Rejection = ContentError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Surface,
    ) -> Result<Self, Self::Rejection> {
        let refused = |why: String| ContentError::new(StatusCode::BAD_REQUEST, why);
        let asked = Query::<Asked>::from_request_parts(parts, surface).await;
        let Query(asked) = asked.map_err(|error| refused(error.body_text()))?;
        let path =
            asked.path.parse().map_err(|error: sandboxo_zone_protocol::NotAVolumePath| {
                refused(format!("path: {error}"))
            })?;
        Ok(Self(path, asked))
    }
}

#[derive(Serialize)]
struct Stat {
    name: String,
    r#type: &'static str,
    path: String,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<VolumeEntry> for Stat {
    fn from(entry: VolumeEntry) -> Self {
        let VolumeEntry { path, kind, size, mode, uid, gid, accessed, modified, changed, target } =
            entry;
        let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
        Self {
            name: name.to_owned(),
            r#type: match kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::Other => "unknown",
            },
            path,
            size,
            mode,
            uid,
            gid,
            atime: accessed.to_string(),
            mtime: modified.to_string(),
            ctime: changed.to_string(),
            target,
        }
    }
}

async fn stat(
    Opened(files): Opened,
    Question(path, _): Question,
) -> Result<Json<Stat>, ContentError> {
    Ok(Json(files.stat(&path).await.map_err(looked_for)?.into()))
}

#[derive(Deserialize)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

async fn change(
    Opened(files): Opened,
    Question(path, _): Question,
    Body(Change { uid, gid, mode }): Body<Change>,
) -> Result<Json<Stat>, ContentError> {
    let changed = files.change(&path, Attributes { uid, gid, mode }).await;
    Ok(Json(changed.map_err(looked_for)?.into()))
}

async fn remove(
    Opened(files): Opened,
    Question(path, _): Question,
) -> Result<StatusCode, ContentError> {
    files.remove(&path).await.map_err(looked_for)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn list(
    Opened(files): Opened,
    Question(path, asked): Question,
) -> Result<Json<Vec<Stat>>, ContentError> {
    let listed = files.list(&path, asked.depth.unwrap_or(1)).await.map_err(looked_for)?;
    Ok(Json(listed.into_iter().map(Stat::from).collect()))
}

async fn make_dir(
    Opened(files): Opened,
    Question(path, asked): Question,
) -> Result<(StatusCode, Json<Stat>), ContentError> {
    let force = asked.force.unwrap_or(false);
    let made = files.make_dir(&path, asked.attributes(), force).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

async fn read(
    Opened(files): Opened,
    Question(path, _): Question,
) -> Result<Response, ContentError> {
    let (size, content) = files.read(&path).await.map_err(looked_for)?;
    let mut answer = Response::new(RawBody::from_stream(ReaderStream::new(content)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, size.into());
    Ok(answer)
}

async fn write(
    Opened(files): Opened,
    Question(path, asked): Question,
    body: RawBody,
) -> Result<(StatusCode, Json<Stat>), ContentError> {
    let content = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    let force = asked.force.unwrap_or(false);
    let written = files.write(&path, asked.attributes(), force, Box::new(content)).await;
    // The directory that it is to lie in.
    let written = written.map_err(|error| match &error {
        VolumeFileError::NotADirectory => looked_for(error),
        VolumeFileError::NotFound
        | VolumeFileError::Exists
        | VolumeFileError::IsADirectory
        | VolumeFileError::Root
        | VolumeFileError::TooMany(_)
        | VolumeFileError::TooDeep(_)
        | VolumeFileError::Full
        | VolumeFileError::Cut(_)
        | VolumeFileError::Io(_) => error.into(),
    })?;
    Ok((StatusCode::CREATED, Json(written.into())))
}
