//! Images of registries: their layers, one over the other.
//!
//! A layer is unpacked once it is on the disk and known to be what the manifest says. What it
//! takes away of those below it is taken before it is unpacked, so what it has itself stays.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Seek as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandboxo_archive::{decoded, each};
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_registry::{Found, Registries};
use sandboxo_zone_protocol::{
    ImageDigest, ImageInfo, ImportError, Pull, PullError, Pulled, Random,
};

use super::{
    About, Images, Unfinished,
    root::Root,
    storing,
    unpack::{Of, Space, damaged, make_places, unpack},
};

const WHITEOUT: &[u8] = b".wh.";
/// Behind the mark: everything that is in the folder.
const OPAQUE: &[u8] = b".wh..opq";

impl Images {
    pub(crate) async fn pull(
        &self,
        registries: &Registries,
        Pull { source, credentials }: Pull,
        max_mib: u64,
        random: &dyn Random,
    ) -> Result<Pulled, PullError> {
        if max_mib == 0 {
            return Err(PullError::Off);
        }
        let found = registries.find(&source, credentials).await?;
        // Those that want the same at the same time wait for the first.
        let pulling = {
            let mut pulling = self.pulling.lock();
            pulling.retain(|_digest, lock| Arc::strong_count(lock) > 1);
            Arc::clone(pulling.entry(found.digest).or_default())
        };
        let _one_at_a_time = pulling.lock().await;
        if self.contains(found.digest) {
            let About { size_bytes } = self.about(found.digest).map_err(internal)?;
            let image = ImageInfo { digest: found.digest, size_bytes };
            return Ok(Pulled { image, env: found.env, was_here: true });
        }
        let image = self.bring(&found, max_mib, random).await?;
        Ok(Pulled { image, env: found.env, was_here: false })
    }

    async fn bring(
        &self,
        found: &Found,
        max_mib: u64,
        random: &dyn Random,
    ) -> Result<ImageInfo, PullError> {
        let max_bytes = max_mib << 20;
        let sent = found.layers.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
        if sent > max_bytes {
            return Err(PullError::TooLarge { max_mib });
        }
        let free =
            crate::disk::free_mib(&self.folder).map_err(|error| internal(Box::new(error)))?;
        if free < self.reserve_mib.saturating_add(sent >> 20) {
            return Err(PullError::DiskFull);
        }
        let unfinished = Arc::new(self.unfinished(random));
        fs::create_dir_all(unfinished.rootfs()).map_err(|error| internal(Box::new(error)))?;
        let mut written = 0;
        let mut next = Some(unfinished.download(found, 0).await?);
        let mut at = 0;
        while let Some(archive) = next {
            let (images, place) = (self.clone(), Arc::clone(&unfinished));
            let unpacked = tokio::task::spawn_blocking(move || {
                let mut layer = File::open(&archive).map_err(storing)?;
                let written = images.apply(&mut layer, at, &place, max_bytes, written)?;
                fs::remove_file(&archive).map_err(storing)?;
                Ok::<_, ImportError>(written)
            });
            at += 1;
            let unpacked = async {
                let joined = unpacked.await.map_err(|error| internal(Box::new(error)))?;
                joined.map_err(of_import)
            };
            let coming = async {
                if at < found.layers.len() {
                    unfinished.download(found, at).await.map(Some)
                } else {
                    Ok(None)
                }
            };
            (written, next) = tokio::try_join!(unpacked, coming)?;
        }
        let (images, digest) = (self.clone(), found.digest);
        let settled = tokio::task::spawn_blocking(move || {
            let root = Root::open(&unfinished.rootfs()).map_err(storing)?;
            make_places(&root)?;
            crashpoint(Point::ImportUnpacked);
            images.settle(&unfinished, &root, digest, written)
        });
        settled.await.map_err(|error| internal(Box::new(error)))?.map_err(of_import)
    }

    /// Gives how much is written now.
    pub(super) fn apply(
        &self,
        layer: &mut File,
        at: usize,
        place: &Unfinished,
        max_bytes: u64,
        written: u64,
    ) -> Result<u64, ImportError> {
        let root = Root::open(&place.rootfs()).map_err(storing)?;
        let space = Space { folder: &self.folder, reserve_mib: self.reserve_mib, max_bytes };
        if at > 0 {
            take_away(&mut *decoded(layer).map_err(ImportError::Read)?, &root, &space)?;
            layer.rewind().map_err(storing)?;
        }
        let mut layer = decoded(layer).map_err(ImportError::Read)?;
        unpack(&mut *layer, &root, &space, Of::Layer, written)
    }

    fn about(
        &self,
        digest: ImageDigest,
    ) -> Result<About, Box<dyn std::error::Error + Send + Sync>> {
        let text = fs::read(self.place(digest).join("image.json"))?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl Unfinished {
    pub(super) fn rootfs(&self) -> PathBuf {
        self.0.join("rootfs")
    }

    async fn download(&self, found: &Found, at: usize) -> Result<PathBuf, PullError> {
        let archive = self.0.join(format!("layer-{at}"));
        if let Some(layer) = found.layers.get(at) {
            found.download(layer, &archive).await?;
        }
        Ok(archive)
    }
}

pub(super) fn is_whiteout(inside: &Path) -> bool {
    hidden(inside).is_some()
}

/// The name that is taken away: in which folder, and what is behind the mark.
fn hidden(inside: &Path) -> Option<(&Path, &OsStr)> {
    let name = inside.file_name()?.as_bytes().strip_prefix(WHITEOUT)?;
    Some((inside.parent().unwrap_or_else(|| Path::new("")), OsStr::from_bytes(name)))
}

/// What the layer says is not there any more.
fn take_away(tar: &mut dyn io::Read, root: &Root, space: &Space<'_>) -> Result<(), ImportError> {
    each(tar, space.most(), damaged, |entry| {
        let path = entry.path().map_err(ImportError::Read)?.into_owned();
        let inside = path.strip_prefix("/").unwrap_or(&path);
        let Some((above, name)) = hidden(inside) else { return Ok(()) };
        let climbs = above.components().any(|it| it == std::path::Component::ParentDir);
        if climbs || matches!(name.as_bytes(), b"" | b"." | b"..") {
            return Err(ImportError::Rejected(format!("{}: takes away nothing", path.display())));
        }
        let folder = match root.known_folder(above) {
            Ok(folder) => folder,
            Err(error) if is_nothing(&error) => return Ok(()),
            Err(error) => return Err(storing(error)),
        };
        let gone = if name.as_bytes() == OPAQUE {
            folder
                .names()
                .and_then(|names| names.iter().try_for_each(|name| folder.remove_tree(name)))
        } else {
            folder.remove_tree(name)
        };
        match gone {
            Err(error) if !is_nothing(&error) => Err(storing(error)),
            _ => Ok(()),
        }
    })
}

/// It comes with this layer, or never was.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn internal(error: Box<dyn std::error::Error + Send + Sync>) -> PullError {
    PullError::Internal(error)
}

fn of_import(error: ImportError) -> PullError {
    match error {
        ImportError::Rejected(why) => PullError::Unusable(why),
        // Of a file that is whole: its packing is damaged.
        ImportError::Read(error) => PullError::Unusable(error.to_string()),
        ImportError::TooLarge { max_mib } => PullError::TooLarge { max_mib },
        ImportError::DiskFull => PullError::DiskFull,
        ImportError::Internal(error) => PullError::Internal(error),
    }
}

#[cfg(test)]
mod tests;
