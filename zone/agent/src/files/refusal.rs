//! Why a request for a file is not served, and the status that says so.

use std::{io, path::Path};

use http::StatusCode;
use nix::errno::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn absent(path: &Path) -> Self {
        let message = format!("path '{}' does not exist", path.display());
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn folder(path: &Path) -> Self {
        Self::bad(format!("path '{}' is a directory", path.display()))
    }

    /// A client's mistake is no fault of ours.
    pub(crate) fn io(error: &io::Error, doing: &str, path: &Path) -> Self {
        let errno = error.raw_os_error().map(Errno::from_raw);
        let status = match errno {
            Some(Errno::ENOENT) => return Self::absent(path),
            Some(Errno::EISDIR) => return Self::folder(path),
            Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => StatusCode::INSUFFICIENT_STORAGE,
            Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => StatusCode::FORBIDDEN,
            Some(
                Errno::ENOTDIR
                | Errno::ENAMETOOLONG
                | Errno::ELOOP
                | Errno::EINVAL
                | Errno::ENXIO
                | Errno::ETXTBSY,
            ) => StatusCode::BAD_REQUEST,
            None if error.kind() == io::ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            Some(_) | None => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let reason = errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_lowercase());
        let message = match status {
            StatusCode::INSUFFICIENT_STORAGE => "not enough disk space available".to_owned(),
            _ => format!("error {doing} '{}': {reason}", path.display()),
        };
        Self::new(status, message)
    }
}
