//! Volumes: the zone attaches them below one folder, and they appear where they are wanted.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::mount::{MsFlags, mount};
use parking_lot::Mutex;
use sandboxo_channel::{OpenFile, Response};

/// Each by its number.
const PLACES: &str = "/.sandboxo/volumes";
const NO_PLACE: [&str; 4] = ["/dev", "/proc", "/sys", "/.sandboxo"];
const DELETED: &str = " (deleted)";
/// In a message of at most 128 KiB. Those that are gone come first.
const MOST_BYTES: usize = 64 * 1024;

/// Where they are mounted, by their numbers: the names that the kernel has for these folders.
#[derive(Default)]
pub(crate) struct Volumes {
    mounted: Mutex<Vec<String>>,
}

impl Volumes {
    /// Those that are not mounted yet.
    pub(crate) fn mount(&self, paths: &[String]) -> Response {
        let mut mounted = self.mounted.lock();
        for (number, path) in paths.iter().enumerate().skip(mounted.len()) {
            let done = fs::create_dir_all(path).and_then(|()| {
                let real = real(path)?;
                let place = format!("{PLACES}/{number}");
                mount(Some(place.as_str()), &real, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
                Ok(real.to_string_lossy().into_owned())
            });
            match done {
                Ok(real) => mounted.push(real),
                Err(error) => {
                    let (path, why) = (path.clone(), error.to_string());
                    return Response::NotMounted { path, why };
                }
            }
        }
        Response::Mounted
    }

    pub(crate) fn in_use(&self) -> Vec<OpenFile> {
        let mounts = self.mounted.lock().clone();
        let devices: BTreeSet<u64> =
            mounts.iter().filter_map(|path| Some(fs::metadata(path).ok()?.dev())).collect();
        let is_there =
            |number, path: &str| Path::new(&format!("{PLACES}/{number}/{path}")).exists();
        let mut found = points(&mounts, is_there);
        for process in processes() {
            found.extend(links(&process, &devices).into_iter().map(|used| used.told(&mounts)));
            found.extend(mapped(&process, &mounts).into_iter().map(|used| used.told(&mounts)));
        }
        limited(found)
    }
}

/// Where links lead. What is in these folders is the kernel's, and a reboot removes some of it.
fn real(path: &str) -> io::Result<PathBuf> {
    let real = fs::canonicalize(path)?;
    if NO_PLACE.iter().any(|folder| real.starts_with(folder)) {
        return Err(io::Error::other(format!("it leads to {}", real.display())));
    }
    Ok(real)
}

/// Something in a volume, by the name that the kernel has for it.
struct Used {
    name: String,
    /// The name does not lead to it.
    is_gone: bool,
}

impl Used {
    fn told(self, mounts: &[String]) -> OpenFile {
        let Self { name, is_gone } = self;
        let name = name.strip_suffix(DELETED).filter(|_| is_gone).unwrap_or(&name);
        match innermost(name, mounts.iter().enumerate()) {
            Some((number, path)) => OpenFile { volume: place(number), path, is_gone },
            // Somebody has mounted it elsewhere too; a checkpoint knows it by its real name.
            None => OpenFile { volume: u32::MAX, path: name.to_owned(), is_gone },
        }
    }
}

fn place(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Volumes may lie in one another.
fn innermost<'a>(
    name: &str,
    mounts: impl Iterator<Item = (usize, &'a String)>,
) -> Option<(usize, String)> {
    let below = |path: &str| {
        let rest = name.strip_prefix(path)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
    };
    let all = mounts.filter_map(|(number, path)| Some((number, path.len(), below(path)?)));
    let (number, _, path) = all.max_by_key(|(_, length, _)| *length)?;
    Some((number, path.to_owned()))
}

/// The folders of volumes on which others are mounted: as good as open.
fn points(mounts: &[String], is_there: impl Fn(usize, &str) -> bool) -> BTreeSet<OpenFile> {
    let inner = mounts.iter().filter_map(|inner| {
        let others = mounts.iter().enumerate().filter(|(_, outer)| *outer != inner);
        let (number, path) = innermost(inner, others)?;
        let is_gone = !is_there(number, &path);
        Some(OpenFile { volume: place(number), path, is_gone })
    });
    inner.collect()
}

fn processes() -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.iter().all(u8::is_ascii_digit)
    };
    entries.map(|entry| entry.path()).filter(is_process).collect()
}

