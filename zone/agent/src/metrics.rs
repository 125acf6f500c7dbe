//! `/metrics`: what the sandbox's own kernel says of its use. The zone knows better what the host
//! gives for it.

use std::fs;

use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Metrics {
    ts: i64,
    cpu_count: usize,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

/// Remembers the last look: use of the CPU is a difference.
#[derive(Default)]
pub(crate) struct Meter {
    last: Mutex<CpuTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CpuTime {
    busy: u64,
    all: u64,
}

impl Meter {
    pub(crate) fn read(&self, now_seconds: i64) -> Metrics {
        // Without one of these files its numbers are 0.
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = CpuTime::parse(&text("/proc/stat"));
        let before = std::mem::replace(&mut *self.last.lock(), cpu);
        let memory = Memory::parse(&text("/proc/meminfo"));
        let disk = statvfs("/").ok();
        let (disk_total, disk_used) = disk.map_or((0, 0), |disk| {
            let total = disk.blocks() * disk.fragment_size();
            (total, total.saturating_sub(disk.blocks_free() * disk.fragment_size()))
        });
        Metrics {
            ts: now_seconds,
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_used_pct: cpu.percent_since(before),
            mem_total: memory.total,
            mem_used: memory.used(),
            mem_cache: memory.cache,
            mem_total_mib: memory.total >> 20,
            mem_used_mib: memory.used() >> 20,
            disk_used,
            disk_total,
        }
    }
}

impl CpuTime {
    /// The first line: user, nice, system, idle, iowait, and more that is busy.
    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let times = line.split_whitespace().skip(1).take(8).map(|time| time.parse().unwrap_or(0));
        times.enumerate().fold(Self::default(), |sum, (at, time): (usize, u64)| Self {
            busy: sum.busy + if at == 3 || at == 4 { 0 } else { time },
            all: sum.all + time,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "ticks between two looks are few")]
    fn percent_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let busy = self.busy.saturating_sub(before.busy);
        if all == 0 {
            return 0.0;
        }
        (busy as f64 * 10_000.0 / all as f64).round() / 100.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Memory {
    total: u64,
    free: u64,
    cache: u64,
}

/// What the sandbox may use, in bytes; 0 if nothing says.
pub(crate) fn total_memory() -> u64 {
    fs::read_to_string("/proc/meminfo").map_or(0, |text| Memory::parse(&text).total)
}

impl Memory {
    fn parse(meminfo: &str) -> Self {
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Self {
            total: field("MemTotal:").unwrap_or(0),
            free: field("MemFree:").unwrap_or(0),
            cache: field("Cached:").unwrap_or(0) + field("Buffers:").unwrap_or(0),
        }
    }

    fn used(self) -> u64 {
        self.total.saturating_sub(self.free).saturating_sub(self.cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_a_share_of_what_passed() {
        let first = CpuTime::parse("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1\n");
        assert_eq!(first, CpuTime { busy: 20, all: 100 });
        let then = CpuTime { busy: 21, all: 103 };
        assert!((then.percent_since(first) - 33.33).abs() < 1e-9);
        assert!(first.percent_since(first).abs() < 1e-9);
        assert_eq!(CpuTime::parse(""), CpuTime::default());
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:        1000 kB\nMemFree:          300 kB\nMemAvailable: 5 kB\n\
                    Buffers:           50 kB\nCached:          150 kB\nSwapCached: 7 kB\n";
        let memory = Memory::parse(text);
        assert_eq!((memory.total, memory.cache, memory.used()), (1_024_000, 204_800, 512_000));
    }
}
