//! Volumes on this host: each a sparse ext4 image of its own, mounted when it is first used.
//!
//! Its size is the limit of what is in it, whoever writes: clients by the files, sandboxes by
//! their mounts.

mod copy;
mod files;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};
use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{VolumeError, VolumeFiles, VolumeId};
use tokio::time::{Instant, sleep};

use crate::{
    config::Layout,
    disk::{self, DiskError},
    fault::{gone, is_full},
};
use files::Files;

/// In the name of what is not finished, or not removed yet.
const UNFINISHED: &str = ".new";
const REMOVED: &str = ".gone";
/// How long files that are being read or written hold up a removal.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);
const LET_GO_POLL: Duration = Duration::from_millis(50);
/// What outlives a crash of the host needs a journal; the tables are written when they are needed.
const MKFS: [&str; 5] = [
    "-O",
    "has_journal,^resize_inode,^quota",
    "-E",
    "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
    "-q",
];
/// What is deleted is given back to the host.
const MOUNT: &str = "discard";

pub(crate) struct Volumes {
    images: PathBuf,
    mounts: PathBuf,
    /// Those that are mounted, by their roots.
    open: Mutex<BTreeMap<VolumeId, Arc<OwnedFd>>>,
    /// Those that go: nobody gets them any more.
    doomed: Mutex<BTreeSet<VolumeId>>,
    /// One at a time is made, mounted or removed.
    changing: tokio::sync::Mutex<()>,
    /// And one is copied.
    copying: Arc<tokio::sync::Mutex<()>>,
}

