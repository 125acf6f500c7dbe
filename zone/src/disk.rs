//! A sandbox's own disk: a sparse ext4 image on a loop device.
//!
//! Its size is the limit of the private layer: a full one gives the guest ENOSPC, and deleting
//! frees it again. The file system is made once for each size and copied, holes and all.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::copy_file_range,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{Whence, lseek},
};

use crate::fault::{gone, is_full};

/// Grows when an empty file system is made in another way.
const FORMAT: u32 = 1;
/// What ext4 keeps for itself on top of what was asked for.
const OVERHEAD_MIB: u64 = 4;
/// Of a private layer: nothing in it outlives a crash of the host, it never grows, and one file
/// fills it.
const PRIVATE: [&str; 6] = [
    "-N",
    "64",
    "-O",
    "^has_journal,^resize_inode,^dir_index,^quota",
    "-E",
    "nodiscard,lazy_itable_init=1",
];
/// Nobody who gives up waits for more of a copy.
const COPIED_AT_ONCE: usize = 64 << 20;
const MKFS_TIMEOUT: Duration = Duration::from_mins(1);
/// Another process may take the free loop device that the kernel named.
const LOOP_ATTEMPTS: u32 = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("the disk is full")]
    Full,
    #[error("make an empty file system: {0}")]
    Mkfs(String),
    #[error("{doing}")]
    Io { doing: &'static str, source: io::Error },
}

impl DiskError {
    fn at(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| if is_full(&source) { Self::Full } else { Self::Io { doing, source } }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    pub(crate) used: u64,
    pub(crate) total: u64,
}

/// Makes disks.
#[derive(Debug)]
pub(crate) struct Disks {
    templates: PathBuf,
    /// One `mkfs` at a time, so that two creates don't make one template.
    making: tokio::sync::Mutex<()>,
}

impl Disks {
    pub(crate) fn new(templates: PathBuf) -> Self {
        Self { templates, making: tokio::sync::Mutex::new(()) }
    }

    /// A mounted empty disk. The loop device frees itself when nothing has it mounted. What a
    /// failure leaves is named by the two paths.
    pub(crate) async fn make(
        &self,
        image: PathBuf,
        at: PathBuf,
        size_mib: u32,
    ) -> Result<(), DiskError> {
        let template = self.template(size_mib).await?;
        blocking(move || {
            copy_sparse(&template, &image, || true)
                .map_err(DiskError::at("copy the empty file system"))?;
            fs::create_dir_all(&at).map_err(DiskError::at("make the mount point"))?;
            mount_image(&image, &at, "nodiscard")
        })
        .await
    }

