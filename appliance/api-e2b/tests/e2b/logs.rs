//! The log of a sandbox, from its creation to after its end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

fn messages(answer: &Value) -> Vec<&str> {
    let logs = answer["logs"].as_array().unwrap();
    logs.iter().map(|entry| entry["message"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_life_is_told_to_its_team_and_stays_told() {
    let world = World::new().await;
    let id = world.create().await;
    world.clock.advance(Duration::from_secs(1));
    let post = format!("POST /sandboxes/{id}/timeout");
    assert_eq!(world.ask(&post, r#"{"timeout":60}"#).await.status, 204);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.ask(&format!("DELETE /sandboxes/{id}"), "").await.status, 204);

    let life =
        ["sandbox created", "sandbox started", "timeout set", "kill asked for", "sandbox ended"];
    let get = format!("GET /v2/sandboxes/{id}/logs");
    let answer = world.ask(&get, "").await;
    assert_eq!((answer.status, messages(&answer.body)), (200, life.to_vec()));
    assert_eq!(
        answer.body["logs"][4],
        json!({
            "timestamp": "2026-01-01T00:00:02Z", "level": "info", "message": "sandbox ended",
            "fields": { "logger": "sandbox", "reason": "killed" },
        })
    );

    let second = 1_767_225_601_000_i64;
    for (query, expected) in [
        (format!("cursor={second}"), &life[2..]),
        ("limit=2".to_owned(), &life[..2]),
        ("search=timeout".to_owned(), &life[2..3]),
        ("level=warn".to_owned(), &[]),
    ] {
        let answer = world.ask(&format!("{get}?{query}"), "").await;
        assert_eq!(messages(&answer.body), expected, "{query}");
    }
    let back = world.ask(&format!("{get}?direction=backward&limit=1"), "").await;
    assert_eq!(messages(&back.body), ["sandbox ended"]);
    let back = world.ask(&format!("{get}?direction=backward&cursor={second}"), "").await;
    assert_eq!(messages(&back.body)[0], "timeout set");
    for bad in ["limit=1001", "limit=x", "cursor=x", "direction=up", "level=loud"] {
        assert_eq!(world.ask(&format!("{get}?{bad}"), "").await.status, 400, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_clients_get_lines_of_json() {
    let world = World::new().await;
    let id = world.create().await;
    let answer = world.ask(&format!("GET /sandboxes/{id}/logs?limit=1&start=0"), "").await;
    let logs = answer.body["logs"].as_array().unwrap();
    assert_eq!(logs.len(), 1);
    let line: Value = serde_json::from_str(logs[0]["line"].as_str().unwrap()).unwrap();
    assert_eq!(
        line,
        json!({
            "level": "info", "logger": "sandbox", "message": "sandbox created",
            "template": "base", "timeout_seconds": "300", "zone": "local1",
        })
    );
    assert_eq!(answer.body["logEntries"][0]["message"], "sandbox created");
}

#[tokio::test(start_paused = true)]
async fn a_log_is_its_teams_alone() {
    let world = World::new().await;
    let id = world.create().await;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let key = world.control.keys.create(other, "theirs").await.unwrap();
    for path in [format!("/sandboxes/{id}/logs"), format!("/v2/sandboxes/{id}/logs")] {
        let theirs = [("X-API-KEY", key.secret.expose())];
        assert_eq!(world.ask_with(&format!("GET {path}"), "", &theirs).await.status, 404);
    }
    let nobody = "GET /v2/sandboxes/sbx-loc-0123456789abcdefghjk/logs";
    assert_eq!(world.ask(nobody, "").await.status, 404);
}
