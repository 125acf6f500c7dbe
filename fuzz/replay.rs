//! Plays the committed corpus of a target through it: what the fuzzer once found stays found.

use std::path::Path;

/// `manifest` is the folder of the crate that asks, somewhere below the one with `fuzz`.
pub(crate) fn corpus(manifest: &str, target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(manifest)
        .ancestors()
        .map(|above| above.join("fuzz/corpus").join(target))
        .find(|folder| folder.is_dir())
        .expect("the target has a corpus");
    let mut played = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        run(&std::fs::read(&path).unwrap());
        played += 1;
    }
    assert!(played > 0, "{} is empty", folder.display());
}