    async fn template(&self, size_mib: u32) -> Result<PathBuf, DiskError> {
        let path = self.templates.join(format!("ext4-{FORMAT}-{size_mib}.img"));
        let _one_at_a_time = self.making.lock().await;
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(&self.templates).map_err(DiskError::at("make the templates' folder"))?;
        let unfinished = path.with_extension("new");
        make_file_system(&unfinished, u64::from(size_mib) + OVERHEAD_MIB, &PRIVATE).await?;
        fs::rename(&unfinished, &path).map_err(DiskError::at("keep the empty file system"))?;
        Ok(path)
    }
}

pub(crate) async fn make_file_system(
    path: &Path,
    size_mib: u64,
    features: &[&str],
) -> Result<(), DiskError> {
    let file = File::create(path).map_err(DiskError::at("make an image file"))?;
    file.set_len(size_mib << 20).map_err(DiskError::at("size an image file"))?;
    drop(file);
    let mkfs = tokio::process::Command::new("mkfs.ext4")
        .args(["-q", "-F", "-m", "0", "-b", "4096"])
        .args(features)
        .arg(path)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(output) = tokio::time::timeout(MKFS_TIMEOUT, mkfs).await else {
        return Err(DiskError::Mkfs(format!("mkfs.ext4 did not end within {MKFS_TIMEOUT:?}")));
    };
    let output = output.map_err(DiskError::at("run mkfs.ext4 (package e2fsprogs)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(DiskError::Mkfs(format!("mkfs.ext4: {}: {said}", output.status)));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panicked| {
        Err(DiskError::Io { doing: "make a disk", source: io::Error::other(panicked) })
    })
}

/// Copies the data and leaves the holes; where the host's file system can, both share their blocks.
pub(crate) fn copy_sparse(from: &Path, to: &Path, is_wanted: impl Fn() -> bool) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().write(true).create(true).truncate(true).open(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let mut at = 0;
    while at < length {
        let start = match lseek(&source, at, Whence::SeekData) {
            Err(Errno::ENXIO) => break,
            start => start?,
        };
        at = lseek(&source, start, Whence::SeekHole)?;
        let (mut read_at, mut write_at) = (start, start);
        while read_at < at {
            if !is_wanted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left = usize::try_from(at - read_at).unwrap_or(usize::MAX).min(COPIED_AT_ONCE);
            let copied =
                copy_file_range(&source, Some(&mut read_at), &target, Some(&mut write_at), left)?;
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}

pub(crate) fn mount_image(image: &Path, at: &Path, options: &str) -> Result<(), DiskError> {
    let backing = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .map_err(DiskError::at("open the disk image"))?;
    // Held until the mount has it: the device frees itself with its last user.
    let device = attach_loop(&backing, image).map_err(DiskError::at("attach a loop device"))?;
    mount(
        Some(&device.path),
        at,
        Some("ext4"),
        // No `MS_NOEXEC`: programs that a sandbox writes are mapped from here.
        MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOATIME,
        Some(options),
    )
    .map_err(|errno| DiskError::at("mount the disk")(errno.into()))
}

struct LoopDevice {
    path: PathBuf,
    _open: File,
}

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

#[expect(unsafe_code, reason = "the loop driver speaks ioctl")]
fn attach_loop(backing: &File, image: &Path) -> io::Result<LoopDevice> {
    let control = File::open("/dev/loop-control")?;
    let mut file_name = [0; 64];
    // For people who read `losetup -l`; the kernel also tells the whole path.
    for (to, from) in file_name.iter_mut().take(63).zip(image.as_os_str().as_bytes()) {
        *to = *from;
    }
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).unwrap_or(u32::MAX),
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    for _attempt in 0..LOOP_ATTEMPTS {
        // SAFETY: takes no argument, gives a number or -1.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        // SAFETY: the structure has the layout that the call reads, and outlives it.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
        if done == 0 {
            return Ok(LoopDevice { path, _open: device });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
    }
    Err(io::Error::other("others took every free loop device"))
}

/// What the guest has written, and how much it may.
pub(crate) fn usage(mount: &Path, size_mib: u32) -> io::Result<DiskUsage> {
    let stat = nix::sys::statvfs::statvfs(mount)?;
    let free = stat.blocks_free() * stat.fragment_size();
    let total = u64::from(size_mib) << 20;
    let whole = stat.blocks() * stat.fragment_size();
    Ok(DiskUsage { used: whole.saturating_sub(free).min(total), total })
}

/// Free space of the file system that holds `path`, in MiB.
pub(crate) fn free_mib(path: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)?;
    Ok((stat.blocks_available() * stat.fragment_size()) >> 20)
}

/// Unmounts, and removes the mount point. A repeat is a success.
pub(crate) fn release(mount: &Path) -> io::Result<()> {
    // What was written and is not on the image yet need not get there.
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        if entry.file_type()?.is_file() {
            gone(fs::remove_file(entry.path()))?;
        }
    }
    unmount(mount)
}

/// With the mount point. A repeat is a success.
pub(crate) fn unmount(mount: &Path) -> io::Result<()> {
    detach(mount)?;
    gone(fs::remove_dir(mount))
}

/// A mounted file system that nobody changes: what is written to it is on its image, and whoever
/// writes waits until this is dropped. It outlives the process that it is dropped in.
pub(crate) struct Still(File);

impl Still {
    pub(crate) fn hold(mount: &Path) -> io::Result<Self> {
        let root = File::open(mount)?;
        still(&root, FIFREEZE)?;
        Ok(Self(root))
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        if let Err(error) = still(&self.0, FITHAW) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "a volume stands still until the next start");
        }
    }
}

/// What an earlier process held still. Of others it is a success.
pub(crate) fn let_go(mount: &Path) -> io::Result<()> {
    match still(&File::open(mount)?, FITHAW) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        let_go => let_go,
    }
}

