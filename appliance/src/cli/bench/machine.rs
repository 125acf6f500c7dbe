//! What the numbers were taken on.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

pub(super) fn machine() -> Value {
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "cpu": model.map(|(_, name)| name),
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "memory_mib": meminfo("MemTotal").map(|kib| kib / 1024),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load": read("/proc/loadavg").split(' ').next(),
    })
}

pub(super) fn versions(runsc: &Path) -> Value {
    let told = Command::new(runsc).arg("--version").output().ok();
    let told = told.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    json!({ "sandboxo": env!("CARGO_PKG_VERSION"), "runsc": told.lines().next() })
}

/// In KiB.
pub(crate) fn meminfo(field: &str) -> Option<u64> {
    read("/proc/meminfo").lines().find_map(|line| {
        line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.trim().parse().ok()
    })
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
