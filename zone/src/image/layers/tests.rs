//! Layers over each other, in a real folder.

use std::{io::Write as _, os::unix::fs::MetadataExt as _};

use tar::EntryType::{Directory, Link, Regular, Symlink};

use super::*;
use crate::image::tests::{Archive, Place};

const ROOM: u64 = 1 << 30;

struct Over {
    place: Place,
    unfinished: Unfinished,
    written: u64,
    count: usize,
}

impl Over {
    fn new() -> Self {
        let place = Place::new();
        let unfinished = place.images.unfinished(&sandboxo_zone_protocol::SystemRandom);
        fs::create_dir_all(unfinished.rootfs()).unwrap();
        Self { place, unfinished, written: 0, count: 0 }
    }

    fn put(&mut self, bytes: &[u8], max_bytes: u64) -> Result<(), ImportError> {
        let archive = self.unfinished.0.join("layer");
        File::create(&archive).unwrap().write_all(bytes).unwrap();
        let (images, mut layer) = (&self.place.images, File::open(&archive).unwrap());
        self.written =
            images.apply(&mut layer, self.count, &self.unfinished, max_bytes, self.written)?;
        self.count += 1;
        Ok(())
    }

    fn over(mut self, layer: Archive) -> Self {
        self.put(&layer.bytes(), ROOM).unwrap();
        self
    }

    fn refusal(mut self, layer: Archive) -> String {
        self.put(&layer.bytes(), ROOM).unwrap_err().to_string()
    }

    /// Every path, folders with a slash.
    fn tree(&self) -> Vec<String> {
        let root = self.unfinished.rootfs();
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                if path.symlink_metadata().unwrap().is_dir() {
                    found.push(format!("{name}/"));
                    folders.push(path);
                } else {
                    found.push(name);
                }
            }
        }
        found.sort();
        found
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.unfinished.rootfs().join(path)).unwrap()
    }
}

fn folder(archive: Archive, path: &str) -> Archive {
    archive.with(path, Directory, 0o755, "", b"")
}

#[test]
fn upper_layers_hide_what_is_below_them() {
    let below = Archive::new()
        .file("a/one", b"1")
        .file("a/two", b"2")
        .file("a/deep/three", b"3")
        .file("b/four", b"4")
        .file("c", b"5")
        .file("d/e/f", b"6");
    let over = Over::new()
        .over(below)
        .over(folder(
            Archive::new()
                .file("a/.wh.one", b"")
                .file("a/.wh.deep", b"")
                .file("a/.wh.never", b"")
                .file("z/.wh.nowhere", b"")
                // What the layer has itself stays, wherever it stands.
                .file("b/new", b"new")
                .file("b/.wh..wh..opq", b"")
                .file(".wh.c", b"")
                .file("c", b"again"),
            "g",
        ))
        // Another kind of thing in the same place.
        .over(folder(Archive::new().file("d", b"file").file("g/h", b"7"), "c"));
    assert_eq!(over.tree(), ["a/", "a/two", "b/", "b/new", "c/", "d", "g/", "g/h"]);
    assert_eq!(over.read("d"), "file");
}

#[test]
fn a_hard_link_keeps_what_it_had_when_its_other_name_is_replaced() {
    let over = Over::new()
        .over(Archive::new().file("a", b"old").with("b", Link, 0o644, "/a", b""))
        .over(Archive::new().file("a", b"new"));
    assert_eq!((over.read("a"), over.read("b")), ("new".into(), "old".into()));
}

#[test]
fn what_other_tools_take_is_taken_and_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("mine"), b"mine").unwrap();
    let climbing = format!("../../../../../../../..{}", outside.path().display());
    let over = Over::new()
        .over(Archive::new().file("/usr/bin/tool", b"x").link("up", &climbing))
        .over(Archive::new().with("abs", Symlink, 0o777, &outside.path().to_string_lossy(), b""));
    assert_eq!(over.read("usr/bin/tool"), "x");
    // Through both links, whatever is done stays below the root.
    let mut over = over;
    for layer in [
        Archive::new().file("up/mine", b"theirs"),
        Archive::new().file("abs/mine", b"theirs"),
        Archive::new().file("up/.wh.mine", b""),
        Archive::new().file("abs/.wh..wh..opq", b""),
    ] {
        // A folder that isn't there is no folder to write to.
        let put = over.put(&layer.bytes(), ROOM);
        assert!(put.as_ref().is_ok() || matches!(put, Err(ImportError::Rejected(_))), "{put:?}");
    }
    assert_eq!(fs::read(outside.path().join("mine")).unwrap(), b"mine");
    assert_eq!(fs::metadata(outside.path().join("mine")).unwrap().nlink(), 1);
    let refused = Over::new().refusal(Archive::new().file("a/../../x", b""));
    assert_eq!(refused, "a/../../x: paths with `..` are refused");
    let refused = Over::new().over(Archive::new()).refusal(Archive::new().file("../.wh.x", b""));
    assert_eq!(refused, "../.wh.x: takes away nothing");
    let refused = Over::new().over(Archive::new()).refusal(Archive::new().file("a/.wh...", b""));
    assert_eq!(refused, "a/.wh...: takes away nothing");
}

#[test]
fn there_is_an_end_to_everything() {
    let mut over = Over::new();
    over.put(&Archive::new().file("a", &[1; 600]).bytes(), 1000).unwrap();
    let more = over.put(&Archive::new().file("b", &[1; 600]).bytes(), 1000);
    assert!(matches!(more, Err(ImportError::TooLarge { .. })), "{more:?}");
    // A name that never ends would be held in memory.
    let long = vec![b'a'; 2 << 20];
    let head = Archive::new().with("././@LongLink", tar::EntryType::GNULongName, 0, "", &long);
    let refused = Over::new().refusal(head.file("x", b""));
    assert!(refused.contains("the head of an entry is longer than 1024 KiB"), "{refused}");
    // What compresses well is not longer for it.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&Archive::new().file("zeros", &vec![0; 4 << 20]).bytes()).unwrap();
    let more = Over::new().put(&gzip.finish().unwrap(), 1 << 20);
    assert!(matches!(more, Err(ImportError::TooLarge { .. })), "{more:?}");
}

#[test]
fn every_packing_is_known() {
    let plain = Archive::new().file("a", b"hello").with("b", Regular, 0o644, "", b"x").bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        plain.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    for bytes in [plain.clone(), gzip.finish().unwrap(), zstd] {
        let mut over = Over::new();
        over.put(&bytes, ROOM).unwrap();
        assert_eq!((over.read("a"), over.written), ("hello".into(), 6));
    }
}
