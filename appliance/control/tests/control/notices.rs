//! What programs do in a sandbox is in its log.

use std::time::Duration;

use sandboxo_model::{Direction, LogQuery};
use sandboxo_zone_protocol::{Clock as _, Notice, Noticed, SandboxId};

use crate::world::World;

async fn lines(world: &World, id: SandboxId) -> Vec<String> {
    let query = LogQuery {
        from: None,
        direction: Direction::Forward,
        limit: 1000,
        level: None,
        search: None,
    };
    let lines = world.control.sandboxes.logs(world.team, id, query).await.unwrap().unwrap();
    let words = |name: &str, entry: &sandboxo_model::LogEntry| {
        entry.fields.get(name).map(|word| format!(" {word}")).unwrap_or_default()
    };
    lines
        .iter()
        .map(|it| format!("{}{}{}", it.message, words("command", it), words("exit_code", it)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn programs_are_told_of_when_somebody_reads_before_an_end_and_now_and_then() {
    let world = World::new().await;
    let id = world.create().await.id;
    let tell = |what| {
        world.clock.advance(Duration::from_millis(1));
        world.zone.notice(id, Notice { at: world.clock.now(), what });
    };
    let started = |command: &str| Noticed::Started { pid: 7, command: command.into() };
    tell(started("one"));
    let mut wanted = vec!["sandbox created", "sandbox started", "process started one"];
    assert_eq!(lines(&world, id).await, wanted);

    tell(started("two"));
    world.clock.advance(Duration::from_secs(5));
    world.until("asked for with the sample", |world| !world.zone.has_notices(id)).await;

    tell(Noticed::Ended { pid: 7, exit_code: 3, status: "exit status 3".into() });
    world.control.sandboxes.kill(world.team, id).await.unwrap();
    wanted.extend(["process started two", "process ended 3", "kill asked for", "sandbox ended"]);
    assert_eq!(lines(&world, id).await, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_does_not_answer_keeps_neither_log_nor_kill() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.set_available(false);
    assert_eq!(lines(&world, id).await, ["sandbox created", "sandbox started"]);
    assert!(world.control.sandboxes.kill(world.team, id).await.is_err());
    world.zone.set_available(true);
    world.until("killed", |world| world.zone.running().is_empty()).await;
}
