//! The wall clock is set back by an hour, and later forward again.

use std::time::Duration;

use sandboxo_control::CreateError;
use sandboxo_model::NewSandbox;
use sandboxo_zone_protocol::Clock as _;

use crate::world::{World, new};

const HOUR: Duration = Duration::from_hours(1);

/// Long enough for every loop of control to have come by.
async fn a_while() {
    tokio::time::sleep(Duration::from_mins(2)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_early_and_nothing_lives_for_ever() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let keyed = || NewSandbox { idempotency_key: "k".parse().ok(), ..new() };
    let before = sandboxes.create(world.team, keyed()).await.unwrap();
    let until = before.usable_until(world.clock.now()).unwrap();

    world.clock.set_back(HOUR);
    a_while().await;
    assert!(world.is_listed(before.id));
    assert_eq!(sandboxes.create(world.team, keyed()).await.unwrap().id, before.id);
    let sample = sandboxes.latest_metrics(world.team, &[before.id]);
    assert_eq!(sample[&before.id].samples[0].at, world.clock.now(), "it is measured as ever");
    // Whose time is told by this clock, ends by it.
    let meanwhile = world.create().await;
    let short = world.create().await;
    sandboxes.set_timeout(world.team, short.id, Duration::from_mins(1)).await.unwrap();
    world.clock.advance(Duration::from_mins(1) + Duration::from_secs(2));
    assert_eq!(world.dead(short.id).await, "timed out");
    assert!(world.is_listed(meanwhile.id));

    world.clock.advance(Duration::from_mins(59));
    a_while().await;
    assert!(world.is_listed(before.id));
    let record = sandboxes.get(world.team, before.id).unwrap();
    assert_eq!(record.usable_until(world.clock.now()), Some(until));
    assert_eq!(world.dead(meanwhile.id).await, "timed out");
    world.clock.advance(Duration::from_mins(5));
    assert_eq!(world.dead(before.id).await, "timed out");
    world.clock.advance(24 * HOUR);
    assert_ne!(sandboxes.create(world.team, keyed()).await.unwrap().id, before.id);
}

#[tokio::test(start_paused = true)]
async fn a_create_is_given_up_after_its_own_time() {
    let mut world = World::new().await;
    world.zone.hold();
    let id = {
        let create = world.control.sandboxes.create(world.team, new());
        tokio::select! {
            _ = create => panic!("the zone holds it"),
            () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
        }
        world.zone.starting()[0]
    };
    world.clock.set_back(HOUR);
    world.restart().await;
    assert_eq!(world.dead(id).await, "not started: it did not start in time");

    world.zone.hold();
    let created = world.control.sandboxes.create(world.team, new()).await;
    assert!(matches!(created, Err(CreateError::TimedOut)), "{created:?}");
}
