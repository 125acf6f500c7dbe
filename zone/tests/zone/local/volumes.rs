//! Volumes: they outlive the zone's process, hold what they may, and leave nothing.

use std::fs;

use sandboxo_zone::LocalZone;
use sandboxo_zone_protocol::{
    Attributes, VolumeError, VolumeFileError, VolumeId, VolumePath, Zone,
};
use tokio::io::AsyncReadExt as _;

use super::world::World;

const SIZE_MIB: u32 = 24;

fn id(last: char) -> VolumeId {
    format!("vol_loc_000000000000000000{last}0").parse().unwrap()
}

fn at(text: &str) -> VolumePath {
    text.parse().unwrap()
}

async fn write(zone: &LocalZone, path: &str, bytes: Vec<u8>) -> Result<(), VolumeFileError> {
    write_in(zone, '1', path, bytes).await
}

async fn write_in(
    zone: &LocalZone,
    volume: char,
    path: &str,
    bytes: Vec<u8>,
) -> Result<(), VolumeFileError> {
    let files = zone.volume(id(volume)).await.unwrap();
    let content = Box::new(std::io::Cursor::new(bytes));
    files.write(&at(path), Attributes::default(), true, content).await.map(drop)
}

async fn read(zone: &LocalZone, path: &str) -> Result<String, VolumeFileError> {
    read_in(zone, '1', path).await
}

async fn read_in(zone: &LocalZone, volume: char, path: &str) -> Result<String, VolumeFileError> {
    let files = zone.volume(id(volume)).await.unwrap();
    let (_size, mut content) = files.read(&at(path)).await?;
    let mut text = String::new();
    content.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

#[tokio::test]
async fn a_volume_holds_what_it_may_until_it_is_removed() {
    let mut world = World::new();
    let zone = world.start().await;
    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    let files = zone.volume(id('1')).await.unwrap();
    assert_eq!(files.list(&at("/"), 1).await.unwrap(), []);
    drop(files);
    write(&zone, "/kept", b"kept".to_vec()).await.unwrap();
    for _twice in 0..2 {
        let more_than_it_holds = vec![7; (SIZE_MIB as usize) << 20];
        let written = write(&zone, "/large", more_than_it_holds).await;
        assert!(matches!(written, Err(VolumeFileError::Full)), "{written:?}");
        let half = vec![7; (SIZE_MIB as usize) << 19];
        write(&zone, "/large", half).await.unwrap();
        zone.volume(id('1')).await.unwrap().remove(&at("/large")).await.unwrap();
    }

    // The mount is there still, and then it is not, as after a start of the host.
    drop(zone);
    world.stop().await;
    let zone = world.start().await;
    assert_eq!(read(&zone, "/kept").await.unwrap(), "kept");
    drop(zone);
    world.stop().await;
    nix::mount::umount(&world.config.run.join("v").join(id('1').to_string())).unwrap();
    let zone = world.start().await;
    assert_eq!(read(&zone, "/kept").await.unwrap(), "kept");

    zone.remove_volume(id('1')).await.unwrap();
    zone.remove_volume(id('1')).await.unwrap();
    let left = fs::read_dir(world.config.state.join("volumes")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of it");
    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    assert!(matches!(read(&zone, "/kept").await, Err(VolumeFileError::NotFound)));
    // Its roots are open while it is there.
    drop(zone);
    world.end().await;
}

#[tokio::test]
async fn a_clone_holds_what_its_source_held_and_goes_its_own_way() {
    let mut world = World::new();
    let zone = world.start().await;
    let none = zone.clone_volume(id('2'), id('1')).await;
    assert!(matches!(none, Err(VolumeError::Gone)), "{none:?}");

    zone.make_volume(id('1'), SIZE_MIB).await.unwrap();
    write(&zone, "/before", b"before".to_vec()).await.unwrap();
    zone.clone_volume(id('2'), id('1')).await.unwrap();
    zone.clone_volume(id('2'), id('1')).await.unwrap();
    write(&zone, "/before", b"after".to_vec()).await.unwrap();
    write_in(&zone, '2', "/clone", b"clone".to_vec()).await.unwrap();
    zone.clone_volume(id('3'), id('2')).await.unwrap();
    drop(zone);
    world.stop().await;

    let zone = world.start().await;
    assert_eq!(read(&zone, "/before").await.unwrap(), "after");
    assert!(matches!(read(&zone, "/clone").await, Err(VolumeFileError::NotFound)));
    zone.remove_volume(id('1')).await.unwrap();
    for clone in ['2', '3'] {
        assert_eq!(read_in(&zone, clone, "/before").await.unwrap(), "before");
        assert_eq!(read_in(&zone, clone, "/clone").await.unwrap(), "clone");
        // It is as large as its source.
        let more_than_it_holds = vec![7; (SIZE_MIB as usize) << 20];
        let written = write_in(&zone, clone, "/large", more_than_it_holds).await;
        assert!(matches!(written, Err(VolumeFileError::Full)), "{written:?}");
        zone.remove_volume(id(clone)).await.unwrap();
    }
    let left = fs::read_dir(world.config.state.join("volumes")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of them");
    drop(zone);
    world.end().await;
}
