//! Teams take turns at starting.

use std::time::Duration;

use sandboxo_control::CreateError;
use sandboxo_zone_protocol::fake::Call;

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn one_teams_flood_delays_another_by_a_few_starts() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    world.zone.hold();
    let sandboxes = &world.control.sandboxes;
    let flood =
        futures_util::future::join_all((0..200).map(|_| sandboxes.create(world.team, new())));
    let one = async {
        world.zone.wait_for(|zone| zone.starting().len() == 6).await;
        let created = sandboxes.create(other, new());
        let release = async {
            world.zone.wait_for(|zone| zone.starting().len() == 7).await;
            world.zone.release();
        };
        tokio::join!(created, release).0.unwrap().id
    };
    let (flood, one) = tokio::join!(flood, one);
    assert!(flood.iter().all(Result::is_ok));
    let calls = world.zone.calls();
    let mut creates = calls.iter().filter_map(|call| {
        let Call::Create(id) = call else { return None };
        Some(*id)
    });
    assert_eq!(creates.position(|id| id == one), Some(6));
}

#[tokio::test(start_paused = true)]
async fn whose_turn_does_not_come_is_told_the_limit_and_nothing_is_left() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    world.zone.hold();
    let sandboxes = &world.control.sandboxes;
    let creates =
        futures_util::future::join_all((0..20).map(|_| sandboxes.create(world.team, new())));
    let others = async {
        world.zone.wait_for(|zone| zone.starting().len() == 6).await;
        // Those that hang are one team's.
        tokio::time::timeout(Duration::from_secs(5), sandboxes.create(other, new())).await.is_err()
    };
    let (answers, waits) = tokio::join!(creates, others);
    assert!(waits, "the zone is held");
    let limited = answers.iter().filter(|answer| {
        matches!(answer, Err(CreateError::LimitReached { what, limit: 8 }) if what == "starts at once")
    });
    assert_eq!(limited.count(), 14);
    let timed_out = answers.iter().filter(|answer| matches!(answer, Err(CreateError::TimedOut)));
    assert_eq!(timed_out.count(), 6);
    world.zone.release();
    world.until("nothing is left", |world| world.control.sandboxes.live().is_empty()).await;
    assert!(world.zone.running().is_empty() && world.zone.starting().is_empty());
}
