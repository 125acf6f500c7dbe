//! What is kept of sandboxes to start others from: a folder for each, which is whole once it has
//! its name.
//!
//! ```text
//! checkpoints/ID.new/   while runsc writes
//! checkpoints/ID/       checkpoint.json, image/
//! ```
//!
//! Everything in it is on disk before anybody hears of it: a paused sandbox has nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{
    Checkpoint, CheckpointId, ImageDigest, Kept, SandboxId, Shape, Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{
    fault::gone,
    runsc::Features,
    sentry::ImageFiles,
    slot::{ProgramsRecord, write_whole},
};

const UNFINISHED: &str = "new";
/// In the folder that runsc is given.
const IMAGE: &str = "checkpoint.img";
const PLACES: &str = "pages_meta.img";
const PAGES: &str = "pages.img";
/// What a checkpoint takes beside memory and files.
const ALLOWANCE_MIB: u64 = 16;

/// All that a restore has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) format: u32,
    pub(crate) id: CheckpointId,
    pub(crate) sandbox: SandboxId,
    pub(crate) is_pause: bool,
    pub(crate) kept: Kept,
    pub(crate) at: Timestamp,
    pub(crate) size_bytes: u64,
    pub(crate) shape: Shape,
    /// What programs in it take for the boot's.
    pub(crate) boot_id: String,
    /// Images belong to one build of runsc, and have the agent's code in memory.
    pub(crate) programs: ProgramsRecord,
    /// Without one of these no restore succeeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) open_files: Vec<VolumeFile>,
}

/// In a volume of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeFile {
    /// The volume's number.
    pub(crate) volume: u32,
    pub(crate) path: String,
}

/// Which runsc can restore it: images belong to one build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuntimeMark {
    pub(crate) version: String,
    pub(crate) digest: String,
    pub(crate) features: Features,
}

impl Description {
    pub(crate) const FORMAT: u32 = 1;

    pub(crate) fn told(&self) -> Checkpoint {
        let &Self { id, kept, at, size_bytes, sandbox, is_pause, .. } = self;
        Checkpoint { id, kept, at, size_bytes, sandbox, is_pause }
    }
}

pub(crate) struct Checkpoints {
    folder: PathBuf,
    state: Mutex<State>,
    under_way: TaskTracker,
}

#[derive(Default)]
struct State {
    whole: BTreeMap<CheckpointId, Description>,
    /// What those that are being written may take.
    promised_mib: u64,
    is_draining: bool,
}

/// Held while a sandbox is saved, and until that is told.
pub(crate) type UnderWay = TaskTrackerToken;

/// Room on the disk for one that is being written.
pub(crate) struct Room<'a> {
    checkpoints: &'a Checkpoints,
    mib: u64,
}

impl Room<'_> {
    pub(crate) fn mib(&self) -> u64 {
        self.mib
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.checkpoints.state.lock().promised_mib -= self.mib;
    }
}

/// There is no room for one of `needed_mib`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub(crate) needed_mib: u64,
    pub(crate) free_mib: u64,
}

