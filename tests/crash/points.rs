//! Each named point once.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::join_all;
use sandboxo_crashpoint::Point;
use sandboxo_tests::eventually;
use tokio::time::Instant;

use crate::promises::{
    Known, Promise, World, build, clone_volume, create, create_again, create_volume, create_with,
    delete_volumes, import, kill, kill_all, set_timeout, volumes,
};

/// Of a sandbox that stays; the machine may be slow.
const LONG: u64 = 3600;
/// More would only take longer to look at.
const MOST: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn row_79_a_death_at_any_named_point_is_healed_by_one_start() -> Result<()> {
    let mut world = World::start(2).await?;
    for witness in ["witness-1", "witness-2"] {
        live(&mut world, witness).await?;
    }
    for point in Point::ALL {
        let name = point.name();
        let died = die_at(&mut world, name).await;
        died.with_context(|| format!("the death at {name}"))?;
    }
    world.has_converged().await
}

/// A create that is answered.
async fn live(world: &mut World, key: &str) -> Result<String> {
    let sandbox = create_again(&world.client, LONG, key).await?;
    let id = sandboxo_tests::id(&sandbox)?;
    world.book.insert(id.clone(), Known { sandbox, promise: Promise::Lives });
    Ok(id)
}

/// The same, of one that has the volume of this name.
async fn live_with(world: &mut World, key: &str, volume: &str) -> Result<String> {
    let asked = || async {
        let answered = create_with(&world.client, LONG, key, volume).await?;
        answered.context("no answer")
    };
    let sandbox = eventually(Duration::from_secs(30), asked).await?;
    let id = sandboxo_tests::id(&sandbox)?;
    world.book.insert(id.clone(), Known { sandbox, promise: Promise::Lives });
    Ok(id)
}

