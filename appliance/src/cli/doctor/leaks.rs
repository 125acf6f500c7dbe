//! `doctor --leaks`: what is on this host against what lives or waits.
//!
//! A sandbox on its way in or out is seen half. What is wrong is what stays wrong: a name counts
//! only if every look has found it, from the first to the last.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use sandboxo_zone::{Inventory, Row, Told};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    boot,
    cli::{
        Context,
        admin::{cell, rows},
        target::Target,
    },
    config::Config,
    output::{self, Form, Progress},
    state::StateFolder,
};

const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(super) async fn leaks(
    context: &Context,
    config: &Config,
    state: &StateFolder,
    quiesce: Duration,
) -> Result<ExitCode> {
    let target = Target::find(context)?;
    let zone = boot::zone_config(config, state)?;
    let progress = Progress::spinner("comparing what is on this host with what lives");
    let begin = Instant::now();
    let process = state.holder();
    let mut found: Option<Vec<Row>> = None;
    let keeper = loop {
        // The zone's own count of its pool is some seconds old, so it is asked each time.
        let told = told(&target).await?;
        let inventory = Inventory::take(&zone, process).await.context("look at this host")?;
        let now = inventory.compare(&told);
        let lasting = lasting(found.take(), now);
        let is_even = lasting.iter().all(Row::is_even);
        found = Some(lasting);
        if is_even || begin.elapsed() >= quiesce {
            break inventory.keeper;
        }
        sleep(LOOK_AGAIN).await;
    };
    drop(progress);
    let found = found.unwrap_or_default();
    let processes: BTreeMap<_, _> = [("appliance", process), ("keeper", keeper)]
        .into_iter()
        .filter_map(|(name, pid)| Some((name, Size::of(pid?)?)))
        .collect();
    match context.form {
        Form::Json => output::print_json(&json!({
            "lookedForMs": u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
            "rows": found.iter().map(RowView::from).collect::<Vec<_>>(),
            "processes": processes,
        }))?,
        Form::Human => output::print(&human(&found, &processes))?,
    }
    let even = found.iter().all(Row::is_even);
    Ok(if even { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn told(target: &Target) -> Result<Told> {
    let zone = target.admin_get("/zone").await?;
    let waiting = |sort: &str| zone.pointer(sort).and_then(Value::as_u64).unwrap_or(0);
    let pooled = waiting("/capacity/warm") + waiting("/capacity/blanks");
    let mut live = BTreeSet::new();
    let mut page = target.admin_get("/sandboxes").await?;
    loop {
        for sandbox in rows(page.get("sandboxes").unwrap_or(&Value::Null)) {
            // Nothing of a paused one runs.
            if cell(sandbox, "phase") == "paused" {
                continue;
            }
            let id = cell(sandbox, "id");
            live.insert(id.parse().with_context(|| format!("the appliance lists {id:?}"))?);
        }
        match page.get("token").and_then(Value::as_str) {
            Some(token) => page = target.admin_get(&format!("/sandboxes?token={token}")).await?,
            None => break,
        }
    }
    Ok(Told { live, pooled: usize::try_from(pooled)? })
}

/// Of the differences those that were there before, too.
fn lasting(before: Option<Vec<Row>>, now: Vec<Row>) -> Vec<Row> {
    let Some(before) = before else { return now };
    let kept = |row: Row| {
        let old = before.iter().find(|old| old.kind == row.kind);
        let both = |now: &BTreeSet<String>, old: Option<&BTreeSet<String>>| -> BTreeSet<String> {
            now.iter().filter(|name| old.is_some_and(|old| old.contains(*name))).cloned().collect()
        };
        Row {
            extra: both(&row.extra, old.map(|old| &old.extra)),
            missing: both(&row.missing, old.map(|old| &old.missing)),
            ..row
        }
    };
    now.into_iter().map(kept).collect()
}

#[derive(Serialize)]
struct RowView<'a> {
    kind: &'a str,
    expected: usize,
    found: usize,
    extra: &'a BTreeSet<String>,
    missing: &'a BTreeSet<String>,
}

impl<'a> From<&'a Row> for RowView<'a> {
    fn from(row: &'a Row) -> Self {
        let Row { kind, expected, found, extra, missing } = row;
        Self { kind, expected: *expected, found: *found, extra, missing }
    }
}

/// What may grow in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    pid: i32,
    rss_bytes: u64,
    threads: u64,
    descriptors: usize,
}

impl Size {
    /// `None`: it has ended.
    fn of(pid: i32) -> Option<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            pid,
            rss_bytes: field("VmRSS:")? * 1024,
            threads: field("Threads:")?,
            descriptors: std::fs::read_dir(folder.join("fd")).ok()?.count(),
        })
    }
}

fn human(found: &[Row], processes: &BTreeMap<&str, Size>) -> String {
    let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
    let lines: Vec<[String; 6]> = found
        .iter()
        .map(|row| {
            [
                if row.is_even() { "ok" } else { "BAD" }.to_owned(),
                row.kind.to_owned(),
                row.expected.to_string(),
                row.found.to_string(),
                names(&row.extra),
                names(&row.missing),
            ]
        })
        .collect();
    let head = ["", "KIND", "EXPECTED", "FOUND", "EXTRA", "MISSING"];
    let table = std::iter::once(output::table(head, &lines));
    let processes = processes.iter().map(|(name, size)| {
        let Size { pid, rss_bytes, threads, descriptors } = size;
        let rss = output::bytes(*rss_bytes);
        format!("{name} {pid}: {rss}, {descriptors} descriptors, {threads} threads")
    });
    table.chain(processes).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, extra: &[&str], missing: &[&str]) -> Row {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Row { kind, expected: 1, found: 2, extra: set(extra), missing: set(missing) }
    }

    #[test]
    fn a_difference_counts_only_if_it_stays() {
        let first = vec![row("a", &["x", "y"], &[]), row("b", &[], &["z"])];
        assert_eq!(lasting(None, first.clone()), first);
        let second = vec![row("a", &["y", "w"], &[]), row("b", &["z"], &[])];
        assert_eq!(lasting(Some(first), second), [row("a", &["y"], &[]), row("b", &[], &[])]);
    }

    #[test]
    fn this_process_has_a_size() {
        let size = Size::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(size.rss_bytes > 0 && size.threads > 0 && size.descriptors > 2, "{size:?}");
        assert_eq!(Size::of(-1), None);
    }
}
