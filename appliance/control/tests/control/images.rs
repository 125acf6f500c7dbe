//! Which images a zone is told to keep.

use std::collections::BTreeSet;

use sandboxo_control::ImportTemplate;
use sandboxo_zone_protocol::{ImageDigest, fake::Call};

use crate::world::World;

fn kept(world: &World) -> BTreeSet<ImageDigest> {
    let calls = world.zone.calls();
    let mut kept = calls.into_iter().rev().filter_map(|call| {
        let Call::KeepImages(images) = call else { return None };
        Some(images)
    });
    kept.next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_image_is_kept_for_its_template_and_for_what_runs_of_it() {
    let mut world = World::new().await;
    let old = world.template.image;
    assert_eq!(kept(&world), BTreeSet::from([old]));
    let running = world.create().await.id;
    let import = |tar: &'static [u8]| {
        world.control.templates.import(world.team, ImportTemplate::new("base"), Box::new(tar))
    };
    let new = import(b"another root").await.unwrap().image;
    assert_ne!(new, old);
    assert_eq!(kept(&world), BTreeSet::from([old, new]));
    world.control.sandboxes.kill(world.team, running).await.unwrap();
    world.control.templates.delete(world.team, "base").await.unwrap();
    assert_eq!(kept(&world), BTreeSet::new());

    // Without a change too, now and then, and by the next process.
    let last = import(b"a third root").await.unwrap().image;
    world.restart().await;
    assert_eq!(kept(&world), BTreeSet::from([last]));
}
