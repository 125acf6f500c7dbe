//! Every answer has the error shape, whoever refuses.

use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn without_a_key_nothing_is_told() {
    let world = World::new().await;
    let id = world.create().await;
    for headers in [&[][..], &[("X-API-KEY", "e2b_0000")][..], &[("X-API-KEY", "")][..]] {
        for line in ["GET /v2/sandboxes", "POST /v2/sandboxes", &format!("GET /sandboxes/{id}")] {
            let answer = world.ask_with(line, "", headers).await;
            assert_eq!((answer.status, &answer.body["code"]), (401, &json!(401)), "{line}");
        }
    }
    assert_eq!(world.ask_with("GET /health", "", &[]).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn refusals_have_one_shape() {
    let world = World::new().await;
    let id = world.create().await;
    let large = format!(r#"{{"templateID":"{}"}}"#, "x".repeat(2 << 20));
    for (line, body, status) in [
        ("GET /nowhere".to_owned(), "", 404),
        ("GET /sandboxes/nonexistingsandbox".to_owned(), "", 404),
        ("DELETE /sandboxes/sbx-loc-0123456789abcdefghjk".to_owned(), "", 404),
        ("DELETE /sandboxes/a%FFb".to_owned(), "", 404),
        ("PATCH /sandboxes".to_owned(), "", 405),
        ("POST /v2/sandboxes".to_owned(), "{", 400),
        ("POST /v2/sandboxes".to_owned(), large.as_str(), 413),
        (format!("POST /sandboxes/{id}/pause"), "{}", 501),
    ] {
        let answer = world.ask(&line, body).await;
        assert_eq!((answer.status, &answer.body["code"]), (status, &json!(status)), "{line}");
        assert!(answer.body["message"].is_string(), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_team_finds_nothing() {
    let world = World::new().await;
    let id = world.create().await;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let key = world.control.keys.create(other, "theirs").await.unwrap();
    let headers = [("X-API-KEY", key.secret.expose())];
    for line in [
        format!("GET /sandboxes/{id}"),
        format!("DELETE /sandboxes/{id}"),
        format!("GET /sandboxes/{id}/metrics"),
        format!("PUT /sandboxes/{id}/network"),
        format!("POST /v2/sandboxes/{id}/connect"),
    ] {
        assert_eq!(world.ask_with(&line, "", &headers).await.status, 404, "{line}");
    }
    assert_eq!(world.ask_with("GET /v2/sandboxes", "", &headers).await.body, json!([]));
    assert_eq!(world.control.sandboxes.live().len(), 1);
    assert_eq!(world.control.sandboxes.live()[0].team, world.team);
}
