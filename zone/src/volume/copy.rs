//! A volume with what another holds, as it was at one moment.

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{VolumeError, VolumeId};

use super::{UNFINISHED, Volumes, of_io};
use crate::{
    disk::{self, Still},
    fault::gone,
};

impl Volumes {
    /// Dropping the future ends it soon, and lets the other go.
    pub(crate) async fn copy(&self, id: VolumeId, of: VolumeId) -> Result<(), VolumeError> {
        if !self.contains(of) {
            return Err(VolumeError::Gone);
        }
        // Until the copy has ended, whoever waits for it or not.
        let turn = Arc::clone(&self.copying).lock_owned().await;
        let (image, unfinished) = (self.image(id), self.beside(id, UNFINISHED));
        if image.exists() {
            return Ok(());
        }
        // Open until it is copied: what is open is not removed.
        let root = self.root(of).await?;
        let (from, mounted, to) = (self.image(of), self.mount_point(of), unfinished.clone());
        let wanted = Wanted::default();
        let is_wanted = Arc::clone(&wanted.0);
        let copied = tokio::task::spawn_blocking(move || {
            let _until_then = (root, turn);
            let is_wanted = || is_wanted.load(Ordering::Relaxed);
            copied(&from, &mounted, &to, is_wanted)
                .inspect_err(|_| drop(gone(fs::remove_file(&to))))
        });
        copied.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked))).map_err(of_io)?;
        crashpoint(Point::VolumeCopied);
        self.keep(&unfinished, &image).map_err(of_io)
    }
}

fn copied(image: &Path, mounted: &Path, to: &Path, is_wanted: impl Fn() -> bool) -> io::Result<()> {
    let _still = Still::hold(mounted)?;
    crashpoint(Point::VolumeFrozen);
    disk::copy_sparse(image, to, is_wanted)
}

/// Until it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Default for Wanted {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
