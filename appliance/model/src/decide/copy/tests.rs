//! What `docker build` makes of the same by its rules, case by case; a `!` in the name says where
//! the archive that clients send, or one rule for any number of matches, leads elsewhere. buildah
//! 1.28 makes the same of all of them, but that it drops the set-user-ID bit.

use super::*;

/// `d755 path`, `f644 path`, `l path`, `= path of`.
fn entry(line: &str) -> Entry {
    let mut words = line.split(' ');
    let (kind, path) = (words.next().unwrap(), words.next().unwrap());
    let mode = |digits| u32::from_str_radix(digits, 8).unwrap();
    let (kind, mode) = match kind.split_at(1) {
        ("d", digits) => (Kind::Folder, mode(digits)),
        ("f", digits) => (Kind::File, mode(digits)),
        ("l", "") => (Kind::Link, 0o777),
        ("=", "") => (Kind::Same(words.next().unwrap().into()), 0o644),
        _ => panic!("{line}"),
    };
    Entry { path: path.into(), kind, mode }
}

fn line(Placed { source, path, kind, mode }: &Placed) -> String {
    match (kind, source) {
        (Kind::Folder, None) => format!("+{mode:o} {path}"),
        (Kind::Folder, Some(_)) => format!("d{mode:o} {path}"),
        (Kind::File, _) => format!("f{mode:o} {path}"),
        (Kind::Link, _) => format!("l {path}"),
        (Kind::Same(of), _) => format!("= {path} {of}"),
    }
}

const NOTHING: (What, &str) = (What::Nothing, "/");

fn copy(
    entries: &[&str],
    from: &str,
    to: &str,
    mode: Option<u32>,
    (what, nearest): (What, &str),
) -> Result<Vec<String>, CopyError> {
    let entries: Vec<Entry> = entries.iter().map(|text| entry(text)).collect();
    let rule = Rule { from: from.into(), to: to.into(), mode };
    let there = There { what, nearest: nearest.into() };
    place(&entries, &rule, &there).map(|placed| placed.iter().map(line).collect())
}

