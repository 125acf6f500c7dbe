//! Volumes in sandboxes: shared by those that run, and there again for those that go on.

use std::time::Duration;

use sandboxo_zone::LocalZone;
use sandboxo_zone_protocol::{
    Attributes, CheckpointId, CreateError, ImageDigest, Kept, Origin, PauseError, SandboxSpec,
    VolumeError, VolumeId, VolumeMount, Zone,
};
use tokio::time::Instant;

use super::world::{World, import_busybox, is_well, run, run_as, said, soon, spec, until};

const SIZE_MIB: u32 = 24;

fn id(last: char) -> VolumeId {
    format!("vol_loc_000000000000000000{last}0").parse().unwrap()
}

fn mount(last: char, path: &str) -> VolumeMount {
    VolumeMount { volume: id(last), name: last.to_string(), path: path.parse().unwrap() }
}

fn with(image: ImageDigest, volumes: &[VolumeMount]) -> SandboxSpec {
    SandboxSpec { volumes: volumes.to_vec(), ..spec(image) }
}

fn from(spec: &SandboxSpec, checkpoint: CheckpointId) -> SandboxSpec {
    let origin = Origin::Checkpoint { id: checkpoint, reboot: false };
    SandboxSpec { origin, deadline: soon(600), ..spec.clone() }
}

/// As a client does it, while sandboxes have the volume.
async fn write(zone: &LocalZone, last: char, path: &str, text: &'static str) {
    let files = zone.volume(id(last)).await.unwrap();
    let (path, content) = (path.parse().unwrap(), Box::new(text.as_bytes()));
    files.write(&path, Attributes::default(), true, content).await.unwrap();
}

async fn remove(zone: &LocalZone, last: char, path: &str) {
    zone.volume(id(last)).await.unwrap().remove(&path.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn sandboxes_share_a_volume_and_what_it_holds() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    write(&zone, '1', "/before", "before\n").await;
    let before = world.on_host().await;
    let one = with(image, &[mount('1', "/data/deep")]);
    let other = with(image, &[mount('1', "/elsewhere"), mount('1', "/elsewhere/again")]);
    let without = spec(image);
    for spec in [&one, &other, &without] {
        zone.create(spec.clone()).await.unwrap();
    }
    assert_eq!(said(&zone, one.id, "cat /data/deep/before").await, "before\n");
    // Nobody in particular may write, and run what he has written.
    let program = "cp /bin/busybox /data/deep/ && /data/deep/busybox echo runs > /data/deep/said";
    assert_eq!(run_as(&zone, one.id, "user", program).await.code, Some(0));
    assert_eq!(
        said(&zone, other.id, "cat /elsewhere/said /elsewhere/again/said").await,
        "runs\nruns\n"
    );
    said(&zone, other.id, "echo more >> /elsewhere/said").await;
    assert_eq!(said(&zone, one.id, "cat /data/deep/said").await, "runs\nmore\n");
    // Beside volumes there is no place for files of the host.
    assert_ne!(run(&zone, one.id, "echo x > /.sandboxo/volumes/x").await.code, Some(0));
    assert_eq!(said(&zone, without.id, "ls /.sandboxo/volumes").await, "");

    for _twice in 0..2 {
        let full =
            run(&zone, one.id, "dd if=/dev/zero of=/data/deep/large bs=64k count=1000").await;
        assert!(full.output.contains("No space left"), "{full:?}");
        is_well(&zone, without.id).await;
        said(&zone, other.id, "echo own > /own && rm /elsewhere/large").await;
    }

    let missing = with(image, &[mount('2', "/data")]);
    let refused = zone.create(missing).await.unwrap_err();
    assert!(matches!(refused, CreateError::VolumeNotFound(none) if none == id('2')), "{refused:?}");
    let occupied = with(image, &[mount('1', "/bin/busybox/data")]);
    let refused = zone.create(occupied).await.unwrap_err();
    assert!(matches!(&refused, CreateError::NotMounted(why) if why.contains("/bin/busybox/data")));

    let removed = zone.remove_volume(id('1')).await;
    assert!(matches!(removed, Err(VolumeError::InUse)), "{removed:?}");
    for spec in [&one, &other, &without] {
        zone.kill(spec.id).await.unwrap();
    }
    world.settles_to(&before).await;
    zone.remove_volume(id('1')).await.unwrap();
    drop(zone);
    world.end().await;
}

const COUNT: &str = "(n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done) \
                     < /dev/null > /data/count 2> /dev/null &";

async fn counts_on(zone: &LocalZone, spec: &SandboxSpec) {
    let lines = async || said(zone, spec.id, "wc -l < /data/count").await.trim().parse::<u32>();
    let before = lines().await.unwrap();
    until("it counts on", async || lines().await.unwrap() > before).await;
}

#[tokio::test]
async fn what_goes_on_has_its_volumes_and_the_files_it_had_open() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    for volume in ['1', '2'] {
        zone.make_volume(id(volume), SIZE_MIB).await.unwrap();
    }
    let before = world.on_host().await;
    let one = with(image, &[mount('1', "/data")]);
    zone.create(one.clone()).await.unwrap();
    said(&zone, one.id, COUNT).await;
    counts_on(&zone, &one).await;

    // A zone that comes after finds it so.
    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    counts_on(&zone, &one).await;

    let snapshot = zone.snapshot(one.id, Kept::Memory).await.unwrap();
    counts_on(&zone, &one).await;
    let begun = Instant::now();
    let paused = zone.pause(one.id, Kept::Memory).await.unwrap();
    // What stands still is not waited for until it is given up.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    write(&zone, '1', "/meanwhile", "meanwhile\n").await;
    // What it has open is gone, and then it is there again.
    remove(&zone, '1', "/count").await;
    let gone = zone.create(from(&one, paused.id)).await.unwrap_err();
    assert!(
        matches!(&gone, CreateError::VolumeFileGone(path) if path == "/data/count"),
        "{gone:?}"
    );
    write(&zone, '1', "/count", "").await;
    zone.create(from(&one, paused.id)).await.unwrap();
    counts_on(&zone, &one).await;
    assert_eq!(said(&zone, one.id, "cat /data/meanwhile").await, "meanwhile\n");

    // Another from the same moment, with one more.
    let mut copy = from(&with(image, &[mount('1', "/data"), mount('2', "/more")]), snapshot.id);
    zone.create(copy.clone()).await.unwrap();
    said(&zone, copy.id, "echo copy > /data/copy && echo more > /more/file").await;
    assert_eq!(said(&zone, one.id, "cat /data/copy").await, "copy\n");
    zone.kill(copy.id).await.unwrap();
    copy.id = spec(image).id;
    copy.volumes.pop();
    zone.create(copy.clone()).await.unwrap();
    counts_on(&zone, &copy).await;

    let files = zone.pause(copy.id, Kept::Files).await.unwrap();
    copy.volumes.push(mount('2', "/later"));
    zone.create(from(&copy, files.id)).await.unwrap();
    assert_eq!(said(&zone, copy.id, "cat /later/file /data/copy").await, "more\ncopy\n");

    for spec in [&one, &copy] {
        zone.kill(spec.id).await.unwrap();
    }
    for checkpoint in [snapshot.id, paused.id, files.id] {
        zone.discard(checkpoint).await.unwrap();
    }
    for volume in ['1', '2'] {
        zone.remove_volume(id(volume)).await.unwrap();
    }
    world.settles_to(&before).await;
    drop(zone);
    world.end().await;
}

