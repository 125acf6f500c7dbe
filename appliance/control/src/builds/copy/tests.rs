//! Archives in, archives out; where things go is `decide::copy`'s.

use std::{collections::BTreeMap, io::Cursor};

use flate2::{Compression, write::GzEncoder};
use sandboxo_model::decide::copy::What;

use tar::Archive;

use super::*;

const OWNER: Owner = Owner { uid: 1000, gid: 1001 };

fn now() -> Timestamp {
    Timestamp::from_second(99).unwrap()
}

/// As clients make it: gzipped, with their own owners.
fn archive(folder: &Path, gzip: bool) -> std::path::PathBuf {
    let mut out = Builder::new(Vec::new());
    let mut add = |path: &str, kind, mode, text: &str, target: &str| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(501);
        header.set_mtime(77);
        header.set_size(text.len() as u64);
        if target.is_empty() {
            out.append_data(&mut header, path, text.as_bytes()).unwrap();
        } else {
            out.append_link(&mut header, path, target).unwrap();
        }
    };
    add("src", EntryType::Directory, 0o700, "", "");
    add("src/run", EntryType::Regular, 0o4755, "#!/bin/sh\n", "");
    add(&format!("src/{}", "long".repeat(60)), EntryType::Regular, 0o644, "l", "");
    add("src/link", EntryType::Symlink, 0o777, "", "../else\u{e9}where");
    add("src/same", EntryType::Link, 0o4755, "", "src/run");
    let bytes = out.into_inner().unwrap();
    let path = folder.join("archive");
    if gzip {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&bytes).unwrap();
        std::fs::write(&path, packed.finish().unwrap()).unwrap();
    } else {
        std::fs::write(&path, bytes).unwrap();
    }
    path
}

fn rewritten(archive: &Path, rule: &Rule) -> Result<Vec<u8>, RewriteError> {
    let there = There { what: What::Nothing, nearest: "/".into() };
    let entries = list(archive)?;
    let (sender, mut pieces) = mpsc::channel(1024);
    rewrite(archive, &entries, rule, &there, (OWNER, now()), sender)?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.blocking_recv() {
        bytes.extend_from_slice(&piece.unwrap());
    }
    Ok(bytes)
}

fn rule(mode: Option<u32>) -> Rule {
    Rule { from: "src".into(), to: "/app".into(), mode }
}

#[test]
fn every_entry_has_its_place_owner_mode_and_time() {
    let folder = tempfile::tempdir().unwrap();
    for gzip in [false, true] {
        let bytes = rewritten(&archive(folder.path(), gzip), &rule(None)).unwrap();
        let mut found = BTreeMap::new();
        for entry in Archive::new(Cursor::new(bytes)).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let (header, mut text) = (entry.header().clone(), String::new());
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (1000, 1001), "{path}");
            let link = entry.link_name().unwrap().map(|link| link.display().to_string());
            entry.read_to_string(&mut text).unwrap();
            let (mode, time) = (header.mode().unwrap(), header.mtime().unwrap());
            found.insert(path, (mode, time, link.unwrap_or(text)));
        }
        let long = format!("app/{}", "long".repeat(60));
        let expected = BTreeMap::from([
            ("app".to_owned(), (0o755, 99, String::new())),
            ("app/run".into(), (0o4755, 77, "#!/bin/sh\n".into())),
            (long, (0o644, 77, "l".into())),
            ("app/link".into(), (0o777, 77, "../else\u{e9}where".into())),
            ("app/same".into(), (0o4755, 77, "app/run".into())),
        ]);
        assert_eq!(found, expected, "gzip: {gzip}");
    }
}

#[test]
fn what_is_no_archive_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive");
    std::fs::write(&path, [1; 2000]).unwrap();
    assert!(matches!(list(&path), Err(RewriteError::Read(_))));
    let whole = std::fs::read(archive(folder.path(), true)).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(list(&path), Err(RewriteError::Read(_))));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(list(&path), Err(RewriteError::Read(_))));
    let mut out = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Fifo);
    header.set_size(0);
    out.append_data(&mut header, "pipe", io::empty()).unwrap();
    std::fs::write(&path, out.into_inner().unwrap()).unwrap();
    let told = list(&path).unwrap_err().to_string();
    assert_eq!(told, "\"pipe\" is neither a file, nor a folder, nor a link");
}

#[test]
fn a_taker_that_leaves_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), true);
    let there = There { what: What::Nothing, nearest: "/".into() };
    let (sender, pieces) = mpsc::channel(1);
    drop(pieces);
    let entries = list(&archive).unwrap();
    let ended = rewrite(&archive, &entries, &rule(None), &there, (OWNER, now()), sender);
    assert!(matches!(ended, Err(RewriteError::Write)));
}

#[test]
fn a_name_without_end_is_not_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(2 << 20);
    header.set_cksum();
    let mut out = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    out.append(&header, vec![b'a'; 2 << 20].as_slice()).unwrap();
    let mut header = Header::new_gnu();
    header.set_path("src/a").unwrap();
    header.set_size(0);
    header.set_cksum();
    out.append(&header, io::empty()).unwrap();
    let path = folder.path().join("archive");
    std::fs::write(&path, out.into_inner().unwrap().finish().unwrap()).unwrap();
    let refused = list(&path).unwrap_err().to_string();
    assert!(refused.contains("the head of an entry is longer than 1024 KiB"), "{refused}");
}
