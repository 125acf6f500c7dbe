//! What an appliance leaves on its host, and waiting for a level.

use std::{collections::BTreeSet, future::Future, path::Path, time::Duration};

use anyhow::{Result, bail};

/// Everything on the host that carries an instance's name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traces(pub BTreeSet<String>);

impl Traces {
    pub fn of(instance: &str) -> Result<Self> {
        let mut found = BTreeSet::new();
        let mut note = |kind: &str, name: &str| found.insert(format!("{kind} {name}"));
        for line in std::fs::read_to_string("/proc/self/mounts")?.lines() {
            if line.contains(instance) {
                note("mount", line);
            }
        }
        for (kind, folder) in
            [("link", "/sys/class/net"), ("netns", "/run/netns"), ("loop", "/sys/block")]
        {
            for name in names(folder) {
                let backing = Path::new(folder).join(&name).join("loop/backing_file");
                let text = std::fs::read_to_string(backing).unwrap_or_default();
                if name.contains(instance) || text.contains(instance) {
                    note(kind, &name);
                }
            }
        }
        for pid in names("/proc").iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(instance) && !line.contains("nextest") {
                note("process", &line);
            }
        }
        for controller in names("/sys/fs/cgroup") {
            let folder = format!("/sys/fs/cgroup/{controller}/sandboxo/{instance}");
            for group in names(&folder) {
                if Path::new(&folder).join(&group).is_dir() {
                    note("cgroup", &format!("{controller}/{group}"));
                }
            }
        }
        Ok(Self(found))
    }
}

fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until `check` gives a value; what it says meanwhile is the failure's text.
pub async fn eventually<T, F>(limit: Duration, mut check: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let until = tokio::time::Instant::now() + limit;
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(last) if tokio::time::Instant::now() >= until => {
                bail!("not within {limit:?}: {last:#}")
            }
            Err(_not_yet) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