async fn die_at(world: &mut World, name: &str) -> Result<()> {
    let client = world.client.clone();
    let key = name.replace('.', "-");
    let order = format!("{name}:1");
    let (story, _) = name.split_once('.').context("a point has a story")?;
    let mut asked_again = false;
    match story {
        "store" | "create" | "claim" | "refill" => {
            world.appliance.order_death(&order)?;
            match create(&client, LONG, &key).await? {
                Some(sandbox) => {
                    let id = sandboxo_tests::id(&sandbox)?;
                    world.book.insert(id, Known { sandbox, promise: Promise::Lives });
                }
                None => asked_again = true,
            }
        }
        "kill" => {
            let victim = live(world, &key).await?;
            world.appliance.order_death(&order)?;
            kill(&client, world.book.get_mut(&victim).context("it is known")?).await?;
        }
        "freeze" => {
            live(world, &key).await?;
            world.appliance.order_death(&order)?;
            let lives = world.book.values().filter(|it| it.promise == Promise::Lives);
            let all: Vec<_> = lives.map(|known| known.sandbox.clone()).collect();
            let count = u64::try_from(all.len())?;
            // The zone tells now and then how many are frozen, so one that is asked may be awake.
            let until = Instant::now() + Duration::from_mins(1);
            while name == "freeze.waking" && Instant::now() < until {
                world.appliance.frozen(count).await?;
                let asked = all.iter().map(|sandbox| client.run(sandbox, "true"));
                if join_all(asked).await.iter().any(Result::is_err) {
                    break;
                }
            }
        }
        // Asked for, and not answered: it runs, or it is paused.
        "pause" => {
            let victim = live(world, &key).await?;
            world.appliance.order_death(&order)?;
            let victim = &world.book.get(&victim).context("it is known")?.sandbox;
            if let Ok(status) = client.pause(victim, true).await {
                ensure!(status == 204, "a pause was answered with {status}");
            }
        }
        "resume" => {
            let victim = live(world, &key).await?;
            let victim = &world.book.get(&victim).context("it is known")?.sandbox;
            ensure!(client.pause(victim, true).await? == 204, "it is paused first");
            world.appliance.order_death(&order)?;
            if client.connect(victim).await.is_err() { /* asked again when all is compared */ }
        }
        "timeout" => {
            let victim = live(world, &key).await?;
            world.appliance.order_death(&order)?;
            let victim = world.book.get_mut(&victim).context("it is known")?;
            let seconds = if name == "timeout.due" { 1 } else { LONG };
            if seconds < LONG {
                victim.promise = Promise::Until(Instant::now() + Duration::from_secs(seconds));
            }
            set_timeout(&client, victim, seconds).await?;
        }
        "volume" => {
            let source = source_of(&key);
            let answered = match name {
                "volume.doomed" | "volume.unmounted" | "volume.removed" => {
                    ensure!(create_volume(&client, &key).await?, "a volume");
                    world.appliance.order_death(&order)?;
                    delete_volumes(&client, &key).await?
                }
                "volume.frozen" | "volume.copied" => {
                    ensure!(create_volume(&client, &source).await?, "a volume to be cloned");
                    world.appliance.order_death(&order)?;
                    clone_volume(&client, &key, &source).await?
                }
                _ => {
                    world.appliance.order_death(&order)?;
                    create_volume(&client, &key).await?
                }
            };
            ensure!(!answered, "it dies before it answers");
        }
        "mount" => {
            ensure!(create_volume(&client, &key).await?, "a volume");
            if name == "mount.attached" {
                world.appliance.order_death(&order)?;
                let answered = create_with(&client, LONG, &key, &key).await?;
                ensure!(answered.is_none(), "it dies before it answers");
            } else {
                let victim = live_with(world, &key, &key).await?;
                world.appliance.order_death(&order)?;
                let victim = world.book.get_mut(&victim).context("it is known")?;
                if name == "mount.held" {
                    if client.pause(&victim.sandbox, true).await.is_ok() { /* or not */ }
                } else {
                    kill(&client, victim).await?;
                }
            }
        }
        "import" => {
            world.appliance.order_death(&order)?;
            import(&client, name).await?;
        }
        "build" => {
            world.appliance.order_death(&order)?;
            build(&client, name, true).await?;
        }
        "restart" => {
            world.appliance.order_death(&order)?;
            world.appliance.crash()?;
            world.appliance.spawn()?;
        }
        other => bail!("nobody knows how {other} goes"),
    }
    ensure!(world.dies_within(Duration::from_mins(1)).await?, "nothing reaches it");
    world.comes_back().await?;
    if asked_again {
        let before = world.book.len();
        live(world, &key).await?;
        // Another commit may have been the one at which it died, before that of the create.
        let is_new = world.book.len() > before;
        ensure!(!is_new || story == "store", "a repeat has made a second sandbox");
    }
    if story == "build" {
        build(&client, name, false).await.context("the second attempt")?;
    }
    if story == "volume" {
        // Neither was answered: one that was to be made is not there, one that was to go is gone.
        let left = || async {
            let left = volumes(&client, &key).await?;
            ensure!(left.is_empty(), "{left:?} of {key}");
            Ok(())
        };
        eventually(Duration::from_secs(20), left).await?;
        let source = source_of(&key);
        if volumes(&client, &source).await?.is_empty() {
            ensure!(create_volume(&client, &key).await?, "a volume again");
        } else {
            // One that stands still could not be cloned again.
            ensure!(clone_volume(&client, &key, &source).await?, "a clone again");
            ensure!(delete_volumes(&client, &source).await?, "and the end of what it is of");
        }
        ensure!(delete_volumes(&client, &key).await?, "and its end");
    }
    if story == "mount" {
        let mut have = vec![live_with(world, &format!("{key}-too"), &key).await?];
        if name != "mount.detached" {
            // A repeat: of the create that was not answered, or of the one that lives.
            have.push(live_with(world, &key, &key).await?);
        }
        for id in &have {
            let known = world.book.get_mut(id).context("it is known")?;
            let said = client.run(&known.sandbox, "echo x >> /data/x && cat /data/x").await?;
            ensure!(said.stdout.starts_with("x\n"), "{id} has no volume: {said:?}");
            kill(&client, known).await?;
        }
        let gone = || async {
            ensure!(delete_volumes(&client, &key).await?, "an answer");
            Ok(())
        };
        eventually(Duration::from_secs(20), gone).await?;
    }
    if story == "import" {
        ensure!(import(&client, name).await?, "an import again");
    }
    let surplus = world.book.len().saturating_sub(MOST);
    let others = world.book.values_mut().filter(|known| known.promise == Promise::Lives);
    kill_all(&client, others.take(surplus).collect()).await
}

/// The name of the volume that is cloned.
fn source_of(key: &str) -> String {
    format!("{key}-source")
}
