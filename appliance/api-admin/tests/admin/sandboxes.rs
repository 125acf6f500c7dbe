//! Every team's sandboxes, and why they ended.

use std::time::Duration;

use sandboxo_control::Scope;
use sandboxo_zone_protocol::{CreateError, EndReason, Kept, fake::ScriptedCreate};
use serde_json::Value;

use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn the_dead_are_listed_with_their_reason() {
    let world = World::new().await;
    let lives = world.create().await;
    let reasons = [
        (EndReason::KeeperLost, "keeper_lost"),
        (EndReason::AgentLost, "agent_lost"),
        (EndReason::OutOfMemory, "out_of_memory"),
        (EndReason::Crashed, "crashed"),
        (EndReason::TimedOut, "timed_out"),
        (EndReason::ZoneRestarted, "zone_restarted"),
        (EndReason::CheckpointFailed, "checkpoint_failed"),
    ];
    let mut expected = Vec::new();
    let killed = world.create().await;
    world.control.sandboxes.kill(Scope::Operator, killed.id).await.unwrap();
    expected.push((killed.id.label(), "killed"));
    for (reason, word) in reasons {
        let record = world.create().await;
        world.zone.end(record.id, reason);
        world.control.sandboxes.gone(record.id).await;
        expected.push((record.id.label(), word));
    }

    let alive = world.ask("GET /sandboxes", "").await;
    let ids: Vec<_> = list(&alive.body).iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [lives.id.label()]);
    let shown = &alive.body["sandboxes"][0];
    assert_eq!((&shown["phase"], &shown["reason"]), (&"running".into(), &Value::Null));
    assert_eq!(shown["template"], "base");

    let all = world.ask("GET /sandboxes?dead=true", "").await;
    for (id, word) in expected {
        let dead = list(&all.body).iter().find(|it| it["id"] == id).unwrap();
        assert_eq!((&dead["phase"], &dead["reason"]), (&"dead".into(), &word.into()), "{dead}");
        assert!(dead["endedAt"].is_string() && dead["why"].is_string(), "{dead}");
    }
}

#[tokio::test]
async fn what_never_ran_or_left_no_trace_is_told_apart() {
    let world = World::new().await;
    world.zone.script(ScriptedCreate::Fail(CreateError::Runtime("a bundle".into())));
    world.try_create(world.team).await.unwrap_err();
    let all = world.ask("GET /sandboxes?dead=true", "").await;
    let failed = &list(&all.body)[0];
    assert_eq!((&failed["phase"], &failed["reason"]), (&"dead".into(), &"start_failed".into()));

    let lost = world.create().await;
    world.zone.forget(lost.id);
    // The next hello does not name it.
    world.zone.drop_subscribers();
    world.control.sandboxes.gone(lost.id).await;
    let all = world.ask("GET /sandboxes?dead=true", "").await;
    let lost = list(&all.body).iter().find(|it| it["id"] == lost.id.label()).unwrap();
    assert_eq!((&lost["phase"], &lost["reason"]), (&"dead".into(), &"missing".into()));
}

#[tokio::test]
async fn paused_ones_are_listed_and_one_without_its_checkpoint_is_dead() {
    let world = World::new().await;
    let record = world.create().await;
    world.control.sandboxes.pause(Scope::Operator, record.id, Kept::Memory).await.unwrap();
    let all = world.ask("GET /sandboxes", "").await;
    let paused = &list(&all.body)[0];
    assert_eq!((&paused["phase"], &paused["expiresAt"]), (&"paused".into(), &Value::Null));
    assert!(paused["pausedAt"].is_string(), "{paused}");

    world.zone.lose_checkpoint(world.zone.checkpoints()[0].id);
    let wish = world.control.sandboxes.connect(Scope::Operator, record.id, MINUTE, false);
    wish.await.unwrap_err();
    let all = world.ask("GET /sandboxes?dead=true", "").await;
    let dead = &list(&all.body)[0];
    assert_eq!((&dead["phase"], &dead["reason"]), (&"dead".into(), &"checkpoint_lost".into()));
}

#[tokio::test]
async fn every_teams_are_listed() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap();
    let ours = world.create().await.id.label();
    let theirs = world.try_create(other.id).await.unwrap().id.label();
    let all = world.ask("GET /sandboxes", "").await;
    let team = |id| list(&all.body).iter().find(|it| it["id"] == id).unwrap()["team"].clone();
    assert_eq!((team(ours), team(theirs)), ("default".into(), "other".into()));
}

#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let world = World::new().await;
    let mut expected = Vec::new();
    for _ in 0..130 {
        expected.push(world.create().await.id.label());
    }
    let first = world.ask("GET /sandboxes", "").await;
    assert_eq!(list(&first.body).len(), 100);
    let token = first.body["token"].as_str().unwrap();
    let second = world.ask(&format!("GET /sandboxes?token={token}"), "").await;
    assert_eq!(second.body["token"], Value::Null);
    let both = list(&first.body).iter().chain(list(&second.body));
    let mut seen: Vec<_> = both.map(|it| it["id"].as_str().unwrap().to_owned()).collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_bad_query_is_told_by_its_field() {
    let world = World::new().await;
    for (query, part) in [("dead=maybe", "dead"), ("color=red", "color"), ("token=x", "token")] {
        let answer = world.ask(&format!("GET /sandboxes?{query}"), "").await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.message().contains(part), "{query}: {answer:?}");
    }
}

fn list(body: &Value) -> &[Value] {
    body["sandboxes"].as_array().unwrap()
}
