//! Version 1: each controller has its own tree, some share one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{CgroupError, GroupLimits, GroupUsage, Weight, read_named, read_number, write};

/// A group's own, unless it is told otherwise.
const SHARES: u64 = 1024;
const MAX_SHARES: u64 = 1 << 18;
const NEEDED: [&str; 5] = ["memory", "cpu", "cpuacct", "pids", "freezer"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V1 {
    /// Controller to the folder that holds this zone's groups.
    bases: BTreeMap<&'static str, PathBuf>,
}

impl V1 {
    /// `None` when memory is not a version 1 controller here.
    pub(super) fn from_mounts(mounts: &str, below: &Path) -> Result<Option<Self>, CgroupError> {
        let mut bases = BTreeMap::new();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            let point = left.split(' ').nth(4).filter(|_| kind == Some("cgroup"));
            let Some(point) = point else { continue };
            for controller in NEEDED {
                if options.split(',').any(|option| option == controller) {
                    bases.entry(controller).or_insert_with(|| Path::new(point).join(below));
                }
            }
        }
        if !bases.contains_key("memory") {
            return Ok(None);
        }
        match NEEDED.iter().find(|controller| !bases.contains_key(*controller)) {
            Some(missing) => Err(CgroupError::NoController(missing)),
            None => Ok(Some(Self { bases })),
        }
    }

    /// All sandboxes together weigh so much that another group of the host's, say the appliance's,
    /// gets about one of the processors, however many there are.
    pub(super) fn prepare(&self, threads: u64, processors: u64) -> Result<(), CgroupError> {
        for base in self.bases() {
            fs::create_dir_all(&base).map_err(CgroupError::at(&base))?;
        }
        let base = self.folder("pids", "");
        write(&base, "pids.max", threads).map_err(CgroupError::at(&base))?;
        let base = self.folder("cpu", "");
        let above = base.parent().unwrap_or(&base);
        let shares = (SHARES * processors).min(MAX_SHARES);
        write(above, "cpu.shares", shares).map_err(CgroupError::at(above))
    }

    pub(super) fn create(&self, name: &str, limits: &GroupLimits) -> Result<(), CgroupError> {
        for base in self.bases() {
            let folder = base.join(name);
            fs::create_dir_all(&folder).map_err(CgroupError::at(&folder))?;
        }
        for (controller, file, value) in [
            ("memory", "memory.limit_in_bytes", limits.memory_bytes),
            ("cpu", "cpu.cfs_period_us", limits.cpu_period_us),
            ("cpu", "cpu.cfs_quota_us", limits.cpu_quota_us),
            ("pids", "pids.max", limits.pids),
        ] {
            let folder = self.folder(controller, name);
            write(&folder, file, value).map_err(CgroupError::at(&folder.join(file)))?;
        }
        Ok(())
    }

    pub(super) fn usage(&self, name: &str) -> io::Result<GroupUsage> {
        let memory = self.folder("memory", name);
        let used = read_number(&memory, "memory.usage_in_bytes")?;
        // Not `cache`: it holds the guest's memory too, which lies in a memfd.
        let cache = read_named(&memory, "memory.stat", &["inactive_file", "active_file"])?;
        let cpu = read_number(&self.folder("cpuacct", name), "cpuacct.usage")?;
        Ok(GroupUsage {
            cpu: Duration::from_nanos(cpu),
            memory_bytes: used.saturating_sub(cache),
            cache_bytes: cache,
        })
    }

    pub(super) fn oom_kills(&self, name: &str) -> io::Result<u64> {
        read_named(&self.folder("memory", name), "memory.oom_control", &["oom_kill"])
    }

    pub(super) fn set_weight(&self, name: &str, weight: Weight) -> io::Result<()> {
        let shares = match weight {
            Weight::Normal => SHARES,
            Weight::Background => 64,
        };
        write(&self.folder("cpu", name), "cpu.shares", shares)
    }

    pub(super) fn set_frozen(&self, name: &str, frozen: bool) -> io::Result<()> {
        let state = if frozen { "FROZEN" } else { "THAWED" };
        write(&self.folder("freezer", name), "freezer.state", state)
    }

    /// Each folder once, though controllers may share one.
    pub(super) fn bases(&self) -> Vec<PathBuf> {
        self.bases.values().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn folder(&self, controller: &str, name: &str) -> PathBuf {
        self.bases.get(controller).map(|base| base.join(name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: &str = "\
31 30 0:27 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:28 / /cg/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
33 30 0:29 / /cg/memory rw,relatime shared:9 - cgroup cgroup rw,memory
34 30 0:30 / /cg/pids rw,relatime - cgroup cgroup rw,pids
35 30 0:31 / /cg/freezer rw,relatime - cgroup cgroup rw,freezer
36 30 0:32 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn mounts_are_read() {
        let below = Path::new("sandboxo/ab");
        let split = V1::from_mounts(SPLIT, below).unwrap().unwrap();
        assert_eq!(split.folder("memory", "c"), Path::new("/cg/memory/sandboxo/ab/c"));
        assert_eq!(split.bases().len(), 5);

        let joint = SPLIT
            .replace("/cg/cpuacct rw,relatime - cgroup cgroup rw,cpuacct", "/x rw - tmpfs x rw")
            .replace(
                "/cg/cpu rw,relatime - cgroup cgroup rw,cpu",
                "/cg/both rw - cgroup c rw,cpu,cpuacct",
            );
        let joint = V1::from_mounts(&joint, below).unwrap().unwrap();
        assert_eq!(joint.folder("cpu", "c"), joint.folder("cpuacct", "c"));
        assert_eq!(joint.bases().len(), 4);

        let lacking = SPLIT.replace("rw,pids", "rw,hugetlb");
        let missing = V1::from_mounts(&lacking, below);
        assert!(matches!(missing, Err(CgroupError::NoController("pids"))), "{missing:?}");
        let newer = "36 30 0:32 / /cg rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(V1::from_mounts(newer, below).unwrap(), None);
    }

    #[test]
    fn all_sandboxes_weigh_by_the_hosts_processors() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = SPLIT.replace("/cg", &folder.path().display().to_string());
        let v1 = V1::from_mounts(&mounts, Path::new("sandboxo/ab")).unwrap().unwrap();
        for (processors, shares) in [(2, "2048"), (64, "65536"), (512, "262144")] {
            v1.prepare(1000, processors).unwrap();
            let file = folder.path().join("cpu/sandboxo/cpu.shares");
            assert_eq!(fs::read_to_string(file).unwrap(), shares);
        }
        let threads = folder.path().join("pids/sandboxo/ab/pids.max");
        assert_eq!(fs::read_to_string(threads).unwrap(), "1000");
    }
}