#[tokio::test]
async fn a_deleted_file_that_is_open_is_no_sandboxs_end() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    let one = with(image, &[mount('1', "/data")]);
    zone.create(one.clone()).await.unwrap();
    let hold = |name: &str| {
        format!("(exec 8> /data/{name}; exec sleep 1000) < /dev/null > /dev/null 2>&1 & sleep 0.2")
    };
    let refused = async |name: &str| {
        for saved in
            [zone.pause(one.id, Kept::Memory).await, zone.snapshot(one.id, Kept::Memory).await]
        {
            let named = matches!(&saved, Err(PauseError::DeletedFileOpen(path)) if path == name);
            assert!(named, "{saved:?}");
        }
        is_well(&zone, one.id).await;
    };
    said(&zone, one.id, &(hold("own") + "; rm /data/own")).await;
    refused("own").await;
    said(&zone, one.id, "killall sleep").await;
    said(&zone, one.id, &hold("others")).await;
    remove(&zone, '1', "/others").await;
    refused("others").await;
    said(&zone, one.id, "killall sleep").await;

    // At any moment it has one or has none.
    let churn = "(n=0; while :; do n=$((n+1)); (exec 8> /data/$n; rm /data/$n; sleep 0.01); \
                 echo $n > /data/count; done) < /dev/null > /dev/null 2>&1 &";
    said(&zone, one.id, churn).await;
    until("it counts", async || run(&zone, one.id, "cat /data/count").await.code == Some(0)).await;
    for _time in 0..6 {
        match zone.snapshot(one.id, Kept::Memory).await {
            Ok(snapshot) => zone.discard(snapshot.id).await.unwrap(),
            Err(PauseError::DeletedFileOpen(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
        is_well(&zone, one.id).await;
    }
    // Without its processes there is nothing open.
    let paused = zone.pause(one.id, Kept::Files).await.unwrap();
    zone.create(from(&one, paused.id)).await.unwrap();
    is_well(&zone, one.id).await;
    zone.kill(one.id).await.unwrap();
    drop(zone);
    world.end().await;
}

#[tokio::test]
async fn a_folder_that_another_volume_is_mounted_on_is_needed() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    for volume in ['1', '2'] {
        zone.make_volume(id(volume), SIZE_MIB).await.unwrap();
    }
    write(&zone, '2', "/file", "inner\n").await;
    let one = with(image, &[mount('1', "/data"), mount('2', "/data/in/ner")]);
    zone.create(one.clone()).await.unwrap();
    assert_eq!(said(&zone, one.id, "cat /data/in/ner/file").await, "inner\n");

    let paused = zone.pause(one.id, Kept::Memory).await.unwrap();
    remove(&zone, '1', "/in").await;
    let gone = zone.create(from(&one, paused.id)).await.unwrap_err();
    let named = matches!(&gone, CreateError::VolumeFileGone(path) if path == "/data/in/ner");
    assert!(named, "{gone:?}");
    let files = zone.volume(id('1')).await.unwrap();
    files.make_dir(&"/in/ner".parse().unwrap(), Attributes::default(), true).await.unwrap();
    drop(files);
    zone.create(from(&one, paused.id)).await.unwrap();
    assert_eq!(said(&zone, one.id, "cat /data/in/ner/file").await, "inner\n");

    remove(&zone, '1', "/in").await;
    let refused = zone.pause(one.id, Kept::Memory).await;
    let named = matches!(&refused, Err(PauseError::DeletedFileOpen(path)) if path == "in/ner");
    assert!(named, "{refused:?}");
    is_well(&zone, one.id).await;
    zone.kill(one.id).await.unwrap();
    drop(zone);
    world.end().await;
}
