//! Rules of docs/style.md that no lint knows.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Over this a file has a second concept in it.
const MOST_LINES: usize = 1_000;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Tracked or about to be: what git would show to somebody else.
pub(crate) fn files(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let found: Vec<String> = listed
        .lines()
        .filter(|path| wanted(path) && root().join(path).exists())
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "no files: is this a git checkout?");
    found
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

fn rust() -> Vec<String> {
    files(|path| is_rust(path) && !path.contains("/src/gen/"))
}

fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn no_file_is_too_long() {
    let long = |path: &String| read(path).lines().count() > MOST_LINES;
    none("files over the limit", &rust().into_iter().filter(long).collect::<Vec<_>>());
}

#[test]
fn no_mod_rs() {
    let soup = |path: &String| path.ends_with("/mod.rs");
    none("use foo.rs beside foo/", &rust().into_iter().filter(soup).collect::<Vec<_>>());
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent = |path: &String| !read(path).starts_with("//!");
    none("modules without `//!`", &rust().into_iter().filter(silent).collect::<Vec<_>>());
}

#[test]
fn no_unfinished_business() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("unimplemented", "!"),
    ];
    let mut found = Vec::new();
    for path in rust() {
        for (at, line) in read(&path).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{path}:{} {}", at + 1, line.trim()));
            }
        }
    }
    none("an issue, or nothing", &found);
}

#[test]
fn no_test_is_left_out() {
    let mark = concat!("#[", "ignore");
    let ignored = |path: &String| read(path).contains(mark);
    none("ignored tests that nobody runs", &rust().into_iter().filter(ignored).collect::<Vec<_>>());
}

#[test]
fn surfaces_have_their_own_wire_types() {
    let serialised = |path: &String| {
        let text = read(path);
        text.contains("Json(record") || text.contains("Json(SandboxRecord")
    };
    let surfaces = files(|path| path.starts_with("appliance/api-") && is_rust(path));
    none("records sent as they are", &surfaces.into_iter().filter(serialised).collect::<Vec<_>>());
}
