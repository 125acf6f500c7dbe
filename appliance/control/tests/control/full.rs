//! The disk under the records is full.

use std::time::Duration;

use sandboxo_control::{
    CreateError, DeleteTemplateError, KillError, ListQuery, NetworkError, TimeoutError,
};
use sandboxo_model::{NetworkAsked, PhaseKind};
use sandboxo_store::fake::FakeDisk;
use sandboxo_zone_protocol::EndReason;

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn what_must_be_written_is_refused_as_such_and_works_again() {
    let disk = FakeDisk::default();
    let world = World::on(disk.open().unwrap()).await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    let minute = Duration::from_mins(1);
    disk.set_full(true);
    let created = sandboxes.create(world.team, new()).await;
    assert!(matches!(created, Err(CreateError::DiskFull)), "{created:?}");
    // The zone was asked while the record was being written.
    world.zone.wait_for(|zone| zone.running() == [id]).await;
    let phases = [PhaseKind::Starting, PhaseKind::Running].into();
    let all = ListQuery { phases, ..ListQuery::default() };
    let known = sandboxes.list(world.team, all).await;
    assert_eq!(known.unwrap().items.iter().map(|it| it.id).collect::<Vec<_>>(), [id]);
    let set = sandboxes.set_timeout(world.team, id, minute).await;
    assert!(matches!(set, Err(TimeoutError::DiskFull)), "{set:?}");
    let set = sandboxes.set_network(world.team, id, NetworkAsked::default(), Some(false)).await;
    assert!(matches!(set, Err(NetworkError::DiskFull)), "{set:?}");
    let deleted = world.control.templates.delete(world.team, "base").await;
    assert!(matches!(deleted, Err(DeleteTemplateError::DiskFull)), "{deleted:?}");
    assert!(world.is_listed(id));

    disk.set_full(false);
    sandboxes.set_timeout(world.team, id, minute).await.unwrap();
    world.create().await;
}

/// Whether the zone has it nobody knows; what it has is ended by the next process's comparison.
#[tokio::test(start_paused = true)]
async fn a_create_that_can_not_be_taken_back_holds_up_no_end() {
    let disk = FakeDisk::default();
    let mut world = World::on(disk.open().unwrap()).await;
    disk.set_full(true);
    world.zone.set_available(false);
    let created = world.control.sandboxes.create(world.team, new()).await;
    assert!(matches!(created, Err(CreateError::DiskFull)), "{created:?}");
    world.die().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_goes_on_and_is_answered_once_there_is_room_to_write_it_down() {
    let disk = FakeDisk::default();
    let world = World::on(disk.open().unwrap()).await;
    let sandboxes = &world.control.sandboxes;
    let (first, second) = (world.create().await.id, world.create().await.id);
    disk.set_full(true);
    let killing = sandboxes.kill(world.team, first);
    let room = async {
        // A sandbox that is gone takes its disk with it.
        world.zone.wait_for(|zone| zone.running() == [second]).await;
        disk.set_full(false);
    };
    let (killed, ()) = tokio::join!(killing, room);
    killed.unwrap();
    assert_eq!(world.dead(first).await, "killed");

    // Where none comes, the caller hears that it is not written down.
    disk.set_full(true);
    let killed = sandboxes.kill(world.team, second).await;
    assert!(matches!(killed, Err(KillError::ZoneUnavailable)), "{killed:?}");
    assert!(world.zone.running().is_empty());
    disk.set_full(false);
    assert_eq!(world.dead(second).await, "killed");
}

#[tokio::test(start_paused = true)]
async fn an_end_is_recorded_once_there_is_room() {
    let disk = FakeDisk::default();
    let world = World::on(disk.open().unwrap()).await;
    let id = world.create().await.id;
    disk.set_full(true);
    world.zone.end(id, EndReason::TimedOut);
    world.until("nobody can use it", |world| !world.is_listed(id)).await;
    disk.set_full(false);
    assert_eq!(world.dead(id).await, "timed out");
}