/// `_IOWR('X', 119, int)` and the one after it, of linux/fs.h.
const FIFREEZE: libc::c_ulong = 0xc004_5877;
const FITHAW: libc::c_ulong = 0xc004_5878;

#[expect(unsafe_code, reason = "a file system is held still by ioctl")]
fn still(root: &File, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: neither reads its argument.
    Errno::result(unsafe { libc::ioctl(root.as_raw_fd(), request, 0) })?;
    Ok(())
}

/// All that is mounted there. A repeat is a success.
pub(crate) fn detach(mount: &Path) -> io::Result<()> {
    loop {
        match umount2(mount, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Not mounted, or not there.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A folder whose mounts reach every mount namespace that is made after this call. The keeper's
/// is one, and where the host's mounts are private its runsc would not see a disk mounted later.
pub(crate) fn share(folder: &Path) -> io::Result<()> {
    if !mount_points()?.iter().any(|point| point == folder) {
        mount(Some(folder), folder, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    mount(None::<&str>, folder, None::<&str>, MsFlags::MS_SHARED, None::<&str>)?;
    Ok(())
}

/// Unmounts everything at and below a folder, and removes the folder.
pub(crate) fn release_all(folder: &Path) -> io::Result<()> {
    for point in mount_points()?.iter().filter(|point| point.starts_with(folder)).rev() {
        match umount2(point, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    gone(fs::remove_dir_all(folder))
}

/// In the order in which they were made.
pub(crate) fn mount_points() -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).collect())
}

/// Spaces and the like stand as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = tail.get(if octal.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::fs::{FileExt, MetadataExt},
    };

    use super::*;

    #[test]
    fn a_copy_keeps_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"middle", 512 << 20).unwrap();
        copy_sparse(&from, &to, || true).unwrap();
        copy_sparse(&from, &folder.path().join("unwanted"), || false).unwrap_err();
        let copy = fs::metadata(&to).unwrap();
        assert_eq!(copy.len(), 1 << 30);
        assert!(copy.blocks() * 512 < 1 << 20, "{} blocks", copy.blocks());
        let mut read = [0; 6];
        File::open(&to).unwrap().read_exact_at(&mut read, 512 << 20).unwrap();
        assert_eq!(&read, b"middle");
    }

    #[test]
    fn mount_table_fields_are_unescaped() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/plain\"), Path::new(r"/plain\"));
    }

    #[tokio::test]
    async fn a_disk_holds_what_was_asked_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let disks = Disks::new(folder.path().join("templates"));
        let (image, at) = (folder.path().join("disk.img"), folder.path().join("m"));
        disks.make(image.clone(), at.clone(), 32).await.unwrap();
        let empty = usage(&at, 32).unwrap();
        assert_eq!(empty.total, 32 << 20);
        assert!(empty.used < 1 << 20, "{empty:?}");
        assert!(fs::metadata(&image).unwrap().blocks() * 512 < 1 << 20);

        let mut file = File::create(at.join("fill")).unwrap();
        let block = vec![7; 1 << 20];
        let mut written = 0;
        let error = loop {
            match file.write(&block) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!((32 << 20..36 << 20).contains(&written), "{written}");
        drop(file);
        fs::remove_file(at.join("fill")).unwrap();
        assert!(usage(&at, 32).unwrap().used < 1 << 20);

        release(&at).unwrap();
        release(&at).unwrap();
        assert!(!at.exists());
        fs::create_dir(&at).unwrap();
        mount_image(&image, &at, "nodiscard").unwrap();
        release_all(&at).unwrap();
        release_all(&at).unwrap();
        assert!(!at.exists());
        let name = image.to_string_lossy().into_owned();
        let in_use = fs::read_dir("/sys/block").unwrap().any(|block| {
            let file = block.unwrap().path().join("loop/backing_file");
            fs::read_to_string(file).is_ok_and(|backing| backing.trim() == name)
        });
        assert!(!in_use, "the loop device frees itself");
    }

    #[test]
    fn a_shared_folder_is_made_once_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().canonicalize().unwrap().join("m");
        fs::create_dir(&shared).unwrap();
        share(&shared).unwrap();
        share(&shared).unwrap();
        let count = || mount_points().unwrap().iter().filter(|point| **point == shared).count();
        assert_eq!(count(), 1);
        release_all(&shared).unwrap();
        assert_eq!(count(), 0);
    }
}