/// A process may end, and a descriptor be closed, at any moment: those are no use.
fn links(process: &Path, devices: &BTreeSet<u64>) -> Vec<Used> {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let others = ["cwd", "root", "exe"].map(|name| process.join(name));
    let all = descriptors.map(|entry| entry.path()).chain(others);
    all.filter_map(|link| {
        let name = fs::read_link(&link).ok().filter(|name| name.is_absolute())?;
        let file = fs::metadata(&link).ok().filter(|file| devices.contains(&file.dev()))?;
        let is_gone =
            !leads_to(&name, |found| (found.dev(), found.ino()) == (file.dev(), file.ino()));
        Some(Used { name: name.to_string_lossy().into_owned(), is_gone })
    })
    .collect()
}

/// Files that are in memory and may be closed.
fn mapped(process: &Path, mounts: &[String]) -> Vec<Used> {
    let table = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let all = table.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let inode: u64 = fields.nth(4)?.parse().ok()?;
        let name = fields.next()?.trim_start();
        mounts.iter().any(|path| name.starts_with(path)).then_some((inode, name))
    });
    all.map(|(inode, name)| Used {
        name: name.to_owned(),
        is_gone: !leads_to(Path::new(name), |found| found.ino() == inode),
    })
    .collect()
}

fn leads_to(name: &Path, is_same: impl FnOnce(&fs::Metadata) -> bool) -> bool {
    let found: io::Result<fs::Metadata> = fs::symlink_metadata(name);
    found.is_ok_and(|found| is_same(&found))
}

fn limited(found: BTreeSet<OpenFile>) -> Vec<OpenFile> {
    let (mut first, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_gone);
    first.extend(rest);
    let mut bytes = 0;
    first.retain(|file| {
        // With what JSON adds, and every byte of a name escaped.
        bytes += 64 + file.path.len() * 2;
        bytes <= MOST_BYTES
    });
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, is_gone: bool) -> (u32, String, bool) {
        let mounts = ["/data".to_owned(), "/data/inner".to_owned()];
        let OpenFile { volume, path, is_gone } =
            Used { name: name.to_owned(), is_gone }.told(&mounts);
        (volume, path, is_gone)
    }

    #[test]
    fn files_are_told_by_their_volume() {
        assert_eq!(told("/data/a/b", false), (0, "a/b".into(), false));
        assert_eq!(told("/data", false), (0, String::new(), false));
        assert_eq!(told("/data/inner/c", false), (1, "c".into(), false));
        assert_eq!(told("/data/a (deleted)", true), (0, "a".into(), true));
        assert_eq!(told("/data/a (deleted)", false), (0, "a (deleted)".into(), false));
        assert_eq!(told("/elsewhere/a", true), (u32::MAX, "/elsewhere/a".into(), true));
        assert_eq!(told("/database", false).0, u32::MAX);
    }

    #[test]
    fn links_lead_to_no_folder_of_the_kernels() {
        let folder = tempfile::tempdir().unwrap();
        let link = |to: &str, name: &str| {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(to, &link).unwrap();
            real(&link.to_string_lossy())
        };
        assert_eq!(link("/usr", "good").unwrap(), Path::new("/usr"));
        for (to, name) in [("/dev/shm", "a"), ("/proc/self/fd", "b"), ("/dev", "c")] {
            assert!(link(to, name).unwrap_err().to_string().starts_with("it leads to /"), "{to}");
        }
    }

    #[test]
    fn folders_that_others_are_mounted_on_are_in_use() {
        let mounts = ["/data", "/data/inner", "/data/inner/most", "/database"].map(str::to_owned);
        let told = |number: u32, path: &str, is_gone| OpenFile {
            volume: number,
            path: path.to_owned(),
            is_gone,
        };
        let expected = [told(0, "inner", false), told(1, "most", true)];
        assert_eq!(points(&mounts, |number, _| number == 0), expected.into());
        assert_eq!(points(&mounts[3..], |_, _| false), [].into());
    }

    #[test]
    fn open_files_and_their_ends_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("open");
        let _open = fs::File::create(&path).unwrap();
        let volumes = Volumes::default();
        volumes.mounted.lock().push(folder.path().to_string_lossy().into_owned());
        let seen = || {
            let used = volumes.in_use();
            used.into_iter().filter(|it| it.path == "open").map(|it| it.is_gone).collect::<Vec<_>>()
        };
        assert_eq!(seen(), [false]);
        fs::remove_file(&path).unwrap();
        assert_eq!(seen(), [true]);
        fs::write(&path, "another").unwrap();
        assert_eq!(seen(), [true]);
    }

    #[test]
    fn those_that_are_gone_are_told_first() {
        let file = |number: usize, is_gone| OpenFile {
            volume: 0,
            path: format!("{number:0>4000}"),
            is_gone,
        };
        let mut all: BTreeSet<_> = (0..100).map(|number| file(number, false)).collect();
        all.insert(file(200, true));
        let told = limited(all);
        assert!(told.len() < 20 && told[0].is_gone, "{}", told.len());
    }
}
