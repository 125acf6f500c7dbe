//! Pausing and resuming.

use std::time::Duration;

use sandboxo_zone_protocol::{CreateError, Kept, PauseError, fake::ScriptedCreate};
use serde_json::{Value, json};

use crate::world::World;

async fn create(world: &World, more: Value) -> String {
    let mut body = json!({"templateID": "base"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let created = world.ask("POST /v2/sandboxes", &body.to_string()).await;
    assert_eq!(created.status, 201, "{:?}", created.body);
    created.body["sandboxID"].as_str().unwrap().to_owned()
}

async fn detail(world: &World, id: &str) -> Value {
    let detail = world.ask(&format!("GET /sandboxes/{id}"), "").await;
    assert_eq!(detail.status, 200);
    detail.body
}

#[tokio::test(start_paused = true)]
async fn codes_of_a_life_with_pauses() {
    let world = World::new().await;
    let id = world.create().await;
    for (path, body, status) in [
        ("POST /sandboxes/ID/resume", "", 409),
        ("POST /sandboxes/ID/pause", "", 204),
        ("POST /sandboxes/ID/pause", r#"{"memory":true}"#, 409),
        ("POST /sandboxes/ID/timeout", r#"{"timeout":9}"#, 404),
        ("PUT /sandboxes/ID/network", "{}", 404),
        ("GET /sandboxes/ID/metrics", "", 200),
        ("GET /sandboxes/ID/logs", "", 200),
        ("POST /sandboxes/ID/resume", "", 201),
        ("POST /sandboxes/ID/resume", "{}", 409),
        ("POST /sandboxes/ID/pause", r#"{"memory":false,"requireHealthyGuest":true}"#, 204),
        ("POST /v2/sandboxes/ID/connect", "{}", 201),
        ("POST /v2/sandboxes/ID/connect", "{}", 200),
        ("POST /sandboxes/ID/pause", "{}", 204),
        ("POST /sandboxes/ID/connect", "{}", 400),
        ("POST /sandboxes/ID/connect", r#"{"timeout":60,"memory":false}"#, 201),
        ("POST /sandboxes/ID/pause", r#"{"memory":"yes"}"#, 400),
        ("POST /sandboxes/ID/pause", "{}", 204),
        ("DELETE /sandboxes/ID", "", 204),
        ("DELETE /sandboxes/ID", "", 404),
        ("POST /sandboxes/ID/pause", "{}", 404),
        ("POST /sandboxes/ID/resume", "{}", 404),
        ("POST /v2/sandboxes/ID/connect", "{}", 404),
    ] {
        let answer = world.ask(&path.replace("ID", &id), body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.body);
        if status >= 400 {
            assert_eq!(answer.body["code"], status, "{path} {body}");
        }
    }
    assert!(world.zone.checkpoints().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resumed_one_is_the_same() {
    let world = World::new().await;
    let created = world.ask("POST /v2/sandboxes", r#"{"templateID":"base"}"#).await;
    let id = created.body["sandboxID"].as_str().unwrap();
    world.ask(&format!("POST /sandboxes/{id}/pause"), "").await;
    let resumed = world.ask(&format!("POST /sandboxes/{id}/resume"), "").await;
    assert_eq!(resumed.body, created.body);
    // The default is a short one.
    assert_eq!(world.end_at(id).await, "2026-01-01T00:00:15Z");
    world.ask(&format!("POST /sandboxes/{id}/pause"), "").await;
    let connected = world.ask(&format!("POST /v2/sandboxes/{id}/connect"), "").await;
    assert_eq!(connected.body, created.body);
    assert_eq!(world.end_at(id).await, "2026-01-01T00:05:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_paused_one_is_shown_as_such() {
    let world = World::new().await;
    let (runs, sleeps) = (world.create().await, world.create().await);
    world.clock.advance(Duration::from_mins(1));
    world.ask(&format!("POST /sandboxes/{sleeps}/pause"), r#"{"memory":false}"#).await;
    world.clock.advance(Duration::from_mins(1));
    let shown = detail(&world, &sleeps).await;
    assert_eq!(
        (&shown["state"], &shown["endAt"], &shown["pauseMode"]),
        (&json!("paused"), &json!("2026-01-01T00:01:00Z"), &json!("filesystem"))
    );
    assert_eq!(shown["lifecycle"], json!({"autoResume": false, "onTimeout": "kill"}));
    assert!(detail(&world, &runs).await.get("pauseMode").is_none());
    for (query, expected, running) in [
        ("", vec![&sleeps, &runs], "1"),
        ("?state=running", vec![&runs], "1"),
        ("?state=paused", vec![&sleeps], "0"),
        ("?state=running,paused", vec![&sleeps, &runs], "1"),
    ] {
        let list = world.ask(&format!("GET /v2/sandboxes{query}"), "").await;
        let mut ids: Vec<_> = list
            .body
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["sandboxID"].as_str().unwrap())
            .collect();
        let mut expected: Vec<_> = expected.into_iter().map(String::as_str).collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected, "{query}");
        assert_eq!(list.headers["x-total-running"], running, "{query}");
    }
    let old = world.ask("GET /sandboxes", "").await;
    assert_eq!(old.body.as_array().unwrap().len(), 1);
    let latest = world.ask(&format!("GET /sandboxes/metrics?sandbox_ids={sleeps}"), "").await;
    assert_eq!(latest.body, json!({"sandboxes": {}}));
}

#[tokio::test(start_paused = true)]
async fn what_happens_at_the_timeout_is_asked_at_create() {
    let world = World::new().await;
    for (more, auto_resume, on_timeout) in [
        (json!({}), false, "kill"),
        (json!({"autoPause": false, "autoResume": {"enabled": false}}), false, "kill"),
        (json!({"autoPause": true}), false, "pause"),
        (json!({"autoPause": true, "autoPauseMemory": true}), false, "pause"),
        (json!({"autoPause": true, "autoPauseMemory": false}), false, "pause"),
        (json!({"autoPause": true, "autoResume": {"enabled": true}}), true, "pause"),
    ] {
        let id = create(&world, more.clone()).await;
        let expected = json!({"autoResume": auto_resume, "onTimeout": on_timeout});
        assert_eq!(detail(&world, &id).await["lifecycle"], expected, "{more}");
        world.clock.advance(Duration::from_mins(5));
        if on_timeout == "pause" {
            assert_eq!(detail(&world, &id).await["state"], "paused", "{more}");
        }
        world.zone.end_expired();
        let kept = match (on_timeout, more["autoPauseMemory"] == json!(false)) {
            ("kill", _) => vec![],
            (_, files) => vec![if files { Kept::Files } else { Kept::Memory }],
        };
        let had: Vec<_> = world.zone.checkpoints().iter().map(|it| it.kept).collect();
        assert_eq!(had, kept, "{more}");
        world.ask(&format!("DELETE /sandboxes/{id}"), "").await;
    }
    for (more, field) in [
        (json!({"autoPauseMemory": false}), "autoPauseMemory"),
        (
            json!({"autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}}),
            "autoPauseMemory",
        ),
        (json!({"autoResume": {}}), "autoResume"),
    ] {
        let mut body = json!({"templateID": "base"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = world.ask("POST /v2/sandboxes", &body.to_string()).await;
        assert_eq!(refused.status, 400, "{more}");
        assert!(refused.body["message"].as_str().unwrap().starts_with(field), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_have_their_codes() {
    let world = World::new().await;
    let id = world.create().await;
    let unresponsive = "sandbox_snapshot_guest_agent_unresponsive";
    for (refusal, status, error_code) in [
        (PauseError::AgentUnresponsive, 503, unresponsive),
        (PauseError::DiskFull { needed_mib: 2, free_mib: 1 }, 503, "disk_full"),
        (PauseError::Internal("x".into()), 500, "pause_failed"),
    ] {
        world.zone.fail_next_pause(refusal);
        let answer = world.ask(&format!("POST /sandboxes/{id}/pause"), "").await;
        assert_eq!((answer.status, &answer.body["error_code"]), (status, &json!(error_code)));
        assert_eq!(detail(&world, &id).await["state"], "running");
    }
    world.ask(&format!("POST /sandboxes/{id}/pause"), "").await;
    for (failure, status, error_code) in [
        (CreateError::LimitReached { what: "sandboxes", limit: 1 }, 429, "limit_reached"),
        (CreateError::DiskFull, 503, "disk_full"),
        (CreateError::Runtime("x".into()), 500, "resume_failed"),
        (CreateError::CheckpointUnusable("another runsc".into()), 503, "checkpoint_unusable"),
    ] {
        world.zone.script(ScriptedCreate::Fail(failure));
        let answer = world.ask(&format!("POST /v2/sandboxes/{id}/connect"), "{}").await;
        assert_eq!((answer.status, &answer.body["error_code"]), (status, &json!(error_code)));
        assert_eq!(detail(&world, &id).await["state"], "paused");
    }
    world.zone.fail_next_pause(PauseError::Ended);
    let other = world.create().await;
    let answer = world.ask(&format!("POST /sandboxes/{other}/pause"), "").await;
    assert_eq!((answer.status, &answer.body["error_code"]), (409, &json!("ended_while_pausing")));
}