#[test]
fn golden_places() {
    const FILE: &[&str] = &["f644 a.txt"];
    const TREE: &[&str] =
        &["d700 src", "d750 src/deep", "f640 src/deep/b", "f755 src/run", "l src/link"];
    for (why, entries, from, to, there, expected) in [
        ("a file to a new name", FILE, "a.txt", "/x", NOTHING, &["f644 /x"][..]),
        (
            "a file to a deep new name",
            FILE,
            "a.txt",
            "/x/y/z",
            NOTHING,
            &["+755 /x", "+755 /x/y", "f644 /x/y/z"],
        ),
        ("a file into a new folder", FILE, "a.txt", "/x/", NOTHING, &["+755 /x", "f644 /x/a.txt"]),
        (
            "a file into a folder that is there",
            FILE,
            "a.txt",
            "/x",
            (What::Folder, "/x"),
            &["f644 /x/a.txt"],
        ),
        ("a file over a file", FILE, "a.txt", "/x", (What::Other, "/"), &["f644 /x"]),
        ("a file to the root", FILE, "a.txt", "/", (What::Folder, "/"), &["f644 /a.txt"]),
        (
            "a file from a folder",
            &["f644 d/e/a.txt"],
            "d/e/a.txt",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a.txt"],
        ),
        (
            "a file by a roundabout way",
            &["f644 d/a.txt"],
            "./d/../d/a.txt",
            "/x",
            NOTHING,
            &["f644 /x"],
        ),
        (
            "a folder gives its contents",
            TREE,
            "src",
            "/x",
            NOTHING,
            &["+755 /x", "d750 /x/deep", "f640 /x/deep/b", "f755 /x/run", "l /x/link"],
        ),
        (
            "slashes at a folder change nothing",
            TREE,
            "src/",
            "/x/",
            NOTHING,
            &["+755 /x", "d750 /x/deep", "f640 /x/deep/b", "f755 /x/run", "l /x/link"],
        ),
        (
            "a folder that is there keeps its mode",
            TREE,
            "src",
            "/x",
            (What::Folder, "/x"),
            &["d750 /x/deep", "f640 /x/deep/b", "f755 /x/run", "l /x/link"],
        ),
        (
            "everything",
            &["d755 .", "f644 a.txt", "f600 .hidden"],
            ".",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a.txt", "f600 /x/.hidden"],
        ),
        (
            "everything to the root",
            &["f644 a.txt"],
            ".",
            "/",
            (What::Folder, "/"),
            &["f644 /a.txt"],
        ),
        ("an empty folder", &["d755 empty"], "empty", "/x/y", NOTHING, &["+755 /x", "+755 /x/y"]),
        (
            "an empty folder within",
            &["d755 s", "d711 s/e"],
            "s",
            "/x",
            NOTHING,
            &["+755 /x", "d711 /x/e"],
        ),
        (
            "a pattern, files",
            &["f644 a.txt", "f644 b.txt"],
            "*.txt",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a.txt", "f644 /x/b.txt"],
        ),
        (
            "a pattern in a folder",
            &["f644 d/a.txt"],
            "d/*.txt",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a.txt"],
        ),
        (
            "a pattern of folders",
            &["f644 one/a", "f644 two/a"],
            "*/a",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a", "f644 /x/a"],
        ),
        ("a question mark", &["f644 a1"], "a?", "/x/", NOTHING, &["+755 /x", "f644 /x/a1"]),
        ("a class", &["f644 a1"], "a[0-9]", "/x/", NOTHING, &["+755 /x", "f644 /x/a1"]),
        (
            "a pattern that matches a folder gives its contents",
            &["d755 one", "f644 one/a", "f644 two"],
            "*",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a", "f644 /x/two"],
        ),
        (
            "! a pattern without a slash, one file",
            &["f644 a.txt"],
            "*.txt",
            "/x",
            NOTHING,
            &["+755 /x", "f644 /x/a.txt"],
        ),
        (
            "! two stars keep the path",
            &["f644 s/d/a.txt", "f644 s/b.txt"],
            "s/**/*.txt",
            "/x/",
            NOTHING,
            &["+755 /x", "+755 /x/d", "f644 /x/d/a.txt", "f644 /x/b.txt"],
        ),
        (
            "! braces of the client",
            &["f644 s/a.js", "f644 s/a.ts"],
            "s/*.{js,ts}",
            "/x/",
            NOTHING,
            &["+755 /x", "f644 /x/a.js", "f644 /x/a.ts"],
        ),
        ("! a link by its name", &["l link"], "link", "/x", NOTHING, &["l /x"]),
        ("a link into a folder", &["l link"], "link", "/x/", NOTHING, &["+755 /x", "l /x/link"]),
        (
            "the same file twice",
            &["f644 s/a", "= s/b s/a"],
            "s",
            "/x",
            NOTHING,
            &["+755 /x", "f644 /x/a", "= /x/b /x/a"],
        ),
        ("bits beyond the usual ones", &["f4755 a"], "a", "/x", NOTHING, &["f4755 /x"]),
        (
            "part of the way is there",
            FILE,
            "a.txt",
            "/x/y/",
            (What::Nothing, "/x"),
            &["+755 /x/y", "f644 /x/y/a.txt"],
        ),
        (
            "names that begin alike are not there",
            FILE,
            "a.txt",
            "/xy/",
            (What::Nothing, "/x"),
            &["+755 /xy", "f644 /xy/a.txt"],
        ),
    ] {
        assert_eq!(copy(entries, from, to, None, there).unwrap(), expected, "{why}");
    }
}

#[test]
fn a_mode_is_of_files_and_folders_and_not_of_links_or_what_is_made() {
    let tree = ["d700 s", "d700 s/d", "f600 s/f", "l s/l"];
    let placed = copy(&tree, "s", "/x", Some(0o755), NOTHING).unwrap();
    assert_eq!(placed, ["+755 /x", "d755 /x/d", "f755 /x/f", "l /x/l"]);
    assert_eq!(
        copy(&["f644 a"], "a", "/x/a", Some(0o400), NOTHING).unwrap(),
        ["+755 /x", "f400 /x/a"]
    );
}

#[test]
fn what_is_refused() {
    for (entries, from, to, what, expected) in [
        (&["f644 ../a"][..], "a", "/x", What::Nothing, CopyError::Outside("../a".into())),
        (&["f644 /a"], "a", "/x", What::Nothing, CopyError::Outside("/a".into())),
        (&["f644 a"], "../a", "/x", What::Nothing, CopyError::Outside("../a".into())),
        (
            &["= s/b a", "f644 s/c"],
            "s",
            "/x",
            What::Nothing,
            CopyError::Unlinked("s/b".into(), "a".into()),
        ),
        (&["f644 s/c"], "s", "/x", What::Other, CopyError::NotAFolder("/x".into())),
        (&["f644 a"], "a", "/x/", What::Other, CopyError::NotAFolder("/x/".into())),
        (&[], "a", "/x", What::Nothing, CopyError::Nothing("a".into())),
    ] {
        assert_eq!(
            copy(entries, from, to, None, (what, "/")).unwrap_err(),
            expected,
            "{from} {to}"
        );
    }
}
