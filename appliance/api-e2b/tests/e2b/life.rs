//! Timeouts, connecting, killing, rules and metrics of a running one.

use std::time::Duration;

use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn timeouts_are_set_and_connect_only_extends() {
    let world = World::new().await;
    let id = world.create().await;
    let post = |path: &str, body: &'static str| {
        let line = format!("POST {}", path.replace("ID", &id));
        let world = &world;
        async move { world.ask(&line, body).await }
    };
    for (path, body, status, end_at) in [
        ("/sandboxes/ID/timeout", r#"{"timeout":60}"#, 204, "00:01:00"),
        ("/sandboxes/ID/refreshes", r#"{"duration":30}"#, 204, "00:01:00"),
        ("/sandboxes/ID/refreshes", r#"{"duration":90}"#, 204, "00:01:30"),
        ("/sandboxes/ID/refreshes", "", 204, "00:01:30"),
        ("/sandboxes/ID/connect", r#"{"timeout":10}"#, 200, "00:01:30"),
        ("/v2/sandboxes/ID/connect", r#"{"timeout":120}"#, 200, "00:02:00"),
        ("/v2/sandboxes/ID/connect", "{}", 200, "00:05:00"),
        ("/sandboxes/ID/timeout", r#"{"timeout":5}"#, 204, "00:00:05"),
        ("/sandboxes/ID/connect", "", 400, "00:00:05"),
        ("/sandboxes/ID/timeout", r#"{"timeout":-1}"#, 400, "00:00:05"),
        ("/sandboxes/ID/refreshes", r#"{"duration":3601}"#, 400, "00:00:05"),
    ] {
        let answer = post(path, body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.body);
        assert_eq!(world.end_at(&id).await, format!("2026-01-01T{end_at}Z"), "{path} {body}");
    }
    assert_eq!(post("/sandboxes/ID/timeout", r#"{"timeout":0}"#).await.status, 204);
    assert_eq!(post("/v2/sandboxes/ID/connect", "{}").await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn killing_twice_is_false_the_second_time() {
    let world = World::new().await;
    let id = world.create().await;
    let kill = format!("DELETE /sandboxes/{id}");
    let first = world.ask(&kill, "").await;
    assert_eq!((first.status, first.body), (204, json!(null)));
    let again = world.ask(&kill, "").await;
    let message = format!("sandbox '{id}' not found");
    assert_eq!((again.status, again.body), (404, json!({"code": 404, "message": message})));
    assert!(world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_expired_one_is_gone_at_once() {
    let world = World::new().await;
    let id = world.create().await;
    world.clock.advance(Duration::from_mins(5));
    assert_eq!(world.ask(&format!("GET /sandboxes/{id}"), "").await.status, 404);
    assert_eq!(world.ask("GET /v2/sandboxes", "").await.body, json!([]));
}

#[tokio::test(start_paused = true)]
async fn rules_are_replaced_whole() {
    let world = World::new().await;
    let id = world.create().await;
    let put = format!("PUT /sandboxes/{id}/network");
    let rules = |zone: &sandboxo_zone_protocol::fake::FakeZone| {
        let policy = zone.spec(id.parse().unwrap()).unwrap().network;
        let text =
            |nets: &[_]| nets.iter().map(|n: &ipnet::IpNet| n.to_string()).collect::<Vec<_>>();
        (text(&policy.allow), text(&policy.deny))
    };
    let body = r#"{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}"#;
    assert_eq!(world.ask(&put, body).await.status, 204);
    assert_eq!(rules(&world.zone).0, ["1.1.1.1/32"]);
    assert_eq!(world.ask(&put, r#"{"denyOut":["8.8.8.8"]}"#).await.status, 204);
    assert_eq!(rules(&world.zone), (vec![], vec!["8.8.8.8/32".to_owned()]));
    assert_eq!(world.ask(&put, r#"{"denyOut":["x"]}"#).await.status, 400);
    let by_host = json!({"a.b": [{"transform": {"headers": {"X-Key": "k"}}}]});
    let body = json!({"rules": by_host}).to_string();
    assert_eq!(world.ask(&put, &body).await.status, 204);
    let headers = || {
        let headers = world.zone.spec(id.parse().unwrap()).unwrap().network.headers;
        headers.into_iter().map(|(host, set)| (host.to_string(), set.len())).collect::<Vec<_>>()
    };
    assert_eq!(headers(), [("a.b".to_owned(), 1)]);
    let shown = world.ask(&format!("GET /sandboxes/{id}"), "").await.body;
    assert_eq!(shown["network"]["rules"], by_host);
    assert_eq!(world.ask(&put, r#"{"rules":{"a b":[{}]}}"#).await.status, 400);
    assert_eq!(headers().len(), 1);
    assert_eq!(world.ask(&put, "{}").await.status, 204);
    assert_eq!(rules(&world.zone), (vec![], vec![]));
    assert_eq!(headers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_comes_and_goes_and_its_password_is_shown_to_nobody() {
    let world = World::new().await;
    let id = world.create().await;
    let put = format!("PUT /sandboxes/{id}/network");
    let proxy = || world.zone.spec(id.parse().unwrap()).unwrap().network.proxy;
    let body = json!({"egressProxy": {
        "address": "Proxy.example.com:1080", "username": "me", "password": "hunter2",
        "tls": {"enabled": false},
    }});
    assert_eq!(world.ask(&put, &body.to_string()).await.status, 204);
    let told = proxy().unwrap();
    assert_eq!(told.address.to_string(), "proxy.example.com:1080");
    let login = told.login.unwrap();
    assert_eq!(login.username, "me");
    assert!(!login.password.as_str().is_empty() && !login.password.as_str().contains("hunter2"));
    let shown = world.ask(&format!("GET /sandboxes/{id}"), "").await.body;
    let expected = json!({"address": "Proxy.example.com:1080", "username": "me"});
    assert_eq!(shown["network"]["egressProxy"], expected);
    // Told once more, with other rules, it is the same proxy, and not one sealed anew.
    let before = proxy();
    let mut again = body.clone();
    again["denyOut"] = json!(["8.8.8.8"]);
    assert_eq!(world.ask(&put, &again.to_string()).await.status, 204);
    assert_eq!(proxy(), before);
    again["egressProxy"]["password"] = json!("hunter3");
    assert_eq!(world.ask(&put, &again.to_string()).await.status, 204);
    assert_ne!(proxy(), before);
    // What is wrong changes nothing.
    let inside = r#"{"egressProxy":{"address":"127.0.0.1:1080"}}"#;
    assert_eq!(world.ask(&put, inside).await.status, 400);
    assert!(proxy().is_some());
    assert_eq!(world.ask(&put, r#"{"egressProxy":null}"#).await.status, 204);
    assert_eq!(proxy(), None);
    let shown = world.ask(&format!("GET /sandboxes/{id}"), "").await.body;
    assert_eq!(shown["network"].get("egressProxy"), None);
}

#[tokio::test(start_paused = true)]
async fn metrics_have_every_field() {
    let world = World::new().await;
    let id = world.create().await;
    let get = format!("GET /sandboxes/{id}/metrics");
    let mut samples = world.ask(&get, "").await;
    for _ in 0..100 {
        if samples.body.as_array().is_some_and(|samples| !samples.is_empty()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        samples = world.ask(&get, "").await;
    }
    let sample = samples.body[0].as_object().unwrap();
    let fields: Vec<_> = sample.keys().map(String::as_str).collect();
    let expected =
        "cpuCount cpuUsedPct diskTotal diskUsed memCache memTotal memUsed timestamp timestampUnix";
    assert_eq!(fields.join(" "), expected);
    assert_eq!(world.ask(&format!("{get}?start=0&end=1"), "").await.body, json!([]));
    assert_eq!(world.ask(&format!("{get}?start=x"), "").await.status, 400);
    let latest = world.ask(&format!("GET /sandboxes/metrics?sandbox_ids={id},unknown"), "").await;
    assert_eq!(latest.body["sandboxes"].as_object().unwrap().len(), 1);
}
