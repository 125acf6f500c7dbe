//! The host: what the zone needs of it.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

use super::{Finding, Outcome};
use crate::{config::Config, output, programs, state::StateFolder};

/// The oldest runsc that has what is needed: its release date.
const RUNSC_FLOOR: u32 = 20_240_729;
const MIB: u64 = 1 << 20;

pub(super) fn check(config: &Config, state: &StateFolder) -> Vec<Finding> {
    let finding = |check, outcome| Finding { check, outcome };
    vec![
        finding("root", root()),
        finding("kernel", kernel(&read("/proc/sys/kernel/osrelease"))),
        finding("runsc", runsc(config)),
        finding("agent", agent(config)),
        finding("cgroups", cgroups(&read("/proc/cgroups"), Path::new("/sys/fs/cgroup"))),
        finding("nft", nft()),
        finding("loop devices", loop_devices()),
        finding("tools", tools()),
        finding("memory", memory(config)),
        finding("disk", disk(config, state)),
    ]
}

fn root() -> Outcome {
    if nix::unistd::geteuid().is_root() {
        Outcome::good("yes")
    } else {
        Outcome::bad("this is not root", "run it with sudo; sandboxes need mounts and namespaces")
    }
}

fn kernel(release: &str) -> Outcome {
    let release = release.trim();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 10) {
        Outcome::good(release)
    } else {
        Outcome::bad(release, "a Linux kernel 5.10 or newer is needed")
    }
}

fn runsc(config: &Config) -> Outcome {
    let todo = "install runsc 20240729 or newer: `apt-get install runsc` on Debian 13, `./dev up` \
                on Debian 12, the gVisor project's own packages elsewhere";
    let program = match programs::runsc(config) {
        Ok(program) => program,
        Err(error) => return Outcome::bad(format!("{error:#}"), todo),
    };
    let output = match Command::new(&program).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return Outcome::bad(format!("{}: {error}", program.display()), todo),
    };
    let first = output.lines().next().unwrap_or_default().to_owned();
    match release_date(&first) {
        Some(date) if date >= RUNSC_FLOOR => {}
        Some(_) => return Outcome::bad(format!("{first} is too old"), todo),
        // Built from source: it has no date to go by, its flags tell.
        None => {}
    }
    let flags = match Command::new(&program).arg("flags").output() {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            text
        }
        Err(error) => return Outcome::bad(format!("{}: {error}", program.display()), todo),
    };
    let missing: Vec<&str> = ["overlay2", "host-uds", "net-disconnect-ok"]
        .into_iter()
        .filter(|flag| !flags.contains(flag))
        .collect();
    if missing.is_empty() {
        Outcome::good(first)
    } else {
        Outcome::bad(format!("{first} has no flag {}", missing.join(", ")), todo)
    }
}

/// Of `runsc version release-20240729.0` or `runsc version 0.0~20240729.0-4`.
fn release_date(line: &str) -> Option<u32> {
    let digits = |part: &&str| part.len() == 8 && part.starts_with("20");
    line.split(|c: char| !c.is_ascii_digit()).find(digits)?.parse().ok()
}

fn agent(config: &Config) -> Outcome {
    let path = match programs::agent(config) {
        Ok(path) => path,
        Err(error) => return Outcome::bad(format!("{error:#}"), "build it: `./dev build`"),
    };
    match std::fs::metadata(&path) {
        Ok(meta) if meta.permissions().mode() & 0o111 != 0 => {}
        Ok(_) => {
            let todo = format!("chmod +x {}", path.display());
            return Outcome::bad(format!("{} can't be executed", path.display()), todo);
        }
        Err(error) => {
            return Outcome::bad(
                format!("{}: {error}", path.display()),
                "put sandboxo-agent beside sandboxo (`./dev build` does), or set zone.agent",
            );
        }
    }
    match std::fs::read(&path) {
        Ok(bytes) if asks_for_an_interpreter(&bytes) => Outcome::bad(
            format!("{} is linked dynamically", path.display()),
            "build it static, as `./dev build` does: no image has to have a libc for it",
        ),
        Ok(_) => Outcome::good(path.display().to_string()),
        Err(error) => Outcome::bad(format!("{}: {error}", path.display()), "make it readable"),
    }
}

/// A 64-bit ELF file with a program header of the kind `PT_INTERP`.
fn asks_for_an_interpreter(elf: &[u8]) -> bool {
    let number = |at: usize, length: usize| {
        let bytes = elf.get(at..at + length)?;
        Some(bytes.iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte)))
    };
    let headers = || {
        let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        Some((0..count).filter_map(|at| number(table + at * size, 4)).collect::<Vec<_>>())
    };
    elf.starts_with(b"\x7fELF\x02\x01") && headers().is_some_and(|kinds| kinds.contains(&3))
}

fn cgroups(table: &str, mount: &Path) -> Outcome {
    let unified = std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    let wanted = ["memory", "cpu", "pids"];
    if wanted.iter().all(|name| unified.split_whitespace().any(|found| found == *name)) {
        return Outcome::good("version 2");
    }
    let enabled = |name: &&str| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(*name) && words.last() == Some("1")
        }) && mount.join(name).is_dir()
    };
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !enabled(name)).collect();
    if missing.is_empty() {
        Outcome::good("version 1")
    } else {
        Outcome::bad(
            format!("no controller {}", missing.join(", ")),
            "mount cgroup2 at /sys/fs/cgroup, and boot without cgroup_disable=",
        )
    }
}