impl Checkpoints {
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut state = State::default();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some() {
                continue;
            }
            match describe(&path) {
                Ok(description) => {
                    state.whole.insert(description.id, description);
                }
                Err(error) => tracing::error!(
                    path = %path.display(),
                    error = &error as &dyn std::error::Error,
                    "a checkpoint can't be read, and is left where it is"
                ),
            }
        }
        Ok(Self { folder, state: Mutex::new(state), under_way: TaskTracker::new() })
    }

    pub(crate) fn get(&self, id: CheckpointId) -> Option<Description> {
        self.state.lock().whole.get(&id).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Checkpoint> {
        self.state.lock().whole.values().map(Description::told).collect()
    }

    /// The one that a sandbox was paused with last.
    pub(crate) fn of_pause(&self, sandbox: SandboxId) -> Option<Checkpoint> {
        let state = self.state.lock();
        let pauses = state.whole.values().filter(|it| it.is_pause && it.sandbox == sandbox);
        pauses.max_by_key(|it| it.at).map(Description::told)
    }

    /// Images that a restore needs.
    pub(crate) fn images(&self) -> BTreeSet<ImageDigest> {
        self.state.lock().whole.values().map(|it| it.shape.image).collect()
    }

    /// Digests of programs that a restore needs.
    pub(crate) fn programs(&self) -> BTreeSet<String> {
        let state = self.state.lock();
        let both = |it: &Description| [it.programs.agent.clone(), it.programs.runsc.digest.clone()];
        state.whole.values().flat_map(both).collect()
    }

    /// `None`: none is begun any more.
    pub(crate) fn enter(&self) -> Option<UnderWay> {
        let state = self.state.lock();
        (!state.is_draining).then(|| self.under_way.token())
    }

    /// Lets no more be begun, and waits for those under way.
    pub(crate) async fn drain(&self) {
        self.state.lock().is_draining = true;
        self.under_way.close();
        self.under_way.wait().await;
    }

    /// Before anything is touched: a disk that fills up while runsc writes costs the sandbox.
    pub(crate) fn room(&self, bytes: u64, free_mib: u64) -> Result<Room<'_>, NoRoom> {
        let needed_mib = (bytes >> 20) + ALLOWANCE_MIB;
        let mut state = self.state.lock();
        let free_mib = free_mib.saturating_sub(state.promised_mib);
        if needed_mib > free_mib {
            return Err(NoRoom { needed_mib, free_mib });
        }
        state.promised_mib += needed_mib;
        Ok(Room { checkpoints: self, mib: needed_mib })
    }

    /// Where runsc is to write.
    pub(crate) fn begin(&self, description: &Description) -> io::Result<PathBuf> {
        let folder = self.unfinished(description.id);
        let image = folder.join("image");
        fs::create_dir_all(&image)?;
        write_whole(&folder.join("checkpoint.json"), &serde_json::to_vec(description)?)?;
        Ok(image)
    }

    /// Of one that runsc has written. Nobody sees it before it is published.
    pub(crate) fn finish(&self, id: CheckpointId) -> io::Result<Description> {
        let unfinished = self.unfinished(id);
        let image = File::open(unfinished.join("image").join(IMAGE))?;
        if image.metadata()?.len() == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut size_bytes = 0;
        for file in fs::read_dir(unfinished.join("image"))? {
            let file = File::open(file?.path())?;
            size_bytes += file.metadata()?.len();
            file.sync_all()?;
        }
        let description = Description { size_bytes, ..describe(&unfinished)? };
        let record = unfinished.join("checkpoint.json");
        write_whole(&record, &serde_json::to_vec(&description)?)?;
        File::open(record)?.sync_all()?;
        File::open(unfinished.join("image"))?.sync_all()?;
        File::open(&unfinished)?.sync_all()?;
        crashpoint(Point::CheckpointWritten);
        fs::rename(&unfinished, self.place(id))?;
        File::open(&self.folder)?.sync_all()?;
        crashpoint(Point::CheckpointRenamed);
        Ok(description)
    }

    pub(crate) fn publish(&self, description: Description) {
        self.state.lock().whole.insert(description.id, description);
    }

    /// A snapshot becomes what its sandbox is paused with: the sandbox has nothing else any more.
    pub(crate) fn make_pause(&self, id: CheckpointId) -> io::Result<Description> {
        let place = self.place(id);
        let description = Description { is_pause: true, ..describe(&place)? };
        write_whole(&place.join("checkpoint.json"), &serde_json::to_vec(&description)?)?;
        Ok(description)
    }

    pub(crate) fn is_whole(&self, id: CheckpointId) -> bool {
        self.place(id).is_dir()
    }

    /// One that is not whole.
    pub(crate) fn give_up(&self, id: CheckpointId) {
        if let Err(error) = gone(fs::remove_dir_all(self.unfinished(id))) {
            tracing::warn!(error = &error as &dyn std::error::Error, "remove half a checkpoint");
        }
    }

    pub(crate) fn discard(&self, id: CheckpointId) -> io::Result<()> {
        self.state.lock().whole.remove(&id);
        // Out of its name first: what is removed halfway must not be found.
        let going = self.unfinished(id);
        gone(fs::rename(self.place(id), &going))?;
        gone(fs::remove_dir_all(going))
    }

    /// What was cut off, once nobody may want to finish it.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                gone(fs::remove_dir_all(path))?;
            }
        }
        Ok(())
    }

    /// How many there are of each shape that these programs can go on with.
    pub(crate) fn shapes(&self, programs: &ProgramsRecord) -> BTreeMap<Shape, u32> {
        let mut shapes = BTreeMap::new();
        for it in self.state.lock().whole.values().filter(|it| it.programs.is_same(programs)) {
            *shapes.entry(it.shape).or_default() += 1;
        }
        shapes
    }

    pub(crate) fn image_files(&self, id: CheckpointId) -> io::Result<ImageFiles> {
        let folder = self.image(id);
        let open = |name| File::open(folder.join(name)).map(OwnedFd::from);
        let pages = match open(PAGES) {
            Ok(pages) => Some((open(PLACES)?, pages)),
            // An image of the time when all was in one file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(ImageFiles { state: open(IMAGE)?, pages })
    }

    /// The folder that runsc reads.
    pub(crate) fn image(&self, id: CheckpointId) -> PathBuf {
        self.place(id).join("image")
    }

    fn place(&self, id: CheckpointId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    fn unfinished(&self, id: CheckpointId) -> PathBuf {
        self.place(id).with_extension(UNFINISHED)
    }
}

fn describe(folder: &Path) -> io::Result<Description> {
    let description: Description =
        serde_json::from_slice(&fs::read(folder.join("checkpoint.json"))?)?;
    if description.format != Description::FORMAT {
        let format = description.format;
        return Err(io::Error::other(format!("unknown checkpoint format {format}")));
    }
    Ok(description)
}

#[cfg(test)]
mod tests;
