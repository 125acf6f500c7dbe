//! What is found of them on disk.

use sandboxo_zone_protocol::{NetworkMode, Platform, Resources, fake::SeededRandom};

use super::*;

fn description(n: u64, is_pause: bool) -> Description {
    let random = SeededRandom::new(n);
    Description {
        format: Description::FORMAT,
        id: CheckpointId::random(&random),
        sandbox: "sbx_loc_0123456789abcdefghjk".parse().unwrap(),
        is_pause,
        kept: Kept::Memory,
        at: Timestamp::from_second(i64::try_from(n).unwrap()).unwrap(),
        size_bytes: 0,
        shape: Shape {
            image: ImageDigest::from_bytes([0xab; 32]),
            resources: Resources { vcpus: 2, memory_mib: 512, disk_mib: 1024, pids: 300 },
            platform: Platform::Ptrace,
            mode: NetworkMode::None,
        },
        boot_id: "b".into(),
        programs: ProgramsRecord {
            runsc: RuntimeMark {
                version: "20240729".into(),
                digest: "ff".into(),
                features: Features::default(),
            },
            agent: "aa".into(),
        },
        open_files: Vec::new(),
    }
}

/// Checkpoints outlive an upgrade.
#[test]
fn golden_description() {
    let golden = r#"{"format":1,"id":"0123456789abcdefghjk","sandbox":"sbx_loc_0123456789abcdefghjk","is_pause":true,"kept":"memory","at":"1970-01-01T00:00:07Z","size_bytes":99,"shape":{"image":"abababababababababababababababababababababababababababababababab","resources":{"vcpus":2,"memory_mib":512,"disk_mib":1024,"pids":300},"mode":"none"},"boot_id":"b","programs":{"runsc":{"version":"20240729","digest":"ff","features":{"net_disconnect_ok":true,"overlay_dir":true,"overlay_size":false,"panic_log":true}},"agent":"aa"}}"#;
    let read: Description = serde_json::from_str(golden).unwrap();
    assert_eq!(read.shape, description(1, true).shape);
    assert_eq!(serde_json::to_string(&read).unwrap(), golden);
}

#[test]
fn it_is_there_once_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Checkpoints::open(folder.path().join("checkpoints")).unwrap();
    let checkpoints = open();
    let one = description(1, true);
    let image = checkpoints.begin(&one).unwrap();
    assert!(open().list().is_empty());
    assert_eq!(checkpoints.finish(one.id).unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(image.join(IMAGE), "").unwrap();
    assert_eq!(checkpoints.finish(one.id).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    fs::write(image.join(IMAGE), "image").unwrap();
    let whole = checkpoints.finish(one.id).unwrap();
    assert_eq!(whole, Description { size_bytes: 5, ..one.clone() });
    assert!(checkpoints.list().is_empty(), "not before it is published");
    checkpoints.publish(whole.clone());
    assert_eq!(checkpoints.list(), [whole.told()]);
    assert_eq!(open().get(one.id), Some(whole));
    assert_eq!(fs::read_to_string(checkpoints.image(one.id).join(IMAGE)).unwrap(), "image");
    checkpoints.discard(one.id).unwrap();
    checkpoints.discard(one.id).unwrap();
    assert!(open().list().is_empty() && checkpoints.list().is_empty());
    assert_eq!(fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 0);
}

#[test]
fn a_cut_off_one_is_swept_and_a_snapshot_may_become_a_pause() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path().into()).unwrap();
    let (cut, snapshot, pause) =
        (description(1, true), description(2, false), description(3, true));
    checkpoints.begin(&cut).unwrap();
    for whole in [&snapshot, &pause] {
        let image = checkpoints.begin(whole).unwrap();
        fs::write(image.join(IMAGE), "image").unwrap();
        checkpoints.publish(checkpoints.finish(whole.id).unwrap());
    }
    checkpoints.sweep().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert_eq!(checkpoints.of_pause(pause.sandbox).unwrap().id, pause.id);
    checkpoints.discard(pause.id).unwrap();
    assert_eq!(checkpoints.of_pause(pause.sandbox), None);
    checkpoints.publish(checkpoints.make_pause(snapshot.id).unwrap());
    assert_eq!(checkpoints.of_pause(snapshot.sandbox).unwrap().id, snapshot.id);
}

#[test]
fn room_is_promised_once() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path().into()).unwrap();
    let no_room = |needed_mib, free_mib| Err(NoRoom { needed_mib, free_mib });
    let first = checkpoints.room(40 << 20, 100).unwrap();
    assert_eq!(checkpoints.room(40 << 20, 100).map(drop), no_room(56, 44));
    drop(first);
    assert!(checkpoints.room(40 << 20, 100).is_ok());
    assert_eq!(checkpoints.room(100 << 20, 100).map(drop), no_room(116, 100));
}
