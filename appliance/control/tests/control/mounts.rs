//! Volumes in sandboxes: found by name, kept by all that goes on, and not deleted under anybody.

use std::time::Duration;

use sandboxo_control::{
    CheckpointError, CreateError, DeleteVolumeError, PauseError, ResumeError, SnapshotError,
};
use sandboxo_model::{MountAsked, NewSandbox, PhaseKind};
use sandboxo_store::Read as _;
use sandboxo_zone_protocol::{
    CreateError as ZoneCreateError, Kept, PauseError as ZonePauseError, TeamId, VolumeId,
    VolumeMount,
    fake::{Call, ScriptedCreate},
};

use crate::world::{World, new};

const MINUTE: Duration = Duration::from_mins(1);

impl World {
    async fn volume(&self, name: &str) -> VolumeId {
        self.control.volumes.create(self.team, name, None).await.unwrap().id
    }

    async fn delete_volume(&self, id: VolumeId) -> Result<(), DeleteVolumeError> {
        self.control.volumes.delete(self.team, &id.to_string()).await
    }

    async fn is_kept(&self, id: VolumeId) {
        let refused = self.delete_volume(id).await;
        assert!(matches!(refused, Err(DeleteVolumeError::InUse(_))), "{refused:?}");
        assert!(!self.zone.calls().contains(&Call::RemoveVolume(id)));
        assert!(self.control.volumes.get(self.team, &id.to_string()).is_some());
    }
}

fn with(mounts: &[(&str, &str)]) -> NewSandbox {
    let asked = |(name, path): &(&str, &str)| MountAsked {
        name: (*name).to_owned(),
        path: (*path).to_owned(),
    };
    NewSandbox { volumes: mounts.iter().map(asked).collect(), ..new() }
}

fn mount(volume: VolumeId, name: &str, path: &str) -> VolumeMount {
    VolumeMount { volume, name: name.into(), path: path.parse().unwrap() }
}

