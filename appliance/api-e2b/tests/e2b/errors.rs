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
        (format!("POST /sandboxes/{id}/fork"), r#"{"count":101}"#, 400),
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
        format!("POST /sandboxes/{id}/pause"),
        format!("POST /sandboxes/{id}/resume"),
        format!("POST /sandboxes/{id}/fork"),
        format!("POST /sandboxes/{id}/snapshots"),
    ] {
        assert_eq!(world.ask_with(&line, "", &headers).await.status, 404, "{line}");
    }
    assert_eq!(world.ask_with("GET /v2/sandboxes", "", &headers).await.body, json!([]));
    assert_eq!(world.control.sandboxes.live().len(), 1);
    assert_eq!(world.control.sandboxes.live()[0].team, world.team);
}

#[tokio::test(start_paused = true)]
async fn the_description_is_sent_once_to_whoever_keeps_it() {
    let world = World::new().await;
    let asked = async |known: &[(&str, &str)]| world.ask_with("GET /openapi.json", "", known).await;
    let first = asked(&[]).await;
    assert_eq!((first.status, &first.body["openapi"]), (200, &json!("3.1.0")));
    let tag = first.headers["etag"].to_str().unwrap();
    for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".into()] {
        let again = asked(&[("If-None-Match", &known)]).await;
        assert_eq!((again.status, again.body), (304, json!(null)), "{known}");
        assert_eq!(again.headers["etag"].to_str().unwrap(), tag);
    }
    assert_eq!(asked(&[("If-None-Match", "\"other\"")]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn what_this_version_lacks_is_told_apart() {
    let world = World::new().await;
    {
        let line = "GET /teams";
        let answer = world.ask(line, "").await;
        let message = format!("this version does not offer {line}");
        assert_eq!(
            (answer.status, answer.body),
            (501, json!({"code": 501, "message": message, "error_code": "not_offered"}))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn scripts_of_any_origin_may_call() {
    let world = World::new().await;
    let origin = ("origin", "https://example.com");
    let first = [origin, ("access-control-request-method", "DELETE")];
    for path in ["/v2/sandboxes", "/sandboxes/any", "/sandboxes/any/timeout"] {
        let answer = world.ask_with(&format!("OPTIONS {path}"), "", &first).await;
        let allowed = |name: &str| answer.headers[name].to_str().unwrap();
        assert_eq!(answer.status, 204);
        assert_eq!(allowed("access-control-allow-origin"), "*");
        assert!(allowed("access-control-allow-methods").contains("DELETE"));
        assert_eq!(allowed("access-control-allow-headers"), "*, Authorization");
    }
    let refused = world.ask_with("GET /v2/sandboxes", "", &[origin]).await;
    let listed = world.ask_with_key("GET /v2/sandboxes", "", origin).await;
    assert_eq!((refused.status, listed.status), (401, 200));
    for answer in [refused, listed] {
        let origins: Vec<_> =
            answer.headers.get_all("access-control-allow-origin").iter().collect();
        assert_eq!(origins, ["*"]);
        let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("X-Next-Token"));
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
}
