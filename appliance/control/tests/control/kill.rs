//! Killing.

use sandboxo_control::{ConnectError, CreateError, KillError, Lookup, Scope};
use sandboxo_model::PhaseKind;
use sandboxo_zone_protocol::{SandboxId, SystemRandom, ZoneCode, fake::Call};

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn a_kill_returns_when_it_is_gone() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    sandboxes.kill(world.team, id).await.unwrap();
    assert!(world.zone.running().is_empty());
    assert!(!world.is_listed(id));
    assert!(matches!(sandboxes.lookup(id), Lookup::NotFound));
    assert!(matches!(sandboxes.open(id, 80).await, Err(ConnectError::NotFound)));
    assert!(matches!(sandboxes.kill(world.team, id).await, Err(KillError::NotFound(_))));
    assert_eq!(world.dead(id).await, "killed");
    world.until("acknowledged", |world| world.zone.ended().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn many_kills_are_one() {
    let world = World::new().await;
    let id = world.create().await.id;
    let kills = (0..10).map(|_| world.control.sandboxes.kill(world.team, id));
    for killed in futures_util::future::join_all(kills).await {
        assert!(matches!(killed, Ok(()) | Err(KillError::NotFound(_))));
    }
    let calls = world.zone.calls().iter().filter(|call| **call == Call::Kill(id)).count();
    assert_eq!(calls, 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_and_foreign_are_not_found() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let unknown =
        SandboxId::random("loc".parse().unwrap(), ZoneCode::random(&SystemRandom), &SystemRandom);
    assert!(matches!(sandboxes.kill(world.team, unknown).await, Err(KillError::NotFound(_))));
    assert!(matches!(sandboxes.kill(other, id).await, Err(KillError::NotFound(_))));
    assert!(sandboxes.get(other, id).is_none());
    assert_eq!(sandboxes.find(other, id).await.unwrap(), None);
    assert!(world.is_listed(id));
    sandboxes.kill(Scope::Operator, id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kill_during_the_start_ends_the_create() {
    let world = World::new().await;
    world.zone.hold();
    let sandboxes = &world.control.sandboxes;
    let kill = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        let [id] = world.zone.starting()[..] else { panic!("one starts") };
        sandboxes.kill(Scope::Operator, id).await.unwrap();
        id
    };
    let (created, id) = tokio::join!(sandboxes.create(world.team, new()), kill);
    assert!(matches!(created, Err(CreateError::Killed)));
    assert_eq!(world.dead(id).await, "killed");
    world.zone.release();
    assert!(world.zone.running().is_empty() && world.zone.starting().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_the_zone_does_not_confirm_goes_on() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.set_available(false);
    let killed = world.control.sandboxes.kill(world.team, id).await;
    assert!(matches!(killed, Err(KillError::ZoneUnavailable)));
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Killing);
    assert!(!world.is_listed(id));
    world.zone.set_available(true);
    assert_eq!(world.dead(id).await, "killed");
    assert!(world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_stop_its_kill() {
    let world = World::new().await;
    let id = world.create().await.id;
    let mut kill = Box::pin(world.control.sandboxes.kill(world.team, id));
    let polled = std::future::poll_fn(|context| {
        std::task::Poll::Ready(kill.as_mut().poll(context).is_ready())
    });
    assert!(!polled.await);
    drop(kill);
    assert_eq!(world.dead(id).await, "killed");
}
