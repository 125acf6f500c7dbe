//! Images that no template has.

use std::time::Duration;

use sandboxo_zone_protocol::{CreateError, Zone};

use super::world::{World, import_busybox, import_with, is_well, spec, until, which};

#[tokio::test]
async fn an_image_goes_with_its_last_sandbox() {
    let mut world = World::new();
    world.config.image_grace = Duration::ZERO;
    let zone = world.start().await;
    let (old, new) =
        (import_busybox(&zone).await, import_with(&zone, &[("more", &which("busybox"))]).await);
    let folder = world.path("state/images");
    let there = |image: sandboxo_zone_protocol::ImageDigest| {
        std::fs::exists(folder.join(image.to_string())).unwrap()
    };
    let (one, two) = (spec(old), spec(old));
    zone.create(one.clone()).await.unwrap();
    zone.create(two.clone()).await.unwrap();
    zone.keep_images([new].into()).await.unwrap();
    zone.kill(one.id).await.unwrap();
    // Of the self-test, which nobody wants either.
    until("what nothing runs of is gone", async || {
        std::fs::read_dir(&folder).unwrap().count() == 2
    })
    .await;
    assert!(there(old) && there(new));
    is_well(&zone, two.id).await;
    zone.kill(two.id).await.unwrap();
    until("the old one is gone", async || !there(old)).await;
    assert!(there(new));
    let refused = zone.create(spec(old)).await;
    assert!(matches!(refused, Err(CreateError::ImageNotFound(image)) if image == old));
    zone.create(spec(new)).await.unwrap();
    world.end().await;
}