#[tokio::test(start_paused = true)]
async fn volumes_are_found_by_their_names_in_the_team() {
    let mut world = World::new().await;
    let (a, b) = (world.volume("a").await, world.volume("b").await);
    let sandboxes = &world.control.sandboxes;
    let asked = with(&[("a", "/data/a"), ("b", "/data"), ("a", "/again")]);
    let made = sandboxes.create(world.team, asked).await.unwrap();
    let expected = [mount(b, "b", "/data"), mount(a, "a", "/again"), mount(a, "a", "/data/a")];
    assert_eq!(made.spec.volumes, expected);
    assert_eq!(world.zone.spec(made.id).unwrap().volumes, expected);

    let refused = sandboxes.create(world.team, with(&[("c", "/c"), ("a", "a")])).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "volumeMounts[0].name: volume 'c' not found; volumeMounts[1].path: is not absolute"
    );
    let other = TeamId::NIL;
    let refused = sandboxes.create(other, with(&[("a", "/a")])).await;
    assert!(matches!(refused, Err(CreateError::Mounts(_) | CreateError::TemplateNotFound(_))));
    assert_eq!(world.zone.running(), [made.id]);

    world.restart().await;
    assert_eq!(world.record(made.id).await.spec.volumes, expected);
    world.is_kept(a).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_kept_by_all_that_goes_on_with_it() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let (a, b) = (world.volume("a").await, world.volume("b").await);
    let one = sandboxes.create(world.team, with(&[("a", "/a")])).await.unwrap();
    world.is_kept(a).await;

    let copies = sandboxes.fork(world.team, one.id, 1, MINUTE).await.unwrap();
    let copy = copies.into_iter().next().unwrap().unwrap();
    assert_eq!(copy.spec.volumes, one.spec.volumes);
    sandboxes.kill(world.team, one.id).await.unwrap();
    world.dead(one.id).await;
    world.is_kept(a).await;

    sandboxes.pause(world.team, copy.id, Kept::Memory).await.unwrap();
    world.is_kept(a).await;
    let snapshot = sandboxes.snapshot(world.team, copy.id, None, Kept::Memory).await.unwrap();
    sandboxes.kill(world.team, copy.id).await.unwrap();
    world.dead(copy.id).await;
    world.is_kept(a).await;

    // What starts from it has its volumes, and those that it asks for besides.
    let asked = NewSandbox { template: snapshot.id.clone(), ..with(&[("b", "/b"), ("a", "/a")]) };
    let made = sandboxes.create(world.team, asked).await.unwrap();
    assert_eq!(made.spec.volumes, [mount(a, "a", "/a"), mount(b, "b", "/b")]);
    let asked = NewSandbox { template: snapshot.id.clone(), ..with(&[("b", "/a")]) };
    let refused = sandboxes.create(world.team, asked).await.unwrap_err();
    assert_eq!(refused.to_string(), "volumeMounts[0].path: '/a' is another volume's already");
    world.control.snapshots.delete(world.team, &snapshot.id).await.unwrap();
    world.is_kept(a).await;
    world.is_kept(b).await;
    sandboxes.kill(world.team, made.id).await.unwrap();
    world.dead(made.id).await;
    for volume in [a, b] {
        world.delete_volume(volume).await.unwrap();
        assert!(world.zone.calls().contains(&Call::RemoveVolume(volume)));
        let again = world.delete_volume(volume).await;
        assert!(matches!(again, Err(DeleteVolumeError::NotFound(_))), "{again:?}");
    }
    let gone = sandboxes.create(world.team, with(&[("a", "/a")])).await;
    assert!(matches!(gone, Err(CreateError::Mounts(_))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn of_a_create_and_a_deletion_at_once_one_comes_first() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    for round in 0..20 {
        let name = format!("v{round}");
        let volume = world.volume(&name).await;
        let (made, deleted) = tokio::join!(
            sandboxes.create(world.team, with(&[(&name, "/data")])),
            world.delete_volume(volume),
        );
        match (made, deleted) {
            (Ok(made), Err(DeleteVolumeError::InUse(_))) => {
                assert_eq!(world.zone.spec(made.id).unwrap().volumes.len(), 1);
            }
            (Err(CreateError::Mounts(_)), Ok(())) => {}
            both => panic!("{both:?}"),
        }
    }
    // Two deletions: the second finds nothing, and leaves nothing.
    let volume = world.volume("twice").await;
    let (one, two) = tokio::join!(world.delete_volume(volume), world.delete_volume(volume));
    assert_eq!([one.is_ok(), two.is_ok()].iter().filter(|ok| **ok).count(), 1);
    let left = world.store.read(|tx| tx.all::<sandboxo_model::VolumeRecord>()).await.unwrap();
    assert!(left.iter().all(|it| it.id != volume), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_volume_refuses_is_told_and_can_be_mended() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    world.volume("a").await;
    let failing = [
        (
            ZoneCreateError::NotMounted("/bin/sh/a: Not a directory".into()),
            "volumeMounts: /bin/sh/a",
        ),
        (ZoneCreateError::VolumeFileGone("/a/x".into()), "'/a/x' was open"),
    ];
    for (failure, text) in failing {
        world.zone.script(ScriptedCreate::Fail(failure));
        let refused = sandboxes.create(world.team, with(&[("a", "/a")])).await.unwrap_err();
        assert!(refused.to_string().starts_with(text), "{refused}");
    }

    let one = sandboxes.create(world.team, with(&[("a", "/a")])).await.unwrap();
    world.zone.fail_next_pause(ZonePauseError::DeletedFileOpen("x".into()));
    let refused = sandboxes.pause(world.team, one.id, Kept::Memory).await;
    assert!(matches!(&refused, Err(PauseError::DeletedFileOpen(name)) if name == "x"));
    world.zone.fail_next_pause(ZonePauseError::DeletedFileOpen("x".into()));
    let refused = sandboxes.snapshot(world.team, one.id, None, Kept::Memory).await;
    assert!(matches!(
        &refused,
        Err(SnapshotError::Checkpoint(CheckpointError::DeletedFileOpen(name))) if name == "x"
    ));
    assert_eq!(world.record(one.id).await.phase.kind(), PhaseKind::Running);

    sandboxes.pause(world.team, one.id, Kept::Memory).await.unwrap();
    world.zone.script(ScriptedCreate::Fail(ZoneCreateError::VolumeFileGone("/a/x".into())));
    let refused = sandboxes.resume(world.team, one.id, MINUTE, false, None).await;
    assert!(matches!(&refused, Err(ResumeError::VolumeFileGone(path)) if path == "/a/x"));
    assert_eq!(world.record(one.id).await.phase.kind(), PhaseKind::Paused);
    let back = sandboxes.resume(world.team, one.id, MINUTE, false, None).await.unwrap();
    assert_eq!(back.spec.volumes, one.spec.volumes);
}
