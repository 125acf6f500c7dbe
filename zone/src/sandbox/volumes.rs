//! What the volumes of a sandbox ask for when it is saved, and when it goes on.
//!
//! runsc can't save a file of a volume that is open and deleted: the checkpoint fails, and the
//! sandbox ends by it. So the agent says what is open, and the sandbox stands still from before the
//! last look at the sentry's descriptors until it is saved.

use std::{
    collections::BTreeSet, fs, io, os::unix::fs::MetadataExt as _, path::PathBuf, process::Output,
};

use sandboxo_channel::OpenFile;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{
    CreateError, PauseError, VolumeError, VolumeFileError, VolumeMount, VolumePath,
};

use super::{Living, Task, pause::Failed};
use crate::{
    bringup::{BringUpError, Holdings},
    bundle::VOLUMES_PATH,
    checkpoint::VolumeFile,
    runsc::Runsc,
    sentry::Sentry,
    slot::ContainerId,
    volume::Volumes,
};

/// A program that makes and deletes files all the time may do so at the wrong moment.
const TRIES: u32 = 5;
/// In front of its name, in the link of a descriptor.
const DELETED: &str = " (deleted)";

/// Of each its device and number, when it was deleted, since numbers are used again, and its name.
type Deleted = BTreeSet<(u64, u64, i64, i64, PathBuf)>;

impl Task {
    /// Nothing runs in it from here on, if it has volumes. With what it has open in them.
    pub(super) async fn hold(&self, living: &mut Living) -> Result<Vec<VolumeFile>, Failed> {
        if living.claim.volumes.is_empty() {
            return Ok(Vec::new());
        }
        let connected = &mut living.connected;
        let sentry = connected.process.mark().pid;
        let mut devices = BTreeSet::new();
        for volume in &living.claim.volumes {
            let root = self.shared.host.volumes.mounted(*volume).await.map_err(Failed::internal)?;
            devices.insert(fs::metadata(root).map_err(Failed::internal)?.dev());
        }
        let deleted = || deleted(sentry, &devices).map_err(Failed::internal);
        let mut newly = PathBuf::new();
        for _try in 0..TRIES {
            // Files that were closed are among them: the sentry keeps them for a while.
            let before = deleted()?;
            let open = connected.open_in_volumes().await.map_err(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox.id = %self.id, error, "its agent does not say what is open");
                Failed::Refused(PauseError::AgentUnresponsive)
            })?;
            let open =
                kept(open).map_err(|gone| Failed::Refused(PauseError::DeletedFileOpen(gone)))?;
            connected.holdings.stand_still().await.map_err(Failed::internal)?;
            crashpoint(Point::VolumeHeld);
            match deleted()?.into_iter().find(|file| !before.contains(file)) {
                None => return Ok(open),
                Some((.., name)) => newly = name,
            }
            connected.holdings.let_go().await.map_err(Failed::internal)?;
        }
        Err(Failed::Refused(PauseError::DeletedFileOpen(inside(&newly.to_string_lossy()))))
    }
}

/// A name as the sentry has it, from the volume's root.
fn inside(name: &str) -> String {
    let name = name.strip_suffix(DELETED).unwrap_or(name);
    let numbered = name.split_once(VOLUMES_PATH).map_or(name, |(_, below)| below);
    let below = numbered.trim_start_matches('/').split_once('/');
    below.map_or(numbered, |(_number, path)| path).to_owned()
}

/// The name of one that is gone is an error.
fn kept(open: Vec<OpenFile>) -> Result<Vec<VolumeFile>, String> {
    let mut kept = Vec::new();
    for OpenFile { volume, path, is_gone } in open {
        if is_gone {
            return Err(path);
        }
        // The root is there as long as the volume is.
        if !path.is_empty() {
            kept.push(VolumeFile { volume, path });
        }
    }
    Ok(kept)
}

/// What a process has open on these devices, and no name leads to any more.
fn deleted(pid: i32, devices: &BTreeSet<u64>) -> io::Result<Deleted> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // One that is closed meanwhile is none.
        let (Ok(name), Ok(file)) = (fs::read_link(&path), fs::metadata(&path)) else { continue };
        if devices.contains(&file.dev()) && name.to_string_lossy().ends_with(DELETED) {
            found.insert((file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), name));
        }
    }
    Ok(found)
}

