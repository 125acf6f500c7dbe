//! Snapshots, and what starts from them.

use std::{collections::BTreeSet, time::Duration};

use sandboxo_control::{
    CheckpointError, CreateError, DeleteSnapshotError, ImportTemplate, ImportTemplateError,
    Snapshot, SnapshotError, SnapshotQuery,
};
use sandboxo_model::{NewSandbox, PhaseKind};
use sandboxo_zone_protocol::{
    CheckpointId, Kept, Origin, PauseError as ZonePauseError, SandboxId, fake::Call,
};

use crate::world::{World, new};

/// A pass over what is left over has been made, and the checkpoints are old enough for it.
const A_WHILE: Duration = Duration::from_mins(21);

impl World {
    async fn snapshot(&self, id: SandboxId, name: Option<&str>) -> Snapshot {
        self.control.sandboxes.snapshot(self.team, id, name, Kept::Memory).await.unwrap()
    }

    async fn delete(&self, snapshot: &Snapshot) -> Result<(), DeleteSnapshotError> {
        self.control.snapshots.delete(self.team, &snapshot.id).await
    }

    fn listed(&self, query: SnapshotQuery) -> Vec<String> {
        let page = self.control.snapshots.list(self.team, query).unwrap();
        page.items.into_iter().map(|it| it.id).collect()
    }

    pub(crate) fn checkpoints(&self) -> BTreeSet<CheckpointId> {
        self.zone.checkpoints().iter().map(|it| it.id).collect()
    }

    pub(crate) async fn has_checkpoints(&self, count: usize) {
        self.until("as many checkpoints", |world| world.zone.checkpoints().len() == count).await;
    }

    pub(crate) async fn a_while(&self) {
        self.clock.advance(A_WHILE);
        tokio::time::sleep(A_WHILE).await;
    }
}

fn all() -> SnapshotQuery {
    SnapshotQuery { limit: 100, ..SnapshotQuery::default() }
}

fn of(snapshot: &Snapshot) -> NewSandbox {
    NewSandbox { template: snapshot.id.clone(), ..new() }
}

fn long() -> NewSandbox {
    NewSandbox { timeout: Duration::from_hours(24), ..new() }
}

#[tokio::test(start_paused = true)]
async fn any_number_start_from_one_and_it_outlives_what_it_was_taken_of() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let env = [("A".to_owned(), "old".to_owned()), ("B".to_owned(), "old".to_owned())];
    let source = NewSandbox { env: env.into(), ..new() };
    let source = sandboxes.create(world.team, source).await.unwrap();
    let snapshot = world.snapshot(source.id, None).await;
    assert!(snapshot.names.is_empty());
    assert!(world.is_listed(source.id));
    let checkpoint = *world.checkpoints().first().unwrap();

    let asked = NewSandbox { env: [("B".into(), "new".into())].into(), ..of(&snapshot) };
    let made = sandboxes.create(world.team, asked).await.unwrap();
    assert_eq!(format!("{}:default", made.template.id), snapshot.id);
    assert_eq!(made.template.alias, None);
    assert_ne!(made.id, source.id);
    let (old, spec) = (&source.spec, &made.spec);
    assert_eq!(spec.origin, Origin::Checkpoint { id: checkpoint, reboot: false });
    assert_eq!(spec.shape(), old.shape());
    assert_eq!((&spec.user, &spec.workdir), (&old.user, &old.workdir));
    assert_eq!(spec.hostname, made.id.label());
    assert_ne!(spec.agent_token, old.agent_token);
    let id = made.template.id.to_string();
    for (name, value) in [("A", "old"), ("B", "new"), ("E2B_TEMPLATE_ID", &id)] {
        assert_eq!(spec.env[name], value, "{name}");
    }
    sandboxes.kill(world.team, source.id).await.unwrap();
    sandboxes.create(world.team, of(&snapshot)).await.unwrap();

    world.delete(&snapshot).await.unwrap();
    world.has_checkpoints(0).await;
    let again = world.delete(&snapshot).await;
    assert!(matches!(again, Err(DeleteSnapshotError::NotFound(_))));
    let gone = sandboxes.create(world.team, of(&snapshot)).await;
    assert!(matches!(gone, Err(CreateError::TemplateNotFound(_))));
    // What has started goes on.
    assert!(world.is_listed(made.id));
}

