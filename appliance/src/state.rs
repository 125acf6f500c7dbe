//! The state folder: where in it things lie.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::{Random, Secret};

use crate::hex::hex;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("make the state folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("keep the secret {path}")]
    Secret { path: PathBuf, source: io::Error },
}

#[derive(Debug, Clone)]
pub(crate) struct StateFolder {
    root: PathBuf,
}

impl StateFolder {
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: std::path::absolute(root).unwrap_or_else(|_odd| root.to_path_buf()) }
    }

    /// The records hold tokens, so the folder is its owner's alone.
    pub(crate) fn make(&self) -> Result<(), StateError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(|source| StateError::Folder { path: self.root.clone(), source })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn zone(&self) -> PathBuf {
        self.root.join("zone")
    }

    /// Archives that builds of templates copy.
    pub(crate) fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Where the running appliance is reached: one URL.
    fn address(&self) -> PathBuf {
        self.root.join("address")
    }

    /// The appliance that runs on it, or did last: for looking, not for sending it anything.
    pub(crate) fn holder(&self) -> Option<i32> {
        std::fs::read_to_string(self.root.join("lock")).ok()?.trim().parse().ok()
    }

    /// The one kept under this name, or a new one that is kept from then on.
    pub(crate) fn secret_or_new(
        &self,
        name: &str,
        random: &dyn Random,
    ) -> Result<Secret, StateError> {
        if let Some(kept) = self.secret(name)? {
            return Ok(kept);
        }
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let secret = Secret::new(hex(&bytes));
        self.keep(name, secret.expose())?;
        Ok(secret)
    }

    pub(crate) fn secret(&self, name: &str) -> Result<Option<Secret>, StateError> {
        let path = self.root.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => Ok(Some(Secret::new(text.trim()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Secret { path, source }),
        }
    }

    /// Readable by its owner alone, and whole or not there.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<(), StateError> {
        let path = self.root.join(name);
        self.write(&path, text).map_err(|source| StateError::Secret { path, source })
    }

    pub(crate) fn write_address(&self, url: &str) -> io::Result<()> {
        self.write(&self.address(), url)
    }

    pub(crate) fn read_address(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.address()).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let new = path.with_extension("new");
        if let Err(error) = std::fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(&self.root)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandboxo_zone_protocol::SystemRandom;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(&folder.path().join("new/state"));
        state.make().unwrap();
        assert_eq!(state.secret("token").unwrap(), None);
        let made = state.secret_or_new("token", &SystemRandom).unwrap();
        assert_eq!(made.expose().len(), 64);
        assert_eq!(state.secret_or_new("token", &SystemRandom).unwrap(), made);
        let bits = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(bits(&state.root().join("token")), 0o600);
        assert_eq!(bits(state.root()), 0o700);
    }
}
