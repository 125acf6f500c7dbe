//! What the zone tells while control runs.

use sandboxo_control::{Control, ControlConfig, CreateError, StartError};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{
    EndReason, SystemRandom, ZoneInfo,
    fake::{FakeZone, ScriptedCreate},
};

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn an_end_that_the_zone_tells_is_recorded_and_acknowledged() {
    let world = World::new().await;
    for (reason, text) in [
        (EndReason::OutOfMemory, "out of memory"),
        (EndReason::Crashed, "crashed"),
        (EndReason::AgentLost, "agent lost"),
        (EndReason::TimedOut, "timed out"),
        (EndReason::Killed, "killed"),
    ] {
        let id = world.create().await.id;
        world.zone.end(id, reason);
        assert_eq!(world.dead(id).await, text);
        assert!(!world.is_listed(id));
    }
    world.until("acknowledged", |world| world.zone.ended().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_a_connection_hears_of_the_end() {
    let world = World::new().await;
    let id = world.create().await.id;
    let sandboxes = world.control.sandboxes.clone();
    let ((), ()) = tokio::join!(sandboxes.gone(id), async {
        world.zone.end(id, EndReason::Crashed);
    });
    assert!(!world.is_listed(id));
    sandboxes.gone(id).await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_event_stream_is_opened_again() {
    let world = World::new().await;
    let quiet = world.create().await.id;
    let ended = world.create().await.id;
    world.zone.drop_subscribers();
    world.zone.end(ended, EndReason::Crashed);
    assert_eq!(world.dead(ended).await, "crashed");
    world.zone.drop_subscribers();
    world.zone.forget(quiet);
    assert_eq!(world.dead(quiet).await, "missing");
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_restarts_takes_its_sandboxes_with_it() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.restart("boot-2");
    assert_eq!(world.dead(id).await, "zone restarted");
    let id = world.create().await.id;
    world.zone.restart("boot-3");
    assert_eq!(world.dead(id).await, "zone restarted");
}

/// Hellos in the middle of creates and kills never take a sandbox for lost.
#[tokio::test(start_paused = true)]
async fn reconciling_under_load_loses_nobody() {
    let world = World::new().await;
    let load = async {
        let mut kept = Vec::new();
        for n in 0..100 {
            let id = world.create().await.id;
            if n % 2 == 0 {
                world.control.sandboxes.kill(world.team, id).await.unwrap();
            } else {
                kept.push(id);
            }
        }
        kept
    };
    let hellos = async {
        loop {
            world.zone.drop_subscribers();
            tokio::task::yield_now().await;
        }
    };
    let kept = tokio::select! {
        kept = load => kept,
        () = hellos => unreachable!(),
    };
    for id in &kept {
        assert!(world.is_listed(*id));
    }
    assert_eq!(world.zone.running().len(), kept.len());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_driver_panics_gets_another() {
    let world = World::new().await;
    world.zone.script(ScriptedCreate::Panic);
    let created = world.control.sandboxes.create(world.team, new()).await;
    assert!(matches!(created, Err(CreateError::Failed)));
    world.until("delivered again", |world| world.control.sandboxes.live().len() == 1).await;
    let id = world.control.sandboxes.live()[0].id;
    assert_eq!(world.zone.running(), [id]);
    world.control.sandboxes.kill(world.team, id).await.unwrap();
    assert!(world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_zone_does_not_change_its_region() {
    let mut world = World::new().await;
    world.die().await;
    let info = ZoneInfo { name: "local1".parse().unwrap(), region: "ord".parse().unwrap() };
    let started = Control::start(
        ControlConfig::default(),
        world.store.clone(),
        world.spool.clone(),
        FakeZone::named(info, world.clock.clone()),
        world.clock.clone(),
        std::sync::Arc::new(SystemRandom),
        Tasks::new(),
    );
    assert!(matches!(started.await, Err(StartError::RegionChanged { .. })));
}
