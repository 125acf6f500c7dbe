//! The limits of one sandbox as the kernel keeps them: two drivers behind one enum.
//!
//! runsc is told to leave cgroups alone; the keeper puts it into ours before it starts, and all
//! that it starts stays there. So a group also says which processes are a container's.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use sandboxo_zone_protocol::Resources;

use crate::fault::gone;

mod v1;
mod v2;

pub(crate) use v1::V1;
pub(crate) use v2::V2;

/// The sentry's own memory, on top of what the guest may have.
const HEADROOM_MIB: u64 = 64;
/// Host threads, of which an idle sandbox has up to 80. Reaching the limit ends the sentry, so it
/// is only there to save the host; the guest's own limit is the agent's. It can't follow from that
/// one: a process is traced on every thread of the sentry that has run it, so 64 of them that fork
/// all the time take thousands.
const THREADS: std::ops::RangeInclusive<u64> = 2048..=32_768;
/// How many sandboxes must go wild before others feel it.
const WILD_SANDBOXES: u64 = 8;
const PERIOD_US: u64 = 100_000;
/// How long a killed process may take to leave its group before a try counts as failed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const LEAVE_POLL: Duration = Duration::from_millis(1);

/// What a group is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_quota_us: u64,
    pub(crate) cpu_period_us: u64,
    pub(crate) pids: u64,
}

/// How many threads the kernel can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostThreads(u64);

impl HostThreads {
    pub(crate) fn read() -> io::Result<Self> {
        let kernel = Path::new("/proc/sys/kernel");
        let most = read_number(kernel, "pid_max")?.min(read_number(kernel, "threads-max")?);
        Ok(Self(most))
    }

    /// The rest stays for the host, whatever all sandboxes together do.
    pub(crate) fn of_all_sandboxes(self) -> u64 {
        self.0 / 4 * 3
    }
}

impl GroupLimits {
    pub(crate) fn of(resources: &Resources, host: HostThreads) -> Self {
        Self {
            memory_bytes: (u64::from(resources.memory_mib) + HEADROOM_MIB) << 20,
            cpu_quota_us: u64::from(resources.vcpus.max(1)) * PERIOD_US,
            cpu_period_us: PERIOD_US,
            pids: (host.0 / WILD_SANDBOXES).clamp(*THREADS.start(), *THREADS.end()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GroupUsage {
    pub(crate) cpu: Duration,
    /// Without file pages that the kernel may drop.
    pub(crate) memory_bytes: u64,
    pub(crate) cache_bytes: u64,
}

/// How much of the processors a group gets while others want them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Normal,
    /// A sandbox that nobody waits for.
    Background,
}

/// The groups of one zone.
#[derive(Debug, Clone)]
pub(crate) enum Cgroups {
    V1(V1),
    V2(V2),
}

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("the host has no cgroup controller `{0}`: mount it, or boot with cgroup v2")]
    NoController(&'static str),
    #[error("{path}")]
    Io { path: PathBuf, source: io::Error },
}

impl CgroupError {
    fn at(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

impl Cgroups {
    /// The hierarchy that has the memory controller decides.
    pub(crate) fn detect(instance: &str) -> Result<Self, CgroupError> {
        let table = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(table).map_err(CgroupError::at(table))?;
        let below = PathBuf::from("sandboxo").join(instance);
        if let Some(v1) = V1::from_mounts(&mounts, &below)? {
            return Ok(Self::V1(v1));
        }
        V2::from_mounts(&mounts, &below).map(Self::V2)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }

    /// Makes the groups above all others.
    pub(crate) fn prepare(&self, host: HostThreads, processors: u64) -> Result<(), CgroupError> {
        let threads = host.of_all_sandboxes();
        match self {
            Self::V1(v1) => v1.prepare(threads, processors),
            Self::V2(v2) => v2.prepare(threads, processors),
        }
    }

    pub(crate) fn create(&self, name: &str, limits: &GroupLimits) -> Result<Group, CgroupError> {
        match self {
            Self::V1(v1) => v1.create(name, limits)?,
            Self::V2(v2) => v2.create(name, limits)?,
        }
        Ok(self.group(name))
    }

    /// A group by its name, whether it exists or not.
    pub(crate) fn group(&self, name: &str) -> Group {
        Group { cgroups: self.clone(), name: name.to_owned() }
    }

    /// The names of all groups of this zone.
    pub(crate) fn list(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for base in self.bases() {
            let entries = match fs::read_dir(&base) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        Ok(names)
    }

    /// Removes the groups above all others; they are empty by then.
    pub(crate) fn tear_down(&self) -> io::Result<()> {
        for base in self.bases() {
            remove_group(&base)?;
            // Shared with other instances, so it goes with the last one.
            let above = base.parent().unwrap_or(&base);
            match fs::remove_dir(above) {
                Err(error) if error.raw_os_error() != Some(nix::libc::EBUSY) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "leave a cgroup");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn bases(&self) -> Vec<PathBuf> {
        match self {
            Self::V1(v1) => v1.bases(),
            Self::V2(v2) => vec![v2.base().to_owned()],
        }
    }
}

/// One container's group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    cgroups: Cgroups,
    name: String,
}

impl Group {
    /// The files that a process writes itself into.
    pub(crate) fn procs_files(&self) -> Vec<PathBuf> {
        self.folders().into_iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    pub(crate) fn usage(&self) -> io::Result<GroupUsage> {
        match &self.cgroups {
            Cgroups::V1(v1) => v1.usage(&self.name),
            Cgroups::V2(v2) => v2.usage(&self.name),
        }
    }

    /// How many of its processes the kernel has ended for want of memory.
    pub(crate) fn oom_kills(&self) -> io::Result<u64> {
        match &self.cgroups {
            Cgroups::V1(v1) => v1.oom_kills(&self.name),
            Cgroups::V2(v2) => v2.oom_kills(&self.name),
        }
    }

    pub(crate) fn set_weight(&self, weight: Weight) -> io::Result<()> {
        match &self.cgroups {
            Cgroups::V1(v1) => v1.set_weight(&self.name, weight),
            Cgroups::V2(v2) => v2.set_weight(&self.name, weight),
        }
    }

    pub(crate) fn processes(&self) -> io::Result<BTreeSet<i32>> {
        let mut pids = BTreeSet::new();
        for file in self.procs_files() {
            match fs::read_to_string(&file) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                // Gone between two reads.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        || error.raw_os_error() == Some(nix::libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pids)
    }

    /// Kills until nobody is left: a fork bomb makes new ones between two looks.
    pub(crate) async fn kill_all(&self) -> io::Result<()> {
        let give_up = tokio::time::Instant::now() + LEAVE_TIMEOUT;
        loop {
            if let Cgroups::V2(v2) = &self.cgroups {
                v2.kill(&self.name)?;
            }
            let pids = self.processes()?;
            if pids.is_empty() {
                return Ok(());
            }
            pids.iter().copied().for_each(crate::process::kill_now);
            self.set_frozen(false)?;
            if tokio::time::Instant::now() > give_up {
                return Err(io::Error::other(format!("processes do not end: {pids:?}")));
            }
            tokio::time::sleep(LEAVE_POLL).await;
        }
    }

    /// Stops every process of it where it is, or lets them go on.
    pub(crate) fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        match &self.cgroups {
            Cgroups::V1(v1) => v1.set_frozen(&self.name, frozen),
            Cgroups::V2(v2) => v2.set_frozen(&self.name, frozen),
        }
    }

    /// A repeat is a success. Fails while processes are in it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.folders().iter().try_for_each(|folder| remove_group(folder))
    }

    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.cgroups.bases().into_iter().map(|base| base.join(&self.name)).collect()
    }
}

/// Deepest first: whatever made groups below did so in ours.
fn remove_group(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    gone(fs::remove_dir(folder))
}

/// A missing folder is a missing group: whoever asks has lost a race with its end.
fn write(folder: &Path, file: &str, value: impl std::fmt::Display) -> io::Result<()> {
    fs::write(folder.join(file), value.to_string())
}

fn read_number(folder: &Path, file: &str) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join(file))?;
    text.trim().parse().map_err(|_digits: std::num::ParseIntError| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{file} holds {text:?}"))
    })
}

/// From a file of `name value` lines; a name that isn't there counts as nothing.
fn read_named(folder: &Path, file: &str, names: &[&str]) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join(file))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(vcpus: u32, memory_mib: u32, threads: u64) -> GroupLimits {
        let resources = Resources { vcpus, memory_mib, disk_mib: 1, pids: 100 };
        GroupLimits::of(&resources, HostThreads(threads))
    }

