//! The committed code is what the generators make of `proto/`.
#![expect(clippy::unwrap_used, reason = "a test through and through")]

use std::{fs, path::Path};

use prost::Message;
use prost_types::FileDescriptorSet;

#[test]
fn the_committed_code_is_what_the_protos_say() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap().keep();
    let protos = ["process.proto", "filesystem.proto"];
    let descriptors = protox::compile(protos, [here.join("proto")]).unwrap();
    generate(&descriptors, &fresh);

    let committed = here.join("src/gen");
    for name in ["process.rs", "process.serde.rs", "filesystem.rs", "filesystem.serde.rs"] {
        let wanted = fs::read_to_string(fresh.join(name)).unwrap();
        let found = fs::read_to_string(committed.join(name)).unwrap_or_default();
        assert!(
            wanted == found,
            "{name} differs from what the protos say; take over the new one with\n  cp {}/*.rs {}/",
            fresh.display(),
            committed.display(),
        );
    }
    fs::remove_dir_all(fresh).unwrap();
}

fn generate(descriptors: &FileDescriptorSet, out: &Path) {
    let mut config = prost_build::Config::new();
    config
        .out_dir(out)
        .bytes(["."])
        .btree_map(["."])
        .disable_comments(["."])
        .compile_well_known_types()
        .extern_path(".google.protobuf", "crate")
        .compile_fds(descriptors.clone())
        .unwrap();
    pbjson_build::Builder::new()
        .register_descriptors(&descriptors.encode_to_vec())
        .unwrap()
        .out_dir(out)
        .extern_path(".google.protobuf", "crate")
        .btree_map(["."])
        .ignore_unknown_fields()
        .build(&[".process", ".filesystem"])
        .unwrap();
}
