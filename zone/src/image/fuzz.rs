//! What a fuzzer does with an archive: unpacks it beside a file that it must not touch.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use sandboxo_archive::decoded;

use super::{
    root::Root,
    unpack::{Of, Space, make_places, unpack},
};

const BLOCK: usize = 512;

/// The checksums are made right first: the fuzzer would not find them.
pub fn archive(data: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name =
        format!("sandboxo-fuzz-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let place = std::env::temp_dir().join(name);
    let (inside, outside) = (place.join("root"), place.join("outside"));
    let made = fs::create_dir_all(&inside).and_then(|()| fs::write(&outside, b"mine"));
    assert!(made.is_ok(), "{made:?}");
    let before = facts(&outside);
    import(&with_checksums(data), &inside);
    assert_eq!(facts(&outside), before);
    assert!(fs::read(&outside).is_ok_and(|content| content == b"mine"));
    assert!(fs::read_dir(&place).is_ok_and(|found| found.count() == 2));
    let gone = fs::remove_dir_all(&place);
    assert!(gone.is_ok(), "{gone:?}");
}

fn import(data: &[u8], inside: &Path) {
    let root = Root::open(inside);
    assert!(root.is_ok());
    let Ok(root) = root else { return };
    let mut stream = data;
    let Ok(mut decoded) = decoded(&mut stream) else { return };
    let space = Space { folder: inside, reserve_mib: 64, max_bytes: u64::MAX };
    if unpack(&mut *decoded, &root, &space, Of::Root, 0).is_ok() && make_places(&root).is_ok() {
        assert!(inside.join(".sandboxo/agent").symlink_metadata().is_ok_and(|file| file.is_file()));
    }
}

fn facts(path: &Path) -> Option<(u64, u32, u32, i64, u64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.ino(), meta.mode(), meta.uid(), meta.mtime(), meta.nlink()))
}

fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    let mut at = 0;
    while let Some(header) = out.get_mut(at..at + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            at += BLOCK;
            continue;
        }
        if let Some(place) = header.get_mut(148..156) {
            place.fill(b' ');
        }
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        if let Some(place) = header.get_mut(148..156) {
            place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let size = header.get(124..136).unwrap_or_default();
        let size = size.iter().filter(|byte| byte.is_ascii_digit()).fold(0_usize, |sum, byte| {
            sum.saturating_mul(8).saturating_add(usize::from(byte - b'0'))
        });
        at = at.saturating_add(BLOCK).saturating_add(size.div_ceil(BLOCK).saturating_mul(BLOCK));
        if at > out.len() {
            break;
        }
    }
    out
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_stays_below_its_root() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "tar", archive);
    }
}
