//! Images: root file systems by the digest of the stream that they came in, as they are or in
//! layers, or of the manifest that a registry has of them.
//!
//! An image is unpacked beside its place and renamed into it, so one that is there is whole. What
//! an interrupted import left is removed at the next start; `collect` says when an image goes.

use std::{collections::BTreeMap, fs, io, io::Read, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sandboxo_archive::decoded;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{Clock, ImageDigest, ImageInfo, ImportError, Imported, Random};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{io::AsyncRead, sync::Notify};
use tokio_util::io::SyncIoBridge;

use crate::{
    fault::{gone, is_full},
    slot::write_whole,
};

mod archived;
mod collect;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod layers;
mod root;
mod unpack;

pub(crate) const UNFINISHED: &str = ".unfinished-";

#[derive(Clone)]
pub(crate) struct Images {
    folder: PathBuf,
    /// Stays free in the folder's file system.
    reserve_mib: u64,
    /// How long an image stays that nobody may ask for.
    grace: Duration,
    clock: Arc<dyn Clock>,
    unwanted: Arc<Mutex<collect::Unwanted>>,
    pulling: Arc<Mutex<BTreeMap<ImageDigest, Arc<tokio::sync::Mutex<()>>>>>,
    /// There may be something to collect.
    pub(crate) nudge: Arc<Notify>,
}

/// Beside the root file system.
#[derive(Serialize, Deserialize)]
struct About {
    size_bytes: u64,
}

impl Images {
    /// Removes what interrupted imports left.
    pub(crate) fn open(
        folder: PathBuf,
        reserve_mib: u64,
        grace: Duration,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let (unwanted, pulling, nudge) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { folder, reserve_mib, grace, clock, unwanted, pulling, nudge })
    }

    /// Whether it is there, and for a while to come.
    pub(crate) fn contains(&self, digest: ImageDigest) -> bool {
        let mut unwanted = self.unwanted.lock();
        unwanted.asked_for(digest, self.clock.now());
        self.place(digest).is_dir()
    }

    pub(crate) async fn import(
        &self,
        tar: Box<dyn AsyncRead + Send + Unpin>,
        random: &dyn Random,
    ) -> Result<Imported, ImportError> {
        let unfinished = self.unfinished(random);
        let images = self.clone();
        let reader = SyncIoBridge::new(tar);
        tokio::task::spawn_blocking(move || images.unpack(reader, &unfinished))
            .await
            .map_err(internal)?
    }

    fn unfinished(&self, random: &dyn Random) -> Unfinished {
        let mut name = [0; 8];
        random.fill(&mut name);
        let name = format!("{UNFINISHED}{:016x}", u64::from_ne_bytes(name));
        Unfinished(self.folder.join(name))
    }

    fn unpack(&self, tar: impl Read, unfinished: &Unfinished) -> Result<Imported, ImportError> {
        fs::create_dir_all(unfinished.rootfs()).map_err(storing)?;
        let root = root::Root::open(&unfinished.rootfs()).map_err(storing)?;
        let mut stream = Hashed { inner: tar, hash: Sha256::new() };
        let space = unpack::Space {
            folder: &self.folder,
            reserve_mib: self.reserve_mib,
            // The operator's own: as much as there is room for.
            max_bytes: u64::MAX,
        };
        let size_bytes = match decoded(&mut stream) {
            Err(error) => return Err(ImportError::Read(error)),
            Ok(mut decoded) => {
                let size_bytes = unpack::unpack(&mut *decoded, &root, &space, unpack::Of::Root, 0)?;
                // A tar ends before its stream does, and the digest is of the whole stream.
                io::copy(&mut decoded, &mut io::sink()).map_err(ImportError::Read)?;
                size_bytes
            }
        };
        io::copy(&mut stream, &mut io::sink()).map_err(ImportError::Read)?;
        let digest = ImageDigest::from_bytes(stream.hash.finalize().into());
        let (root, size_bytes, defaults) = match archived::look(&root)? {
            None => (root, size_bytes, None),
            Some(mut archived) => {
                let (root, size_bytes) = self.unpack_layers(&mut archived, unfinished)?;
                (root, size_bytes, Some(archived.defaults))
            }
        };
        unpack::make_places(&root)?;
        crashpoint(Point::ImportUnpacked);
        let image = self.settle(unfinished, &root, digest, size_bytes)?;
        Ok(Imported { image, defaults })
    }

    /// It gets its place: what is there is whole.
    fn settle(
        &self,
        unfinished: &Unfinished,
        root: &root::Root,
        digest: ImageDigest,
        size_bytes: u64,
    ) -> Result<ImageInfo, ImportError> {
        let about = serde_json::to_vec(&About { size_bytes }).map_err(internal)?;
        write_whole(&unfinished.0.join("image.json"), &about).map_err(storing)?;
        root.sync().map_err(storing)?;
        crashpoint(Point::ImportDescribed);
        match fs::rename(&unfinished.0, self.place(digest)) {
            Ok(()) => {}
            // The same stream was imported before, or by another at the same time.
            Err(_) if self.contains(digest) => {}
            Err(error) => return Err(storing(error)),
        }
        crashpoint(Point::ImportRenamed);
        Ok(ImageInfo { digest, size_bytes })
    }

    fn place(&self, digest: ImageDigest) -> PathBuf {
        self.folder.join(digest.to_string())
    }
}

/// Removes itself unless it was renamed away.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Err(error) = gone(fs::remove_dir_all(&self.0)) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an unfinished import stays until the next start"
            );
        }
    }
}

struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> ImportError {
    ImportError::Internal(Box::new(error))
}

fn storing(error: io::Error) -> ImportError {
    if is_full(&error) { ImportError::DiskFull } else { internal(error) }
}

#[cfg(test)]
mod tests;