impl Volumes {
    /// Removes what an earlier process left half made or half removed.
    pub(crate) fn new(layout: &Layout) -> io::Result<Self> {
        let volumes = Self {
            images: layout.volumes(),
            mounts: layout.volume_mounts(),
            open: Mutex::default(),
            doomed: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            copying: Arc::default(),
        };
        for folder in [&volumes.images, &volumes.mounts] {
            fs::create_dir_all(folder)?;
        }
        for point in disk::mount_points()?.iter().filter(|it| it.parent() == Some(&volumes.mounts))
        {
            disk::let_go(point)?;
        }
        for entry in fs::read_dir(&volumes.images)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(id) = name.strip_suffix(REMOVED) {
                disk::unmount(&volumes.mounts.join(id))?;
            }
            if name.ends_with(REMOVED) || name.ends_with(UNFINISHED) {
                gone(fs::remove_file(&path))?;
            }
        }
        Ok(volumes)
    }

    pub(crate) async fn make(&self, id: VolumeId, size_mib: u32) -> Result<(), VolumeError> {
        let image = self.image(id);
        let _one_at_a_time = self.changing.lock().await;
        if image.exists() {
            return Ok(());
        }
        let unfinished = self.beside(id, UNFINISHED);
        disk::make_file_system(&unfinished, u64::from(size_mib), &MKFS).await.map_err(of_disk)?;
        crashpoint(Point::VolumeFormatted);
        self.keep(&unfinished, &image).map_err(of_io)
    }

    fn keep(&self, unfinished: &Path, image: &Path) -> io::Result<()> {
        fs::File::open(unfinished)?.sync_all()?;
        fs::rename(unfinished, image)?;
        fs::File::open(&self.images)?.sync_all()
    }

    /// What it takes on the host, in MiB.
    pub(crate) fn weight_mib(&self, id: VolumeId) -> io::Result<u64> {
        // Blocks are of 512 bytes here, whatever the file system's own are.
        Ok((fs::metadata(self.image(id))?.blocks() * 512).div_ceil(1 << 20))
    }

    pub(crate) fn contains(&self, id: VolumeId) -> bool {
        !self.doomed.lock().contains(&id) && self.image(id).exists()
    }

    /// What comes for it from here on is refused, until a removal has failed.
    pub(crate) fn doom(&self, id: VolumeId) {
        self.doomed.lock().insert(id);
    }

    pub(crate) async fn open(&self, id: VolumeId) -> Result<Arc<dyn VolumeFiles>, VolumeError> {
        Ok(Arc::new(Files::new(self.root(id).await?)))
    }

    /// Where all of it is.
    pub(crate) async fn mounted(&self, id: VolumeId) -> Result<PathBuf, VolumeError> {
        self.root(id).await?;
        Ok(self.mount_point(id))
    }

    async fn root(&self, id: VolumeId) -> Result<Arc<OwnedFd>, VolumeError> {
        if let Some(root) = self.open.lock().get(&id) {
            return Ok(root.clone());
        }
        let _one_at_a_time = self.changing.lock().await;
        if let Some(root) = self.open.lock().get(&id) {
            return Ok(root.clone());
        }
        let (image, at) = (self.image(id), self.mount_point(id));
        let mounted = tokio::task::spawn_blocking(move || mounted(&image, &at)).await;
        let root = mounted.unwrap_or_else(|panicked| Err(of_io(io::Error::other(panicked))))?;
        let root = Arc::new(root);
        self.open.lock().insert(id, root.clone());
        Ok(root)
    }

    pub(crate) async fn remove(&self, id: VolumeId) -> Result<(), VolumeError> {
        let removed = self.remove_all(id).await;
        self.doomed.lock().remove(&id);
        removed
    }

    async fn remove_all(&self, id: VolumeId) -> Result<(), VolumeError> {
        let _one_at_a_time = self.changing.lock().await;
        self.open.lock().remove(&id);
        let give_up = Instant::now() + LET_GO_WITHIN;
        let at = self.mount_point(id);
        loop {
            match disk::unmount(&at) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() != Some(nix::libc::EBUSY) => {
                    return Err(of_io(error));
                }
                Err(_busy) if Instant::now() > give_up => return Err(VolumeError::InUse),
                Err(_busy) => sleep(LET_GO_POLL).await,
            }
        }
        crashpoint(Point::VolumeUnmounted);
        // It is gone with one step, and its bytes after that.
        let removed = self.beside(id, REMOVED);
        gone(fs::rename(self.image(id), &removed)).map_err(of_io)?;
        let removed = tokio::task::spawn_blocking(move || gone(fs::remove_file(removed))).await;
        removed.unwrap_or_else(|panicked| Err(io::Error::other(panicked))).map_err(of_io)
    }

    fn image(&self, id: VolumeId) -> PathBuf {
        self.images.join(id.to_string())
    }

    fn beside(&self, id: VolumeId, what: &str) -> PathBuf {
        self.images.join(format!("{id}{what}"))
    }

    fn mount_point(&self, id: VolumeId) -> PathBuf {
        self.mounts.join(id.to_string())
    }
}

/// Its root. An earlier process may have mounted it.
fn mounted(image: &Path, at: &Path) -> Result<OwnedFd, VolumeError> {
    fs::create_dir_all(at).map_err(of_io)?;
    if !disk::mount_points().map_err(of_io)?.iter().any(|point| point == at) {
        disk::mount_image(image, at, MOUNT).map_err(of_disk)?;
        settle(at).map_err(of_io)?;
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(at, flags, Mode::empty()).map_err(|errno| of_io(errno.into()))
}

/// What mkfs makes for lost files is nothing that anybody put there; as long as it is there, nobody
/// has used the volume.
fn settle(root: &Path) -> io::Result<()> {
    let lost = root.join("lost+found");
    if !lost.try_exists()? {
        return Ok(());
    }
    files::give_root(&fs::File::open(root)?).map_err(io::Error::other)?;
    match fs::remove_dir(lost) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            tracing::warn!("files that a check of a volume found stay in its lost+found");
            Ok(())
        }
        removed => removed,
    }
}

fn of_io(error: io::Error) -> VolumeError {
    if is_full(&error) { VolumeError::DiskFull } else { VolumeError::Internal(error.into()) }
}

fn of_disk(error: DiskError) -> VolumeError {
    match error {
        DiskError::Full => VolumeError::DiskFull,
        error @ (DiskError::Mkfs(_) | DiskError::Io { .. }) => VolumeError::Internal(error.into()),
    }
}
