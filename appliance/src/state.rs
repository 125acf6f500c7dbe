//! The state folder: where in it things lie.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sandboxo_control::{KeepKeyring, Keyring, NotAKeyring};
use sandboxo_zone_protocol::{Random, Secret, Timestamp};

use crate::hex::hex;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("make the state folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("keep the secret {path}")]
    Secret { path: PathBuf, source: io::Error },
    #[error(
        "read {path}; without it there will be a new key, and no token of the old ones is good"
    )]
    Keyring { path: PathBuf, source: NotAKeyring },
}

/// What signs the tokens of sandboxes.
const KEYRING: &str = "identity-keys";

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

    /// The keys that sign for sandboxes, or a new one that is kept from then on.
    pub(crate) fn keyring(
        &self,
        random: &dyn Random,
        now: Timestamp,
    ) -> Result<Keyring, StateError> {
        if let Some(kept) = self.secret(KEYRING)? {
            let wrong = |source| StateError::Keyring { path: self.root.join(KEYRING), source };
            return Keyring::read(kept.expose()).map_err(wrong);
        }
        let made = Keyring::new(random, now);
        self.keep(KEYRING, made.text().expose())?;
        Ok(made)
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

impl KeepKeyring for StateFolder {
    fn keep(&self, text: &Secret) -> io::Result<()> {
        self.write(&self.root.join(KEYRING), text.expose())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandboxo_zone_protocol::SystemRandom;

    use super::*;

    #[test]
    fn keys_are_made_once_and_never_replaced_by_chance() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let text = |state: &StateFolder| {
            let keyring = state.keyring(&SystemRandom, Timestamp::UNIX_EPOCH);
            keyring.map(|keyring| keyring.text().expose().to_owned())
        };
        let made = text(&state).unwrap();
        assert_eq!(text(&state).unwrap(), made);
        let path = state.root().join(KEYRING);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let another = Keyring::new(&SystemRandom, Timestamp::UNIX_EPOCH).text();
        KeepKeyring::keep(&state, &another).unwrap();
        assert_eq!(text(&state).unwrap(), another.expose());
        std::fs::write(&path, "1\n[{\"key\":\"torn").unwrap();
        assert!(text(&state).unwrap_err().to_string().contains(KEYRING));
        assert!(std::fs::read_to_string(&path).unwrap().contains("torn"));
    }

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
