//! One appliance per state folder.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

use crate::OpenError;

/// Held as long as the store is open. The kernel lets go of it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

impl Lock {
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let failed = |source| OpenError::File { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                // Who holds it is only for the message.
                let pid = match file.read_to_string(&mut holder) {
                    Ok(_) => holder.trim().parse().ok(),
                    Err(_) => None,
                };
                return Err(OpenError::Locked { dir: dir.to_owned(), pid });
            }
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        held.set_len(0).map_err(failed)?;
        held.rewind().map_err(failed)?;
        writeln!(held, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _held: held })
    }
}
