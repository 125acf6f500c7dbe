//! The dependency table of ARCHITECTURE.md is what Cargo says.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use crate::tidy::root;

type Edges = BTreeMap<String, BTreeSet<String>>;

/// The rows of the table under the heading: who, and what it may use.
fn written() -> Edges {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("## Which way dependencies point").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows: Vec<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .collect();
    let all: BTreeSet<String> = rows.iter().flat_map(|(from, _)| names(from)).collect();
    let mut edges = Edges::new();
    for (from, to) in rows {
        let listed = names(to);
        let to = match to.split_whitespace().next() {
            Some("everything") => all.clone(),
            Some("all") => all.difference(&listed).filter(|n| *n != "tests").cloned().collect(),
            _ => listed,
        };
        for name in names(from) {
            edges.insert(name, to.clone());
        }
    }
    edges
}

fn built() -> Edges {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &str| name.strip_prefix("sandboxo-").unwrap_or(name).to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                // What a test needs is not what the product is made of.
                .filter(|d| d["kind"] != "dev")
                .map(|d| d["name"].as_str().unwrap())
                .filter(|name| name.starts_with("sandboxo-"))
                .map(short)
                .collect();
            (short(package["name"].as_str().unwrap()), dependencies)
        })
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let (written, built) = (written(), built());
    let crates = |edges: &Edges| edges.keys().cloned().collect::<Vec<_>>();
    assert_eq!(crates(&written), crates(&built), "the table and the workspace name other crates");
    for (from, to) in &built {
        let extra: Vec<_> =
            to.iter().filter(|name| **name != *from && !written[from].contains(*name)).collect();
        assert!(extra.is_empty(), "{from} may not use {extra:?}");
    }
}

#[test]
fn one_crate_names_each_of_these_libraries() {
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let fenced = [
        ("redb", "appliance/store"),
        ("sled", "appliance/spool"),
        ("rtnetlink", "zone"),
        ("clap", "appliance"),
        ("clap_complete", "appliance"),
        ("clap_mangen", "appliance"),
    ];
    for manifest in crate::tidy::files(|path| path.ends_with("Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml").to_owned();
        let text = crate::tidy::read(&manifest);
        for (library, _) in fenced {
            if folder != manifest && text.lines().any(|l| l.starts_with(&format!("{library}."))) {
                users.entry(library).or_default().push(folder.clone());
            }
        }
    }
    for (library, home) in fenced {
        let users = users.get(library).cloned().unwrap_or_default();
        assert!(users.iter().all(|user| user == home), "{library} is used by {users:?}");
    }
}
