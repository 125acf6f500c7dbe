//! Whether the host can take one more sandbox. Values in, answer out.

use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit};

use sandboxo_zone_protocol::{CreateError, Resources};

use crate::{cgroup::HostThreads, config::Limits, disk};

/// Free memory below the reserve and this is pressure: nothing is started that nobody waits for.
const PRESSURE_MARGIN_MIB: u64 = 256;
/// Descriptors of this process: channel, process and network of one sandbox, and some of the
/// connections to it.
const FILES_EACH: u64 = 16;
/// For everything but sandboxes: listeners, records, requests.
const FILES_RESERVE: u64 = 256;
/// An idle sandbox has up to 80 host threads.
const THREADS_EACH: u64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostView {
    /// Somebody's, running or on the way.
    pub(crate) sandboxes: u32,
    /// What those may use in sum.
    pub(crate) promised_mib: u64,
    pub(crate) memory: Memory,
    pub(crate) free_disk_mib: u64,
    pub(crate) files: Used,
    pub(crate) threads: Used,
}

/// How much there is of something, and how much of it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) now: u64,
    pub(crate) most: u64,
}

impl Used {
    fn has_room_for(self, more: u64) -> bool {
        self.now.saturating_add(more) <= self.most
    }

    /// Of this process.
    fn files() -> io::Result<Self> {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let now = fs::read_dir("/proc/self/fd")?.count();
        let most = soft - FILES_RESERVE.min(soft / 4);
        Ok(Self { now: u64::try_from(now).unwrap_or(u64::MAX), most })
    }

    /// Of the whole host.
    fn threads(host: HostThreads) -> io::Result<Self> {
        let load = fs::read_to_string("/proc/loadavg")?;
        let now = threads_of(&load)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/loadavg"))?;
        Ok(Self { now, most: host.of_all_sandboxes() })
    }
}

/// The fourth field is `running/all`.
fn threads_of(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

impl HostView {
    /// Of a host without sandboxes.
    pub(crate) fn read(state: &std::path::Path, host: HostThreads) -> Result<Self, CreateError> {
        let read = || {
            Ok(Self {
                sandboxes: 0,
                promised_mib: 0,
                memory: Memory::read()?,
                free_disk_mib: disk::free_mib(state)?,
                files: Used::files()?,
                threads: Used::threads(host)?,
            })
        };
        read().map_err(|error: io::Error| match error.raw_os_error() {
            // No descriptor is left to look with.
            Some(nix::libc::EMFILE | nix::libc::ENFILE) => {
                let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
                CreateError::LimitReached { what: FILES, limit: soft }
            }
            _ => CreateError::Runtime(Box::new(error)),
        })
    }
}

const FILES: &str = "open files";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total_mib: u64,
    /// What the kernel could give without hurting anybody.
    pub(crate) available_mib: u64,
}

impl Memory {
    pub(crate) fn read() -> io::Result<Self> {
        parse(&fs::read_to_string("/proc/meminfo")?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo"))
    }

    pub(crate) fn is_tight(self, limits: &Limits) -> bool {
        self.available_mib < limits.memory_reserve_mib + PRESSURE_MARGIN_MIB
    }
}

fn parse(meminfo: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.strip_suffix("kB")?.trim().parse::<u64>().ok()? >> 10)
    };
    Some(Memory { total_mib: field("MemTotal:")?, available_mib: field("MemAvailable:")? })
}

