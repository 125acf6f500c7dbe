//! Time runs out.

use std::time::Duration;

use sandboxo_control::{KillError, ListQuery, Lookup, TimeoutError};
use sandboxo_model::rules;
use sandboxo_zone_protocol::Clock as _;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn setting_overwrites_and_extending_never_shortens() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    let now = world.clock.now();
    let until = |record: &sandboxo_model::SandboxRecord| record.usable_until(now).unwrap();
    let at = |seconds| rules::after(now, Duration::from_secs(seconds));
    let seconds = Duration::from_secs;

    let set = sandboxes.set_timeout(world.team, id, seconds(60)).await.unwrap();
    assert_eq!(until(&set), at(60));
    assert_eq!(world.zone.spec(id).unwrap().deadline, at(60));
    let kept = sandboxes.extend(world.team, id, seconds(30)).await.unwrap();
    assert_eq!(until(&kept), at(60));
    let extended = sandboxes.extend(world.team, id, seconds(600)).await.unwrap();
    assert_eq!(until(&extended), at(600));
    assert_eq!(world.zone.spec(id).unwrap().deadline, at(600));
    let longer = sandboxes.set_timeout(world.team, id, seconds(900)).await.unwrap();
    assert_eq!(until(&longer), at(900));
    assert_eq!(until(&sandboxes.get(world.team, id).unwrap()), at(900));

    let too_long = rules::MAX_TIMEOUT + seconds(1);
    let refused = sandboxes.set_timeout(world.team, id, too_long).await;
    assert!(matches!(refused, Err(TimeoutError::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn zero_is_now() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    sandboxes.set_timeout(world.team, id, Duration::ZERO).await.unwrap();
    assert!(!world.is_listed(id));
    assert_eq!(sandboxes.list(world.team, ListQuery::default()).await.unwrap().running, 0);
    assert!(matches!(sandboxes.lookup(id), Lookup::NotFound));
    world.zone.end_expired();
    assert_eq!(world.dead(id).await, "timed out");
}

#[tokio::test(start_paused = true)]
async fn an_expired_one_is_gone_before_the_zone_says_so() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    world.clock.advance(Duration::from_mins(5) - Duration::from_millis(1));
    assert!(world.is_listed(id));
    world.clock.advance(Duration::from_millis(1));
    assert!(!world.is_listed(id));
    assert!(sandboxes.live().is_empty());
    assert!(matches!(sandboxes.kill(world.team, id).await, Err(KillError::NotFound(_))));
    let set = sandboxes.set_timeout(world.team, id, Duration::from_mins(5)).await;
    assert!(matches!(set, Err(TimeoutError::NotFound(_))));
    assert_eq!(world.zone.running(), [id]);
    world.zone.end_expired();
    assert_eq!(world.dead(id).await, "timed out");
}

#[tokio::test(start_paused = true)]
async fn control_steps_in_when_the_zone_does_not() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.clock.advance(Duration::from_mins(5) + Duration::from_secs(2));
    assert_eq!(world.dead(id).await, "timed out");
    assert!(world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_the_zone_missed_is_told_at_its_next_hello() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.set_available(false);
    let sandboxes = &world.control.sandboxes;
    let set = sandboxes.set_timeout(world.team, id, Duration::from_mins(10)).await.unwrap();
    let wanted = set.usable_until(world.clock.now()).unwrap();
    assert_ne!(world.zone.spec(id).unwrap().deadline, wanted);
    world.zone.set_available(true);
    world.until("told", |world| world.zone.spec(id).unwrap().deadline == wanted).await;
}