/// Lists nothing of anybody's, but needs the kernel's `nf_tables` and the right to use it.
fn nft() -> Outcome {
    match Command::new("nft").args(["list", "tables"]).output() {
        Ok(output) if output.status.success() => Outcome::good("works"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Outcome::bad(said, "load the kernel module nf_tables: `modprobe nf_tables`")
        }
        Err(error) => Outcome::bad(format!("nft: {error}"), "apt-get install nftables"),
    }
}

fn loop_devices() -> Outcome {
    match std::fs::metadata("/dev/loop-control") {
        Ok(meta) if meta.rdev() != 0 => Outcome::good("/dev/loop-control"),
        _ => Outcome::bad("there is no /dev/loop-control", "modprobe loop"),
    }
}

fn tools() -> Outcome {
    let missing = |programs: &[(&'static str, &'static str)]| -> Vec<&'static str> {
        let absent =
            programs.iter().filter(|(program, _)| programs::find(Path::new(program)).is_none());
        absent.map(|(_, package)| *package).collect()
    };
    let needed = missing(&[("mkfs.ext4", "e2fsprogs"), ("ip", "iproute2"), ("tar", "tar")]);
    if !needed.is_empty() {
        let packages = needed.join(" ");
        return Outcome::bad(format!("missing: {packages}"), format!("apt-get install {packages}"));
    }
    let useful = missing(&[("mmdebstrap", "mmdebstrap")]);
    if !useful.is_empty() {
        return Outcome::warning(
            "mmdebstrap is missing: `sandboxo template base` needs it",
            "apt-get install mmdebstrap",
        );
    }
    Outcome::good("mkfs.ext4, ip, tar, mmdebstrap")
}

fn memory(config: &Config) -> Outcome {
    let field = crate::cli::bench::machine::meminfo;
    let (Some(total), Some(available)) = (field("MemTotal"), field("MemAvailable")) else {
        return Outcome::bad("/proc/meminfo can't be read", "mount /proc");
    };
    let found =
        format!("{} available of {}", output::bytes(available * 1024), output::bytes(total * 1024));
    if available / 1024 > config.limits.memory_reserve_mib + 1024 {
        Outcome::good(found)
    } else {
        let reserve = config.limits.memory_reserve_mib;
        let todo = format!("free some: {reserve} MiB stay reserved for the host");
        Outcome::warning(found, todo)
    }
}

fn disk(config: &Config, state: &StateFolder) -> Outcome {
    let folder =
        state.root().ancestors().find(|folder| folder.exists()).unwrap_or_else(|| Path::new("/"));
    let free = match nix::sys::statvfs::statvfs(folder) {
        Ok(stat) => stat.blocks_available() * stat.fragment_size(),
        Err(errno) => {
            return Outcome::bad(format!("{}: {errno}", folder.display()), "use another --state");
        }
    };
    let found = format!("{} free for {}", output::bytes(free), state.root().display());
    let reserve = config.limits.disk_reserve_mib * MIB;
    if free < reserve {
        Outcome::bad(found, "free some, or use another --state: no sandbox is started now")
    } else if free < reserve + 4096 * MIB {
        Outcome::warning(found, "free some, or use another --state")
    } else {
        Outcome::good(found)
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_dates() {
        for (line, date) in [
            ("runsc version release-20240729.0", Some(20_240_729)),
            ("runsc version 0.0~20240729.0", Some(20_240_729)),
            ("runsc version 0.0~20221219.0-2+b3", Some(20_221_219)),
            ("runsc version VERSION_MISSING", None),
            ("", None),
        ] {
            assert_eq!(release_date(line), date, "{line}");
        }
    }

    #[test]
    fn kernels() {
        assert!(kernel("6.18.44-x\n").is_good());
        assert!(kernel("5.10.0-28-amd64").is_good());
        assert!(!kernel("4.19.0").is_good());
        assert!(!kernel("").is_good());
    }

    #[test]
    fn cgroup_versions() {
        let folder = tempfile::tempdir().unwrap();
        let table = "#name h n enabled\ncpu 1 1 1\nmemory 2 1 1\npids 3 1 0\n";
        let outcome = cgroups(table, folder.path());
        assert!(
            matches!(&outcome, Outcome::Bad { found, .. } if found == "no controller memory, cpu, pids")
        );
        for name in ["cpu", "memory", "pids"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let outcome = cgroups(table, folder.path());
        assert!(matches!(&outcome, Outcome::Bad { found, .. } if found == "no controller pids"));
        let table = table.replace("pids 3 1 0", "pids 3 1 1");
        assert_eq!(cgroups(&table, folder.path()), Outcome::good("version 1"));
        std::fs::write(folder.path().join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        assert_eq!(cgroups("", folder.path()), Outcome::good("version 2"));
    }

    /// This test binary is dynamic; what is no program asks for nothing.
    #[test]
    fn an_interpreter_is_seen() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(asks_for_an_interpreter(&own));
        assert!(!asks_for_an_interpreter(b"\x7fELF\x02\x01"));
        assert!(!asks_for_an_interpreter(b"#!/bin/sh"));
    }
}
