//! Snapshots and forks.

use std::time::Duration;

use sandboxo_zone_protocol::{CreateError, PauseError, fake::ScriptedCreate};
use serde_json::{Value, json};

use crate::world::World;

async fn take(world: &World, id: &str, body: &str) -> Value {
    let taken = world.ask(&format!("POST /sandboxes/{id}/snapshots"), body).await;
    assert_eq!(taken.status, 201, "{:?}", taken.body);
    taken.body
}

/// As clients put it into a path.
fn quoted(id: &str) -> String {
    id.replace('/', "%2F").replace(':', "%3A")
}

async fn create_from(world: &World, template: &str) -> crate::world::Answer {
    world.ask("POST /v2/sandboxes", &json!({"templateID": template}).to_string()).await
}

#[tokio::test(start_paused = true)]
async fn one_is_taken_started_from_and_deleted_once() {
    let world = World::new().await;
    let source = world.create().await;
    for (body, name) in [
        ("", None),
        ("{}", None),
        (r#"{"name":"Snap"}"#, Some("default/snap:default")),
        (r#"{"name":"default/snap:v1","memory":false}"#, Some("default/snap:v1")),
    ] {
        let taken = take(&world, &source, body).await;
        let id = taken["snapshotID"].as_str().unwrap().to_owned();
        assert_eq!(taken["names"], json!(name.into_iter().collect::<Vec<_>>()));
        assert_eq!(name.unwrap_or(&id), id);
        let listed = world.ask("GET /snapshots", "").await;
        assert_eq!((listed.status, listed.body), (200, json!([taken])));
        for _ in 0..2 {
            let made = create_from(&world, &id).await;
            assert_eq!(made.status, 201, "{:?}", made.body);
            assert_ne!(made.body["sandboxID"], json!(source));
            let template = made.body["templateID"].as_str().unwrap();
            assert!(name.is_some() || id == format!("{template}:default"));
        }
        let path = quoted(&id);
        assert_eq!(world.ask(&format!("DELETE /templates/{path}"), "").await.status, 204);
        let again = world.ask(&format!("DELETE /templates/{path}"), "").await;
        assert_eq!((again.status, &again.body["code"]), (404, &json!(404)));
        assert_eq!(create_from(&world, &id).await.status, 404);
        assert_eq!(world.ask("GET /snapshots", "").await.body, json!([]));
    }
    assert_eq!(world.ask(&format!("GET /sandboxes/{source}"), "").await.status, 200);
    // They are no templates in a list of those.
    take(&world, &source, "").await;
    let templates = world.ask("GET /templates", "").await;
    assert_eq!(templates.body.as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_and_have_pages() {
    let world = World::new().await;
    let (one, two) = (world.create().await, world.create().await);
    let mut taken = Vec::new();
    for (of, body) in [(&one, "{}"), (&one, r#"{"name":"snap"}"#), (&two, r#"{"name":"snap:v1"}"#)]
    {
        world.clock.advance(Duration::from_secs(1));
        taken.insert(0, take(&world, of, body).await);
    }
    for (query, expected) in [
        (String::new(), &taken[..]),
        (format!("?sandboxID={one}"), &taken[1..]),
        (format!("?sandboxID={two}&name=snap"), &taken[..1]),
        ("?name=snap".into(), &taken[..2]),
        ("?name=default%2Fsnap%3Av1".into(), &taken[..1]),
        ("?name=nothing".into(), &[]),
        ("?sandboxID=nothing".into(), &[]),
    ] {
        let listed = world.ask(&format!("GET /snapshots{query}"), "").await;
        assert_eq!((listed.status, listed.body), (200, json!(expected)), "{query}");
        assert!(!listed.headers.contains_key("x-next-token"));
    }
    let first = world.ask("GET /snapshots?limit=2", "").await;
    assert_eq!(first.body, json!(taken[..2]));
    let next = first.headers["x-next-token"].to_str().unwrap();
    let rest = world.ask(&format!("GET /snapshots?limit=2&nextToken={next}"), "").await;
    assert_eq!(rest.body, json!(taken[2..]));
    for query in ["limit=0", "limit=101", "limit=x", "nextToken=x"] {
        assert_eq!(world.ask(&format!("GET /snapshots?{query}"), "").await.status, 400, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_have_their_codes() {
    let world = World::new().await;
    let id = world.create().await;
    for (body, field) in [
        (r#"{"name":"a b"}"#, "name"),
        (r#"{"name":"base"}"#, "name"),
        (r#"{"name":"other/snap"}"#, "name"),
        (r#"{"name":"snap:0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11"}"#, "name"),
        (r#"{"memory":"yes"}"#, "memory"),
    ] {
        let refused = world.ask(&format!("POST /sandboxes/{id}/snapshots"), body).await;
        assert_eq!(refused.status, 400, "{body}");
        assert!(refused.body["message"].as_str().unwrap().starts_with(field), "{refused:?}");
    }
    for route in ["snapshots", "fork"] {
        let unresponsive = "sandbox_snapshot_guest_agent_unresponsive";
        for (refusal, status, error_code) in [
            (PauseError::AgentUnresponsive, 503, unresponsive),
            (PauseError::DiskFull { needed_mib: 2, free_mib: 1 }, 503, "disk_full"),
            (PauseError::Internal("x".into()), 500, "save_failed"),
        ] {
            world.zone.fail_next_pause(refusal);
            let answer = world.ask(&format!("POST /sandboxes/{id}/{route}"), "").await;
            assert_eq!((answer.status, &answer.body["error_code"]), (status, &json!(error_code)));
        }
    }
    let snapshot = take(&world, &id, "").await;
    let unusable = CreateError::CheckpointUnusable("another runsc".into());
    world.zone.script(ScriptedCreate::Fail(unusable));
    let answer = create_from(&world, snapshot["snapshotID"].as_str().unwrap()).await;
    assert_eq!((answer.status, &answer.body["error_code"]), (503, &json!("checkpoint_unusable")));
    for body in [r#"{"count":0}"#, r#"{"count":-1}"#, r#"{"count":101}"#, r#"{"timeout":0}"#] {
        let refused = world.ask(&format!("POST /sandboxes/{id}/fork"), body).await;
        assert_eq!(refused.status, 400, "{body}");
    }
    world.zone.fail_next_pause(PauseError::Ended);
    let ended = world.ask(&format!("POST /sandboxes/{id}/fork"), "").await;
    assert_eq!((ended.status, &ended.body["error_code"]), (409, &json!("ended_while_saving")));
    for route in ["snapshots", "fork"] {
        assert_eq!(world.ask(&format!("POST /sandboxes/{id}/{route}"), "").await.status, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_answers_for_each_copy() {
    let world = World::new().await;
    let id = world.create().await;
    let forked = world.ask(&format!("POST /sandboxes/{id}/fork"), "").await;
    assert_eq!(forked.status, 201);
    let copy = &forked.body.as_array().unwrap()[0]["sandbox"];
    let copy_id = copy["sandboxID"].as_str().unwrap();
    assert_ne!(copy_id, id);
    assert_eq!(world.end_at(copy_id).await, "2026-01-01T00:00:15Z");
    let source = world.ask(&format!("GET /sandboxes/{id}"), "").await.body;
    assert_eq!(copy["templateID"], source["templateID"]);
    assert!(copy["envdAccessToken"].is_string());
    assert_ne!(copy["envdAccessToken"], source["envdAccessToken"]);

    world.zone.script(ScriptedCreate::Fail(CreateError::DiskFull));
    let body = r#"{"count":3,"timeout":60}"#;
    let forked = world.ask(&format!("POST /sandboxes/{id}/fork"), body).await;
    let copies = forked.body.as_array().unwrap();
    assert_eq!((forked.status, copies.len()), (201, 3));
    let errors: Vec<_> = copies.iter().filter_map(|copy| copy.get("error")).collect();
    let told = json!({"code": 503, "message": "the disk is full", "error_code": "disk_full"});
    assert_eq!(errors, [&told]);
    assert_eq!(copies.iter().filter(|copy| copy["sandbox"].is_object()).count(), 2);
    assert_eq!(world.zone.running().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_paused_sandbox_has_snapshots_and_forks_and_stays_paused() {
    let world = World::new().await;
    let id = world.create().await;
    world.ask(&format!("POST /sandboxes/{id}/pause"), "").await;
    let taken = take(&world, &id, "").await;
    assert_eq!(world.ask(&format!("POST /sandboxes/{id}/fork"), "").await.status, 201);
    assert_eq!(world.ask(&format!("GET /sandboxes/{id}"), "").await.body["state"], "paused");
    let path = quoted(taken["snapshotID"].as_str().unwrap());
    assert_eq!(world.ask(&format!("DELETE /templates/{path}"), "").await.status, 204);
    let resumed = world.ask(&format!("POST /sandboxes/{id}/resume"), "").await;
    assert_eq!(resumed.status, 201, "{:?}", resumed.body);
}