pub(crate) fn admit(
    limits: &Limits,
    host: &HostView,
    wanted: &Resources,
) -> Result<(), CreateError> {
    if host.sandboxes >= limits.sandboxes {
        let limit = u64::from(limits.sandboxes);
        return Err(CreateError::LimitReached { what: "sandboxes", limit });
    }
    let memory_mib = u64::from(wanted.memory_mib);
    let most = host.memory.total_mib * limits.memory_overcommit;
    if host.promised_mib + memory_mib > most {
        return Err(CreateError::LimitReached { what: "memory (MiB promised)", limit: most });
    }
    // It may use all of it at once, and the host must still live.
    let usable = host.memory.available_mib.saturating_sub(limits.memory_reserve_mib);
    if memory_mib > usable {
        return Err(CreateError::LimitReached { what: "memory (MiB free)", limit: usable });
    }
    if !host.files.has_room_for(FILES_EACH) {
        return Err(CreateError::LimitReached { what: FILES, limit: host.files.most });
    }
    if !host.threads.has_room_for(THREADS_EACH) {
        let limit = host.threads.most;
        return Err(CreateError::LimitReached { what: "host threads", limit });
    }
    if host.free_disk_mib < limits.disk_reserve_mib {
        return Err(CreateError::DiskFull);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   22011904 kB\n";
        assert_eq!(parse(text), Some(Memory { total_mib: 24105, available_mib: 21496 }));
        assert_eq!(parse("MemTotal: 5 kB\n"), None);
        assert!(Memory::read().unwrap().total_mib > 0);
    }

    const PLENTY: Used = Used { now: 10, most: 1000 };

    #[test]
    fn descriptors_and_threads_run_out_before_the_host_does() {
        let refusal = |files, threads| {
            let memory = Memory { total_mib: 4000, available_mib: 4000 };
            let (sandboxes, promised_mib, free_disk_mib) = (0, 0, 10_000);
            let host = HostView { sandboxes, promised_mib, memory, free_disk_mib, files, threads };
            let wanted = Resources { vcpus: 1, memory_mib: 64, disk_mib: 1, pids: 1 };
            admit(&Limits::default(), &host, &wanted).err().map(|error| error.to_string())
        };
        for (files, threads, expected) in [
            (984, 920, None),
            (985, 920, Some("the zone's limit of 1000 open files is reached")),
            (984, 921, Some("the zone's limit of 1000 host threads is reached")),
        ] {
            let used = |now| Used { now, most: 1000 };
            let refused = refusal(used(files), used(threads));
            assert_eq!(refused.as_deref(), expected, "{files} {threads}");
        }
        assert_eq!(threads_of("0.20 0.18 0.12 1/804 11206\n"), Some(804));
        assert_eq!(threads_of("odd"), None);
        assert!(Used::files().unwrap().now >= 3);
    }

    #[test]
    fn table() {
        let limits = Limits {
            sandboxes: 10,
            memory_reserve_mib: 500,
            memory_overcommit: 2,
            disk_reserve_mib: 100,
        };
        for (why, (sandboxes, promised_mib, available_mib, free_disk_mib), wanted, expected) in [
            ("an empty host", (0, 0, 4000, 1000), 512, "ok"),
            ("the last place", (9, 0, 4000, 1000), 512, "ok"),
            ("no place", (10, 0, 4000, 1000), 512, "limit of 10 sandboxes"),
            ("promised to the brim", (5, 7488, 4000, 1000), 512, "ok"),
            (
                "promised too much",
                (5, 7489, 4000, 1000),
                512,
                "limit of 8000 memory (MiB promised)",
            ),
            ("just enough free", (5, 0, 1012, 1000), 512, "ok"),
            ("too little free", (5, 0, 1011, 1000), 512, "limit of 511 memory (MiB free)"),
            ("below the reserve", (5, 0, 100, 1000), 512, "limit of 0 memory (MiB free)"),
            (
                "bigger than the host",
                (0, 0, 4000, 1000),
                9000,
                "limit of 8000 memory (MiB promised)",
            ),
            ("the disk's reserve", (0, 0, 4000, 99), 512, "disk is full"),
        ] {
            let host = HostView {
                sandboxes,
                promised_mib,
                memory: Memory { total_mib: 4000, available_mib },
                free_disk_mib,
                files: PLENTY,
                threads: PLENTY,
            };
            let resources = Resources { vcpus: 1, memory_mib: wanted, disk_mib: 1, pids: 1 };
            let answer = match admit(&limits, &host, &resources) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(answer.contains(expected), "{why}: {answer}");
        }
    }
}