#[tokio::test(start_paused = true)]
async fn names_have_tags_and_a_tag_is_taken_again() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let (one, two) = (world.create().await.id, world.create().await.id);
    let mut all_taken = Vec::new();
    for (sandbox, name) in
        [(one, "snap"), (one, "Snap:v1"), (two, "default/snap:v2"), (two, "other")]
    {
        world.clock.advance(Duration::from_secs(1));
        let snapshot = world.snapshot(sandbox, Some(name)).await;
        assert_eq!(snapshot.names, std::slice::from_ref(&snapshot.id));
        all_taken.insert(0, snapshot.id);
    }
    let ids =
        ["default/other:default", "default/snap:v2", "default/snap:v1", "default/snap:default"];
    assert_eq!(all_taken, ids);
    assert_eq!(world.listed(all()), ids);
    let named = |name: &str| SnapshotQuery { name: Some(name.into()), ..all() };
    let taken_of = |sandbox| SnapshotQuery { sandbox: Some(sandbox), ..all() };
    for (query, expected) in [
        (named("snap"), &ids[1..]),
        (named("SNAP:v1"), &ids[2..3]),
        (named("default/snap:v1"), &ids[2..3]),
        (named("nobody/snap"), &[]),
        (named("nothing"), &[]),
        (named("a b"), &[]),
        (taken_of(one), &ids[2..]),
        (taken_of(two), &ids[..2]),
    ] {
        assert_eq!(world.listed(query.clone()), expected, "{query:?}");
    }
    let page = world.control.snapshots.list(world.team, SnapshotQuery { limit: 3, ..all() });
    let next = page.unwrap().next.map(|next| next.to_string());
    assert_eq!(world.listed(SnapshotQuery { token: next, ..all() }), &ids[3..]);

    // The tag is another moment from now on, and what it was before goes.
    let before = world.checkpoints();
    world.clock.advance(Duration::from_secs(1));
    let again = world.snapshot(two, Some("snap")).await;
    world.has_checkpoints(4).await;
    assert_eq!(before.difference(&world.checkpoints()).count(), 1);
    assert_eq!(world.listed(all())[0], again.id);
    let mut made = BTreeSet::new();
    for template in ["snap", "default/snap", "snap:v1"] {
        let new = NewSandbox { template: template.into(), ..new() };
        made.insert(sandboxes.create(world.team, new).await.unwrap().template.id);
    }
    assert_eq!(made.len(), 1);
    let new = NewSandbox { template: "snap:v3".into(), ..new() };
    let unknown = sandboxes.create(world.team, new).await;
    assert!(matches!(unknown, Err(CreateError::TemplateNotFound(_))));

    // One tag goes, the others stay.
    world.control.snapshots.delete(world.team, "snap:v1").await.unwrap();
    world.has_checkpoints(3).await;
    assert_eq!(world.listed(named("snap")), [ids[3], ids[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_name_has_one_meaning_in_its_team() {
    let world = World::new().await;
    let id = world.create().await.id;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let taken = async |name| {
        let sandboxes = &world.control.sandboxes;
        sandboxes.snapshot(world.team, id, Some(name), Kept::Memory).await.unwrap_err()
    };
    assert!(matches!(taken("base:v1").await, SnapshotError::NameTaken(_)));
    assert!(matches!(taken("other/snap").await, SnapshotError::Foreign(_)));
    assert!(matches!(taken("a b").await, SnapshotError::Name(_)));
    // Nothing has been asked of the sandbox for them.
    assert!(world.zone.checkpoints().is_empty());
    let snapshot = world.snapshot(id, Some("snap")).await;
    let import = |team| {
        let import = ImportTemplate::new("snap");
        world.control.templates.import(team, import, Box::new(&b"x"[..]))
    };
    let refused = import(world.team).await;
    assert!(matches!(refused, Err(ImportTemplateError::NameTaken(_))));
    // A public one of another team is not what is meant.
    import(other).await.unwrap();
    let made = world.control.sandboxes.create(world.team, of(&snapshot)).await.unwrap();
    assert!(matches!(made.spec.origin, Origin::Checkpoint { .. }));
    assert!(world.control.snapshots.list(other, all()).unwrap().items.is_empty());
    let deleted = world.control.snapshots.delete(other, &snapshot.id).await;
    assert!(matches!(deleted, Err(DeleteSnapshotError::NotFound(_))));
    let theirs = world.control.sandboxes.snapshot(other, id, None, Kept::Memory).await;
    let unknown = SnapshotError::Checkpoint(CheckpointError::NotFound(id));
    assert_eq!(theirs.unwrap_err().to_string(), unknown.to_string());
}

#[tokio::test(start_paused = true)]
async fn one_of_files_boots() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    let files = async || sandboxes.snapshot(world.team, id, None, Kept::Files).await.unwrap();
    let snapshot = files().await;
    assert!(world.zone.calls().contains(&Call::Snapshot(id, Kept::Files)));
    sandboxes.pause(world.team, id, Kept::Memory).await.unwrap();
    // What the pause has kept beyond that does not count.
    for snapshot in [snapshot, files().await] {
        let made = sandboxes.create(world.team, of(&snapshot)).await.unwrap();
        assert!(matches!(made.spec.origin, Origin::Checkpoint { reboot: true, .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_a_paused_sandbox_is_what_it_goes_on_from() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = sandboxes.create(world.team, long()).await.unwrap().id;
    sandboxes.pause(world.team, id, Kept::Memory).await.unwrap();
    let (one, two) = (world.snapshot(id, None).await, world.snapshot(id, None).await);
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Paused);
    assert_eq!(world.checkpoints().len(), 1);
    // Neither takes it from the other, nor from the sandbox.
    world.delete(&one).await.unwrap();
    world.a_while().await;
    sandboxes.resume(world.team, id, Duration::from_hours(9), false, None).await.unwrap();
    world.a_while().await;
    sandboxes.create(world.team, of(&two)).await.unwrap();
    sandboxes.pause(world.team, id, Kept::Memory).await.unwrap();
    world.has_checkpoints(2).await;
    let three = world.snapshot(id, None).await;
    sandboxes.kill(world.team, id).await.unwrap();
    world.a_while().await;
    assert_eq!(world.checkpoints().len(), 2);
    sandboxes.create(world.team, of(&three)).await.unwrap();
    world.delete(&two).await.unwrap();
    world.delete(&three).await.unwrap();
    world.has_checkpoints(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_can_not_go_on_is_paused_and_its_snapshot_is_taken() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    world.zone.pause_at_next_snapshot();
    let snapshot = world.snapshot(id, None).await;
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Paused);
    assert_eq!(world.checkpoints().len(), 1);
    sandboxes.create(world.team, of(&snapshot)).await.unwrap();
    sandboxes.resume(world.team, id, Duration::from_mins(5), false, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_snapshot_keeps_of_an_old_pause_is_no_news_of_the_sandbox() {
    let mut world = World::new().await;
    let id = world.create().await.id;
    world.control.sandboxes.pause(world.team, id, Kept::Memory).await.unwrap();
    world.snapshot(id, None).await;
    let five = Duration::from_mins(5);
    world.control.sandboxes.resume(world.team, id, five, false, None).await.unwrap();
    world.restart().await;
    world.zone.forget(id);
    // The zone has that pause of it, and nothing else.
    let paused = world.control.sandboxes.pause(world.team, id, Kept::Memory).await;
    assert!(matches!(paused, Err(sandboxo_control::PauseError::Ended)), "{paused:?}");
    world.dead(id).await;
    assert_eq!(world.checkpoints().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_takes_nothing_from_a_paused_sandbox() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    sandboxes.pause(world.team, id, Kept::Memory).await.unwrap();
    let snapshot = world.snapshot(id, None).await;
    world.delete(&snapshot).await.unwrap();
    world.a_while().await;
    sandboxes.resume(world.team, id, Duration::from_mins(5), false, None).await.unwrap();
    world.has_checkpoints(0).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_takes_nothing_from_what_starts_just_then() {
    let world = World::new().await;
    let id = world.create().await.id;
    let snapshot = world.snapshot(id, None).await;
    world.zone.hold();
    let deleted = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        world.delete(&snapshot).await.unwrap();
        // Whoever would have discarded it has had its turn.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.checkpoints().len(), 1);
        world.zone.release();
    };
    let create = world.control.sandboxes.create(world.team, of(&snapshot));
    let (made, ()) = tokio::join!(create, deleted);
    made.unwrap();
    world.a_while().await;
    world.has_checkpoints(0).await;
}

#[tokio::test(start_paused = true)]
async fn they_survive_processes_and_what_none_records_does_not() {
    let mut world = World::new().await;
    let id = world.control.sandboxes.create(world.team, long()).await.unwrap().id;
    let snapshot = world.snapshot(id, Some("snap")).await;
    // A process died before it could write it down.
    let lost = sandboxo_zone_protocol::Zone::snapshot(&*world.zone, id, Kept::Memory).await;
    let lost = lost.unwrap().id;
    world.restart().await;
    assert!(world.checkpoints().contains(&lost));
    world.a_while().await;
    world.until("it is gone", |world| !world.checkpoints().contains(&lost)).await;
    assert_eq!(world.listed(all()), std::slice::from_ref(&snapshot.id));
    let made = world.control.sandboxes.create(world.team, of(&snapshot)).await.unwrap();
    assert_eq!(made.template.alias.as_ref(), Some(&snapshot.id));
}

#[tokio::test(start_paused = true)]
async fn images_stay_as_long_as_snapshots_need_them() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let source = world.create().await;
    let snapshot = world.snapshot(source.id, None).await;
    let import = ImportTemplate::new("base");
    world.control.templates.import(world.team, import, Box::new(&b"new"[..])).await.unwrap();
    sandboxes.kill(world.team, source.id).await.unwrap();
    let kept = || {
        let calls = world.zone.calls();
        let images = calls.into_iter().rev().find_map(|call| {
            let Call::KeepImages(images) = call else { return None };
            Some(images)
        });
        images.unwrap().contains(&source.spec.image)
    };
    world.a_while().await;
    assert!(kept());
    sandboxes.create(world.team, of(&snapshot)).await.unwrap();
    world.delete(&snapshot).await.unwrap();
    for live in world.control.sandboxes.live() {
        sandboxes.kill(world.team, live.id).await.unwrap();
    }
    world.a_while().await;
    assert!(!kept());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_a_reason_and_the_sandbox_goes_on() {
    let world = World::new().await;
    let id = world.create().await.id;
    let refused = async |refusal| {
        world.zone.fail_next_pause(refusal);
        let taken = world.control.sandboxes.snapshot(world.team, id, None, Kept::Memory).await;
        let Err(SnapshotError::Checkpoint(error)) = taken else { panic!("{taken:?}") };
        error
    };
    let full = ZonePauseError::DiskFull { needed_mib: 2, free_mib: 1 };
    assert!(matches!(refused(full).await, CheckpointError::DiskFull));
    let silent = ZonePauseError::AgentUnresponsive;
    assert!(matches!(refused(silent).await, CheckpointError::AgentUnresponsive));
    let failed = ZonePauseError::Internal("x".into());
    assert!(matches!(refused(failed).await, CheckpointError::Failed));
    assert!(world.is_listed(id));
    // Worth another try.
    world.zone.fail_next_pause(ZonePauseError::Busy);
    world.snapshot(id, None).await;
    assert!(matches!(refused(ZonePauseError::Ended).await, CheckpointError::Ended));
    assert!(world.dead(id).await.contains("checkpoint"));
    let gone = world.control.sandboxes.snapshot(world.team, id, None, Kept::Memory).await;
    let Err(SnapshotError::Checkpoint(CheckpointError::NotFound(_))) = gone else {
        panic!("{gone:?}")
    };
}
