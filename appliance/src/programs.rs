//! Where programs are found.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use sha2::{Digest as _, Sha256};

use crate::{
    config::{self, Config},
    hex::hex,
};

/// A name is looked up on `PATH`, and where root's programs are, which some shells of root leave
/// out; a path is only made absolute.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return std::path::absolute(program).ok().filter(|path| path.is_file());
    }
    let mut folders = config::program_folders();
    folders.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

pub(crate) fn runsc(config: &Config) -> Result<PathBuf> {
    let Some(path) = find(&config.zone.runsc) else {
        bail!(
            "there is no {}: install runsc 20240729 or newer, or set zone.runsc (SANDBOXO_RUNSC)",
            config.zone.runsc.display()
        );
    };
    Ok(path)
}

/// The configured one, else the one beside this program.
pub(crate) fn agent(config: &Config) -> Result<PathBuf> {
    if let Some(agent) = &config.zone.agent {
        return std::path::absolute(agent).context("find the agent");
    }
    let own = std::env::current_exe().context("find this program")?;
    Ok(own.with_file_name("sandboxo-agent"))
}

/// Tells one installed program from the next: versions are the same for long, and reading all of
/// it would take longer than starting it.
pub(crate) fn build(program: &Path) -> Result<String> {
    let file = std::fs::metadata(program).with_context(|| program.display().to_string())?;
    let parts = [file.dev(), file.ino(), file.size()].map(u64::to_le_bytes);
    let times = [file.mtime(), file.mtime_nsec()].map(i64::to_le_bytes);
    let digest = Sha256::digest([parts.concat(), times.concat()].concat());
    Ok(format!("{}-{}", env!("CARGO_PKG_VERSION"), hex(digest.get(..4).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_another_build() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, "the same").unwrap();
            path
        });
        assert_eq!(build(&first).unwrap(), build(&first).unwrap());
        assert_ne!(build(&first).unwrap(), build(&second).unwrap());
        assert!(build(Path::new("/no/such")).is_err());
    }

    #[test]
    fn names_are_looked_up_and_paths_are_not() {
        assert!(find(Path::new("sh")).unwrap().is_absolute());
        assert_eq!(find(Path::new("no-such-program-anywhere")), None);
        assert_eq!(find(Path::new("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(Path::new("./no/such/sh")), None);
    }
}
