//! What an error of the file system means to a client. A client's mistake is never `internal`.

use std::io;

use nix::errno::Errno;
use sandboxo_agent_proto::connect::{Code, Failure};

pub(crate) fn code_of(error: &io::Error) -> Code {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Code::NotFound,
        Some(Errno::EEXIST) => Code::AlreadyExists,
        Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => Code::PermissionDenied,
        Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
            Code::ResourceExhausted
        }
        Some(Errno::EBUSY | Errno::ETXTBSY) => Code::FailedPrecondition,
        Some(
            Errno::ENOTDIR
            | Errno::EISDIR
            | Errno::ENOTEMPTY
            | Errno::EINVAL
            | Errno::ELOOP
            | Errno::ENAMETOOLONG
            | Errno::EMLINK
            | Errno::ENXIO,
        ) => Code::InvalidArgument,
        // A path with a zero byte in it.
        None if error.kind() == io::ErrorKind::InvalidInput => Code::InvalidArgument,
        Some(_) | None => Code::Internal,
    }
}

pub(crate) fn because(error: &io::Error, doing: &str) -> Failure {
    Failure::new(code_of(error), format!("error {doing}: {}", reason(error)))
}

/// Without the number that the standard library adds.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string(),
    }
}
