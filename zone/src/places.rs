//! Where the volumes of a sandbox are attached, before it starts or while it runs.
//!
//! ```text
//! run/p/CONTAINER/0, 1, …   folders, which the zone makes
//! run/a                     the same, read-only and shared: run/a/CONTAINER is given to runsc
//! run/a/CONTAINER/0         where a volume is mounted; the sandbox sees it by propagation
//! ```
//!
//! The sandbox has all of it below one folder, where it can write to volumes alone; its agent binds
//! each to the path that was asked for.

use std::{fs, io, path::Path};

use nix::mount::{MsFlags, mount};

use crate::{
    config::{Layout, SlotPaths},
    disk,
    fault::gone,
};

/// Once for the zone. A repeat changes nothing.
pub(crate) fn offer(layout: &Layout) -> io::Result<()> {
    let (places, attached) = (layout.places(), layout.attached());
    fs::create_dir_all(&places)?;
    fs::create_dir_all(&attached)?;
    if !disk::mount_points()?.contains(&attached) {
        mount(Some(&places), &attached, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    let read_only = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV;
    mount(None::<&str>, &attached, None::<&str>, read_only, None::<&str>)?;
    mount(None::<&str>, &attached, None::<&str>, MsFlags::MS_SHARED, None::<&str>)?;
    Ok(())
}

/// Of one sandbox, before runsc is called.
pub(crate) fn make(paths: &SlotPaths) -> io::Result<()> {
    fs::create_dir_all(&paths.places)
}

/// A sandbox that runs has it from here on. Programs in volumes run: no `MS_NOEXEC`.
pub(crate) fn attach(paths: &SlotPaths, number: usize, volume: &Path) -> io::Result<()> {
    let number = number.to_string();
    fs::create_dir_all(paths.places.join(&number))?;
    let at = paths.attached.join(&number);
    // The flags of the volume's own mount are kept by a bind.
    mount(Some(volume), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    Ok(())
}

/// Of a sandbox that is gone: busy until then. A repeat is a success.
pub(crate) fn clear(paths: &SlotPaths) -> io::Result<()> {
    let places = match fs::read_dir(&paths.places) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        places => places?,
    };
    for place in places {
        let place = place?;
        disk::detach(&paths.attached.join(place.file_name()))?;
        gone(fs::remove_dir(place.path()))?;
    }
    gone(fs::remove_dir(&paths.places))
}