/// Whether all that was open is there; what was written to it meanwhile does no harm.
pub(super) async fn are_there(
    volumes: &Volumes,
    open: &[VolumeFile],
    mounts: &[VolumeMount],
) -> Result<(), CreateError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| CreateError::Runtime(error);
    for VolumeFile { volume, path } in open {
        let mount = usize::try_from(*volume).ok().and_then(|number| mounts.get(number));
        let (Some(mount), Ok(inside)) = (mount, path.parse::<VolumePath>()) else { continue };
        let files = volumes.open(mount.volume).await.map_err(|error| match error {
            VolumeError::DiskFull => CreateError::DiskFull,
            error @ (VolumeError::InUse
            | VolumeError::Gone
            | VolumeError::Unavailable
            | VolumeError::Internal(_)) => failed(error.into()),
        })?;
        match files.stat(&inside).await {
            Ok(_) => {}
            Err(VolumeFileError::NotFound | VolumeFileError::NotADirectory) => {
                return Err(CreateError::VolumeFileGone(format!("{}{inside}", mount.path)));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Order {
    Pause,
    Resume,
}

impl Holdings {
    /// Written down first, so that the next zone lets it go on.
    async fn stand_still(&mut self) -> Result<(), BringUpError> {
        self.record(|slot| slot.held = true)
            .map_err(BringUpError::at("write down that it stands still"))?;
        order(self.runsc()?, self.slot.container, Order::Pause).await
    }

    pub(super) async fn let_go(&mut self) -> Result<(), BringUpError> {
        let_go(self.runsc()?, self.slot.container).await?;
        self.goes_on()
    }

    pub(crate) fn goes_on(&mut self) -> Result<(), BringUpError> {
        self.record(|slot| slot.held = false)
            .map_err(BringUpError::at("write down that it goes on"))
    }
}

/// Only of one that stands still: any other may end of it.
pub(crate) async fn let_go(runsc: Runsc, container: ContainerId) -> Result<(), BringUpError> {
    order(runsc, container, Order::Resume).await
}

/// runsc's command line does not pause what its sentry was told to restore.
async fn order(runsc: Runsc, container: ContainerId, order: Order) -> Result<(), BringUpError> {
    if !runsc.is_spoken() {
        let command = match order {
            Order::Pause => "pause",
            Order::Resume => "resume",
        };
        let ordered = runsc.order(command, container).await;
        let Output { status, stdout, stderr } = ordered.map_err(BringUpError::at("run runsc"))?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        return Err(BringUpError::Runsc { status, said });
    }
    let ordered = tokio::task::spawn_blocking(move || {
        let mut sentry = Sentry::connect(runsc.root(), container)?;
        match order {
            Order::Pause => sentry.pause(),
            Order::Resume => sentry.resume(),
        }
    });
    let ordered = ordered.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked).into()));
    ordered.map_err(|source| BringUpError::Sentry { said: String::new(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentrys_names_are_told_as_the_volumes() {
        assert_eq!(inside("/root/.sandboxo/volumes/0/a/b (deleted)"), "a/b");
        assert_eq!(inside("/root/.sandboxo/volumes/12/a"), "a");
    }

    #[test]
    fn one_that_is_gone_is_named() {
        let file = |path: &str, is_gone| OpenFile { volume: 0, path: path.into(), is_gone };
        let whole = |path: &str| VolumeFile { volume: 0, path: path.into() };
        assert_eq!(kept(vec![file("", false), file("a/b", false)]), Ok(vec![whole("a/b")]));
        assert_eq!(kept(vec![file("a", false), file("b", true)]), Err("b".into()));
        assert_eq!(kept(vec![]), Ok(vec![]));
    }

    #[test]
    fn descriptors_without_a_name_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let [kept, gone] = ["kept", "gone"].map(|name| folder.path().join(name));
        let _open = [&kept, &gone].map(|path| fs::File::create(path).unwrap());
        let devices = BTreeSet::from([fs::metadata(folder.path()).unwrap().dev()]);
        let own = i32::try_from(std::process::id()).unwrap();
        let of_gone = || -> Deleted {
            let mut all = deleted(own, &devices).unwrap();
            all.retain(|(.., name)| name.to_string_lossy().contains("/gone"));
            all
        };
        assert_eq!(of_gone().len(), 0);
        fs::remove_file(&gone).unwrap();
        assert_eq!(of_gone().len(), 1);
        assert_eq!(of_gone(), of_gone());
    }
}
