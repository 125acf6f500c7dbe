//! The programs that are in use inside of sandboxes and checkpoints, by their digest.
//!
//! A checkpoint maps the agent's file and is of one build of runsc, so both outlive an upgrade for
//! as long as something needs them.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{fault::gone, runsc::sha256_of};

#[derive(Debug, Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// Of the agent that new sandboxes get.
    pub(crate) agent: String,
}

impl Programs {
    pub(crate) fn open(folder: PathBuf, agent: &Path) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let digest = sha256_of(agent)?;
        let programs = Self { folder, agent: digest };
        programs.keep(agent, &programs.agent)?;
        Ok(programs)
    }

    /// A copy, so that replacing the original changes nothing that runs.
    pub(crate) fn keep(&self, program: &Path, digest: &str) -> io::Result<()> {
        let place = self.folder.join(digest);
        if place.exists() {
            return Ok(());
        }
        let unfinished = place.with_extension("new");
        fs::copy(program, &unfinished)?;
        fs::File::open(&unfinished)?.sync_all()?;
        fs::rename(unfinished, place)
    }

    pub(crate) fn find(&self, digest: &str) -> Option<PathBuf> {
        // A digest comes from a record, and a name with a slash would lead elsewhere.
        let is_name = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_name.then(|| self.folder.join(digest)).filter(|path| path.exists())
    }

    /// Removes those that nothing needs.
    pub(crate) fn sweep(&self, needed: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != self.agent && !needed.contains(&name) {
                gone(fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_outlives_an_upgrade() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, agent) = (folder.path().join("programs"), folder.path().join("agent"));
        fs::write(&agent, "one").unwrap();
        let one = Programs::open(kept.clone(), &agent).unwrap();
        fs::write(&agent, "two").unwrap();
        let two = Programs::open(kept.clone(), &agent).unwrap();
        assert_ne!(one.agent, two.agent);
        assert_eq!(fs::read_to_string(two.find(&one.agent).unwrap()).unwrap(), "one");
        two.sweep(&BTreeSet::from([one.agent.clone()])).unwrap();
        assert!(two.find(&one.agent).is_some());
        two.sweep(&BTreeSet::new()).unwrap();
        assert!(two.find(&one.agent).is_none());
        assert_eq!(fs::read_to_string(two.find(&two.agent).unwrap()).unwrap(), "two");
        assert_eq!(two.find("../agent"), None);
    }
}
