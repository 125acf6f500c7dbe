//! Opening a file to be written: who owns it, and that those who watch see what they should.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{OpenOptionsExt, fchown},
    path::Path,
};

use nix::libc;

use super::refusal::Refusal;
use crate::{
    filesystem::{ensure_folder, xattr::replace_metadata},
    users::User,
};

/// A new file is made, then given to the user; one that is there keeps its mode and its links, so
/// it is given first and emptied then. What is no file, as `/dev/null`, is just written to.
pub(crate) fn open(
    path: &Path,
    user: &User,
    metadata: &std::collections::BTreeMap<String, String>,
) -> Result<File, Refusal> {
    let refused = |error: io::Error| Refusal::io(&error, "opening", path);
    let new = |path| options().create_new(true).open(path);
    let opened = new(path).or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        if let Some(parent) = path.parent() {
            ensure_folder(parent, user)?;
        }
        new(path)
    });
    let (file, is_new) = match opened {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Through a link, also one to nothing.
            (options().create(true).truncate(false).open(path).map_err(refused)?, false)
        }
        Err(error) => return Err(refused(error)),
    };
    if !is_new && !file.metadata().map_err(refused)?.is_file() {
        return Ok(file);
    }
    fchown(&file, Some(user.uid), Some(user.gid)).map_err(refused)?;
    if !is_new {
        file.set_len(0).map_err(refused)?;
    }
    replace_metadata(&file, is_new, metadata).map_err(|errno| refused(errno.into()))?;
    Ok(file)
}

/// Without waiting for whoever reads a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o666).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options
}
