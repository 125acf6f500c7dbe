//! The machine that a guest sees: as much memory and as many processors as it may use.
//!
//! runsc reads both of its own surroundings, and without a control group of its making would show
//! the host's: programs size their heaps and their threads by them. So it starts with a
//! `/proc/meminfo` of this size in sight, and on as many processors as the guest gets; once the
//! sandbox runs it may use all of them, and its control group alone limits it.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// A thread that is made meanwhile has its maker's processors, so few looks see all of them.
const LOOKS: usize = 16;

/// What runsc reads of it is the first line.
fn meminfo(memory_mib: u32) -> String {
    let kib = u64::from(memory_mib) << 10;
    ["MemTotal", "MemFree", "MemAvailable"]
        .map(|name| format!("{:<16}{kib:>8} kB\n", format!("{name}:")))
        .concat()
}

/// `scratch` is the caller's own: two that start at once may both find none.
pub(crate) fn write_meminfo(path: &Path, scratch: &Path, memory_mib: u32) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(scratch, meminfo(memory_mib))?;
    fs::rename(scratch, path)
}

/// The host's, as far as this process may use them.
pub(crate) struct Processors {
    all: Vec<usize>,
    set: CpuSet,
    /// Where the last sandbox began.
    turn: AtomicUsize,
}

impl Processors {
    pub(crate) fn read() -> io::Result<Self> {
        let set = sched_getaffinity(Pid::from_raw(0))?;
        let all = (0..CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false));
        Ok(Self { all: all.collect(), set, turn: AtomicUsize::new(0) })
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Those that a sandbox begins on; none: all.
    pub(crate) fn begin_on(&self, vcpus: u32) -> Vec<usize> {
        let count = usize::try_from(vcpus.max(1)).unwrap_or(usize::MAX);
        pick(&self.all, self.turn.fetch_add(count, Ordering::Relaxed), count)
    }

    /// Gives these processes all of them.
    pub(crate) fn give_all(&self, pids: impl IntoIterator<Item = i32>) -> io::Result<()> {
        pids.into_iter().try_for_each(|pid| self.give_all_to(pid))
    }

    fn give_all_to(&self, pid: i32) -> io::Result<()> {
        for _look in 0..LOOKS {
            let mut narrow = 0;
            for thread in threads(pid)? {
                match sched_getaffinity(thread) {
                    Ok(set) if set == self.set => continue,
                    _ => narrow += 1,
                }
                match sched_setaffinity(thread, &self.set) {
                    // Gone between two looks.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            if narrow == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("it makes threads faster than they can be counted"))
    }
}

fn threads(pid: i32) -> io::Result<Vec<Pid>> {
    let entries = match fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).map(Pid::from_raw).collect())
}

/// `count` neighbors from where it is the turn; none if that would be all.
fn pick(all: &[usize], turn: usize, count: usize) -> Vec<usize> {
    if count >= all.len() {
        return Vec::new();
    }
    all.iter().copied().cycle().skip(turn % all.len()).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_says_how_much_there_is() {
        let text = meminfo(512);
        assert!(text.starts_with("MemTotal:         524288 kB\n"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn turns_go_round_all_processors() {
        for (turn, count, expected) in [
            (0, 1, vec![3]),
            (1, 1, vec![4]),
            (2, 2, vec![7, 3]),
            (4, 2, vec![4, 7]),
            (0, 3, vec![]),
            (0, 64, vec![]),
        ] {
            assert_eq!(pick(&[3, 4, 7], turn, count), expected, "{count} from {turn}");
        }
    }

    #[tokio::test]
    async fn a_narrow_process_gets_all() {
        let processors = Processors::read().unwrap();
        let mut child = tokio::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let mut one = CpuSet::new();
        one.set(processors.all[0]).unwrap();
        sched_setaffinity(Pid::from_raw(pid), &one).unwrap();
        processors.give_all([pid, i32::MAX]).unwrap();
        assert_eq!(sched_getaffinity(Pid::from_raw(pid)).unwrap(), processors.set);
        child.kill().await.unwrap();
    }
}
