//! Tokens of sandboxes, and the keys that sign them, over the lives of processes.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sandboxo_control::{ControlConfig, IdentityConfig, JwkSet, KeepKeyring, Keyring, NewKeyError};
use sandboxo_model::{NewSandbox, Tokens};
use sandboxo_store::Store;
use sandboxo_zone_protocol::{CreateError, Kept, Secret, fake::ScriptedCreate};

use crate::world::{World, new};

fn with_token() -> NewSandbox {
    let tokens = [("aws".parse().unwrap(), "sts.amazonaws.com".parse().unwrap())];
    NewSandbox { tokens: Tokens::new(tokens.into()).unwrap(), ..new() }
}

fn ids(keys: &JwkSet) -> Vec<String> {
    keys.keys.iter().filter_map(|key| key.common.key_id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_process_knows_who_a_sandbox_is() {
    let mut world = World::new().await;
    let made = world.control.sandboxes.create(world.team, with_token()).await.unwrap();
    let identity = made.identity.clone().unwrap();
    world.restart().await;
    let known = world.control.sandboxes.get(world.team, made.id).unwrap();
    assert_eq!(known.identity, Some(identity));
    assert!(world.zone.vault().unwrap().token(made.id, "aws").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn each_resume_is_another_execution_also_one_that_fails() {
    let mut world = World::new().await;
    let sandboxes = world.control.sandboxes.clone();
    let made = sandboxes.create(world.team, with_token()).await.unwrap();
    let hour = Duration::from_hours(1);
    let mut executions = vec![made.identity.clone().unwrap().execution];
    for failing in [false, true, false] {
        // After the one that failed it is paused as before.
        if sandboxes.get(world.team, made.id).unwrap().phase.checkpoint().is_none() {
            sandboxes.pause(world.team, made.id, Kept::Memory).await.unwrap();
        }
        if failing {
            let error = CreateError::Runtime("a bug".into());
            world.zone.script(ScriptedCreate::Fail(error));
        }
        let resumed = sandboxes.resume(world.team, made.id, hour, false, None).await;
        assert_eq!(resumed.is_err(), failing, "{resumed:?}");
        let known = sandboxes.get(world.team, made.id).unwrap().identity.clone().unwrap();
        assert_eq!(known.tokens, made.identity.as_ref().unwrap().tokens);
        assert!(!executions.contains(&known.execution));
        executions.push(known.execution);
    }
    world.restart().await;
    let known = world.control.sandboxes.get(world.team, made.id).unwrap();
    assert_eq!(known.identity.as_ref().map(|it| &it.execution), executions.last());
}

#[derive(Debug, Default)]
struct Disk {
    is_full: Mutex<bool>,
    kept: Mutex<Option<Secret>>,
}

impl KeepKeyring for Disk {
    fn keep(&self, text: &Secret) -> io::Result<()> {
        if *self.is_full.lock() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.kept.lock() = Some(text.clone());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_kept_before_anybody_is_shown_it() {
    let disk = Arc::new(Disk::default());
    let keyring = IdentityConfig::default().keyring;
    let identity = |keyring| IdentityConfig { keyring, keep: disk.clone(), ..Default::default() };
    let config = ControlConfig { identity: identity(keyring), ..ControlConfig::default() };
    let world = World::with(Store::in_memory().unwrap(), config).await;
    let before = ids(&world.control.identities.keys());
    *disk.is_full.lock() = true;
    let refused = world.control.identities.new_key().await;
    assert!(matches!(refused, Err(NewKeyError::DiskFull)), "{refused:?}");
    assert_eq!(ids(&world.control.identities.keys()), before);
    *disk.is_full.lock() = false;
    // Whoever asks leaves, and it is done all the same.
    tokio::select! {
        biased;
        _ = world.control.identities.new_key() => panic!("it takes a moment"),
        () = std::future::ready(()) => {}
    }
    world.until("it is kept", |_| disk.kept.lock().is_some()).await;
    world.until("it is shown", |world| ids(&world.control.identities.keys()).len() == 2).await;
    let refused = world.control.identities.new_key().await;
    assert!(matches!(refused, Err(NewKeyError::TooSoon(_))), "{refused:?}");

    let kept = Keyring::read(disk.kept.lock().as_ref().unwrap().expose()).unwrap();
    let config = ControlConfig { identity: identity(kept), ..ControlConfig::default() };
    let next = World::with(Store::in_memory().unwrap(), config).await;
    let both = ids(&next.control.identities.keys());
    assert_eq!(both, ids(&world.control.identities.keys()));
    next.clock.advance(Duration::from_mins(21));
    assert_eq!(ids(&next.control.identities.keys()), both[1..], "the old one is over");
}