    #[test]
    fn limits_leave_room_for_the_sentry() {
        let small = limits(1, 128, 4_194_304);
        assert_eq!(small.memory_bytes, 192 << 20);
        assert_eq!((small.cpu_quota_us, small.cpu_period_us), (100_000, 100_000));
        assert_eq!(limits(4, 512, 1).cpu_quota_us, 400_000);
        assert_eq!(limits(0, 512, 1).cpu_quota_us, 100_000);
    }

    #[test]
    fn threads_are_an_eighth_of_the_hosts_within_reason() {
        for (host, expected) in [(4_194_304, 32_768), (32_768, 4096), (4096, 2048)] {
            assert_eq!(limits(1, 128, host).pids, expected, "{host}");
        }
    }

    /// On whatever the host has, with a real process in it.
    #[tokio::test]
    async fn a_group_holds_counts_freezes_and_ends() {
        let cgroups = Cgroups::detect("00test").unwrap();
        cgroups.prepare(HostThreads::read().unwrap(), 2).unwrap();
        let group = cgroups.create("c1", &limits(1, 64, 32_768)).unwrap();
        let mut child = tokio::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().unwrap();
        for file in group.procs_files() {
            fs::write(file, pid.to_string()).unwrap();
        }
        assert_eq!(group.processes().unwrap(), BTreeSet::from([i32::try_from(pid).unwrap()]));
        assert!(group.usage().unwrap().memory_bytes < 64 << 20);
        assert_eq!(group.oom_kills().unwrap(), 0);
        group.set_weight(Weight::Background).unwrap();
        group.set_weight(Weight::Normal).unwrap();
        assert!(group.remove().is_err(), "it is not empty");
        group.set_frozen(true).unwrap();
        assert_eq!(cgroups.list().unwrap(), BTreeSet::from(["c1".to_owned()]));
        let (killed, waited) = tokio::join!(group.kill_all(), child.wait());
        killed.unwrap();
        waited.unwrap();
        group.remove().unwrap();
        group.remove().unwrap();
        assert!(cgroups.list().unwrap().is_empty());
        cgroups.tear_down().unwrap();
    }
}
