//! Version 2: one tree, whose upper groups hand controllers down.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{CgroupError, GroupLimits, GroupUsage, Weight, read_named, read_number, write};

/// A group's own, unless it is told otherwise.
const WEIGHT: u64 = 100;
const MAX_WEIGHT: u64 = 10_000;
const NEEDED: [&str; 3] = ["memory", "cpu", "pids"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V2 {
    root: PathBuf,
    base: PathBuf,
}

impl V2 {
    pub(super) fn from_mounts(mounts: &str, below: &Path) -> Result<Self, CgroupError> {
        let root = mounts
            .lines()
            .filter(|line| line.contains(" - cgroup2 "))
            .find_map(|line| line.split(' ').nth(4))
            .map(PathBuf::from)
            .ok_or(CgroupError::NoController("memory"))?;
        let listed = root.join("cgroup.controllers");
        let offered = fs::read_to_string(&listed).map_err(CgroupError::at(&listed))?;
        let offered: Vec<&str> = offered.split_whitespace().collect();
        match NEEDED.iter().find(|controller| !offered.contains(controller)) {
            Some(missing) => Err(CgroupError::NoController(missing)),
            None => Ok(Self { base: root.join(below), root }),
        }
    }

    /// Each group from the root to ours hands the controllers to those below. All sandboxes
    /// together weigh so much that another group of the host's gets about one of the processors.
    pub(super) fn prepare(&self, threads: u64, processors: u64) -> Result<(), CgroupError> {
        fs::create_dir_all(&self.base).map_err(CgroupError::at(&self.base))?;
        let mut path = Vec::new();
        for folder in self.base.ancestors().take_while(|folder| folder.starts_with(&self.root)) {
            path.push(folder);
        }
        for folder in path.into_iter().rev() {
            let file = folder.join("cgroup.subtree_control");
            let handed: Vec<_> = NEEDED.iter().map(|controller| format!("+{controller}")).collect();
            fs::write(&file, handed.join(" ")).map_err(CgroupError::at(&file))?;
        }
        write(&self.base, "pids.max", threads).map_err(CgroupError::at(&self.base))?;
        let above = self.base.parent().unwrap_or(&self.base);
        let weight = (WEIGHT * processors).min(MAX_WEIGHT);
        write(above, "cpu.weight", weight).map_err(CgroupError::at(above))
    }

    pub(super) fn create(&self, name: &str, limits: &GroupLimits) -> Result<(), CgroupError> {
        let folder = self.base.join(name);
        fs::create_dir_all(&folder).map_err(CgroupError::at(&folder))?;
        for (file, value) in [
            ("memory.max", limits.memory_bytes.to_string()),
            ("cpu.max", format!("{} {}", limits.cpu_quota_us, limits.cpu_period_us)),
            ("pids.max", limits.pids.to_string()),
        ] {
            write(&folder, file, value).map_err(CgroupError::at(&folder.join(file)))?;
        }
        Ok(())
    }

    pub(super) fn usage(&self, name: &str) -> io::Result<GroupUsage> {
        let folder = self.base.join(name);
        let used = read_number(&folder, "memory.current")?;
        let cache = read_named(&folder, "memory.stat", &["inactive_file", "active_file"])?;
        let cpu = read_named(&folder, "cpu.stat", &["usage_usec"])?;
        Ok(GroupUsage {
            cpu: Duration::from_micros(cpu),
            memory_bytes: used.saturating_sub(cache),
            cache_bytes: cache,
        })
    }

    pub(super) fn oom_kills(&self, name: &str) -> io::Result<u64> {
        read_named(&self.base.join(name), "memory.events", &["oom_kill"])
    }

    pub(super) fn set_weight(&self, name: &str, weight: Weight) -> io::Result<()> {
        let weight = match weight {
            Weight::Normal => WEIGHT,
            Weight::Background => 6,
        };
        write(&self.base.join(name), "cpu.weight", weight)
    }

    pub(super) fn set_frozen(&self, name: &str, frozen: bool) -> io::Result<()> {
        write(&self.base.join(name), "cgroup.freeze", u8::from(frozen))
    }

    /// One write ends all, also those that fork meanwhile. Kernels before 5.14 lack it, and there
    /// the caller's loop does the work.
    pub(super) fn kill(&self, name: &str) -> io::Result<()> {
        match fs::OpenOptions::new().write(true).open(self.base.join(name).join("cgroup.kill")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => io::Write::write_all(&mut opened?, b"1"),
        }
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in the shape of a cgroup2 tree; the kernel would make the files itself.
    fn fake(controllers: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        let mounts = format!("36 30 0:32 / {} rw - cgroup2 cgroup2 rw\n", folder.path().display());
        (folder, mounts)
    }

    #[test]
    fn controllers_are_handed_down_and_limits_written() {
        let (folder, mounts) = fake("cpuset cpu io memory pids\n");
        let v2 = V2::from_mounts(&mounts, Path::new("sandboxo/ab")).unwrap();
        v2.prepare(1000, 4).unwrap();
        let base = folder.path().join("sandboxo/ab");
        let above = folder.path().join("sandboxo/cpu.weight");
        assert_eq!(fs::read_to_string(above).unwrap(), "400");
        assert_eq!(fs::read_to_string(base.join("pids.max")).unwrap(), "1000");
        for above in ["", "sandboxo", "sandboxo/ab"] {
            let file = folder.path().join(above).join("cgroup.subtree_control");
            assert_eq!(fs::read_to_string(file).unwrap(), "+memory +cpu +pids");
        }
        let limits = GroupLimits {
            memory_bytes: 1000,
            cpu_quota_us: 200_000,
            cpu_period_us: 100_000,
            pids: 2048,
        };
        v2.create("c1", &limits).unwrap();
        let group = folder.path().join("sandboxo/ab/c1");
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(read("memory.max"), "1000");
        assert_eq!(read("cpu.max"), "200000 100000");
        assert_eq!(read("pids.max"), "2048");
        v2.set_weight("c1", Weight::Background).unwrap();
        assert_eq!(read("cpu.weight"), "6");
        v2.set_frozen("c1", true).unwrap();
        assert_eq!(read("cgroup.freeze"), "1");
        v2.kill("c1").unwrap();

        fs::write(group.join("memory.current"), "5000\n").unwrap();
        fs::write(group.join("memory.stat"), "anon 9\ninactive_file 700\nactive_file 300\n")
            .unwrap();
        fs::write(group.join("cpu.stat"), "usage_usec 1500000\nuser_usec 3\n").unwrap();
        fs::write(group.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
        fs::write(group.join("cgroup.kill"), "").unwrap();
        let expected =
            GroupUsage { cpu: Duration::from_millis(1500), memory_bytes: 4000, cache_bytes: 1000 };
        assert_eq!(v2.usage("c1").unwrap(), expected);
        assert_eq!(v2.oom_kills("c1").unwrap(), 2);
        v2.kill("c1").unwrap();
        assert_eq!(read("cgroup.kill"), "1");
    }

    #[test]
    fn a_missing_controller_is_named() {
        let (_folder, mounts) = fake("hugetlb memory\n");
        let missing = V2::from_mounts(&mounts, Path::new("sandboxo/ab"));
        assert!(matches!(missing, Err(CgroupError::NoController("cpu"))), "{missing:?}");
        let missing = V2::from_mounts("", Path::new("x"));
        assert!(matches!(missing, Err(CgroupError::NoController("memory"))), "{missing:?}");
    }
}
