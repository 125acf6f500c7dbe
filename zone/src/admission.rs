//! Whether the host can take one more sandbox. Values in, answer out.

use std::{fs, io};

use sandboxo_zone_protocol::{CreateError, Resources};

use crate::config::Limits;

/// Free memory below the reserve and this is pressure: nothing is started that nobody waits for.
const PRESSURE_MARGIN_MIB: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostView {
    /// Somebody's, running or on the way.
    pub(crate) sandboxes: u32,
    /// What those may use in sum.
    pub(crate) promised_mib: u64,
    pub(crate) memory: Memory,
    pub(crate) free_disk_mib: u64,
}

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
