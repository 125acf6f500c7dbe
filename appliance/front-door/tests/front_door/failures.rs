//! Why not, in words that clients read.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use futures_util::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use sandboxo_front_door::FrontDoorConfig;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    program::{AGENT, BUSY, CLOSED, DEAF, GARBAGE, HTTP, LATE, LOST, SCRIPTED, SILENT},
    world::{DOMAIN, World, within},
};

#[tokio::test]
async fn a_closed_port_is_502_with_the_sentence() {
    let world = World::new().await;
    let begin = Instant::now();
    let answer = world.ask_port("GET /", CLOSED, &[]).await;
    let took = begin.elapsed();
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.json(),
        json!({
            "sandboxId": world.id,
            "message": "The sandbox is running but port is not open",
            "port": CLOSED,
            "code": 502,
        })
    );
    // It was tried for a second.
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_port_that_opens_late_is_reached() {
    let world = World::new().await;
    assert_eq!(world.ask_port("GET /", LATE, &[]).await.seen().port, LATE);
}

#[tokio::test]
async fn what_programs_do_wrong() {
    let domains = sandboxo_front_door::Domains::default();
    let answer_timeout = Duration::from_millis(300);
    let config = FrontDoorConfig { domains, answer_timeout, ..FrontDoorConfig::default() };
    let world = World::with(config).await;
    for (port, status, part) in [
        (SILENT, 502, "without an answer"),
        (GARBAGE, 502, "not HTTP"),
        (DEAF, 504, "did not answer in time"),
        (BUSY, 429, "Too many connections"),
        (LOST, 502, "does not answer"),
    ] {
        let answer = world.ask_port("GET /", port, &[]).await;
        assert_eq!(answer.status, status, "{port}: {answer:?}");
        assert!(answer.text().contains(part), "{port}: {answer:?}");
        assert_eq!(answer.headers.contains_key("retry-after"), status == 429, "{port}");
        assert_eq!(answer.json()["code"], status, "{port}");
    }
}

#[tokio::test]
async fn busy_is_503() {
    let domains = sandboxo_front_door::Domains::new([DOMAIN]);
    let config = FrontDoorConfig { domains, max_requests: 1, ..FrontDoorConfig::default() };
    let world = World::with(config).await;
    let host = world.host(HTTP);
    for goes_on in [true, false] {
        let open = world.begin("GET /ticks", &[("host", &host)], "").await;
        let refused = world.ask_port("GET /", HTTP, &[]).await;
        assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
        assert_eq!(refused.json()["code"], 503);
        // The control plane is not a sandbox's.
        assert_eq!(world.ask("GET /health", &[]).await.text(), "the appliance");
        if goes_on {
            world.programs.go.notify_one();
            within(open.into_body().collect()).await.unwrap();
        } else {
            drop(open);
        }
        // The seat is given back when the body has ended, whoever ended it.
        within(async {
            while world.ask_port("GET /", HTTP, &[]).await.status != 200 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    // Refusals take no seat.
    for _ in 0..3 {
        assert_eq!(world.ask_port("GET /", LOST, &[]).await.status, 502);
    }
    world.ask_port("GET /", HTTP, &[]).await.seen();
}

#[tokio::test(start_paused = true)]
async fn slow_upload_lives_while_it_moves() {
    let answer_timeout = Duration::from_secs(10);
    let world = World::with(FrontDoorConfig { answer_timeout, ..FrontDoorConfig::default() }).await;
    // For each piece the seconds before it.
    for (pauses, status) in [([9; 20], 200), ([11; 20], 504)] {
        let pieces = futures_util::stream::iter(pauses).then(|pause| async move {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            Ok::<_, Infallible>("piece")
        });
        let request = Request::post("/count")
            .header("e2b-sandbox-id", &world.id)
            .header("e2b-sandbox-port", HTTP)
            .body(Body::from_stream(pieces))
            .unwrap();
        let answer = world.site.answer(request).await;
        assert_eq!(answer.status(), status);
        if status == 200 {
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "100");
        }
    }
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_502() {
    let world = World::new().await;
    world
        .programs
        .script("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    let answer = world.ask_port("GET /", SCRIPTED, &[]).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("not HTTP"), "{answer:?}");
}

#[tokio::test]
async fn unknown_is_502_or_404_by_the_way_in() {
    let world = World::new().await;
    let gone = world.create(sandboxo_model::NetworkAsked::default()).await;
    world.control.sandboxes.kill(sandboxo_control::Scope::Operator, gone.id).await.unwrap();
    let label = gone.id.label();
    let header = |port| vec![("e2b-sandbox-id", label.as_str()), ("e2b-sandbox-port", port)];
    let prefix =
        vec![("x-agentenv-sandbox-id", label.as_str()), ("x-agentenv-target-port", "8080")];
    let agent = format!("{AGENT}-{label}.sbx.test");
    let port = format!("{HTTP}-{label}.sbx.test");
    let alone = format!("{label}.sbx.test");
    for (path, headers, status, message) in [
        ("/health", header("49983"), 502, "The sandbox was not found"),
        ("/x", header("8080"), 502, "The sandbox was not found"),
        ("/x", vec![("e2b-sandbox-id", "nonexistingsandbox")], 502, "The sandbox was not found"),
        ("/health", vec![("host", &agent)], 502, "The sandbox was not found"),
        ("/", vec![("host", &port)], 404, "sandbox not found"),
        ("/", vec![("host", "8080-nosuch.sbx.test")], 404, "sandbox not found"),
        ("/", vec![("host", &alone)], 404, "sandbox not found"),
        ("/", vec![("host", "app.sbx.test")], 404, "unknown app"),
        ("/proxy", prefix, 404, "sandbox not found"),
    ] {
        let answer = world.ask(&format!("GET {path}"), &headers).await;
        let told = (answer.status, answer.json()["message"].as_str().unwrap().to_owned());
        assert_eq!(told, (status, message.to_owned()), "{path} {headers:?}");
        assert_eq!(answer.json()["code"], status, "{path} {headers:?}");
    }
}

#[tokio::test]
async fn agent_only_routes_are_hidden() {
    let world = World::new().await;
    for path in ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"] {
        let hidden = world.ask_port(&format!("POST {path}?x"), AGENT, &[]).await;
        assert_eq!((hidden.status, hidden.json()["code"].as_u64()), (404, Some(404)), "{path}");
        assert_eq!(hidden.json()["path"], format!("{path}?x"));
    }
    // A program may have them.
    assert_eq!(world.ask_port("POST /init", HTTP, &[]).await.seen().uri, "/init");
}

#[tokio::test]
async fn browsers_get_a_page() {
    let world = World::new().await;
    let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101");
    let host = "8080-nosuch.sbx.test";
    let page = world.ask("GET /", &[browser, ("host", host), ("accept", "text/html")]).await;
    assert_eq!(
        (page.status, &page.headers["content-type"] == "text/html; charset=utf-8"),
        (404, true)
    );
    assert!(page.text().contains("sandbox not found"), "{}", page.text());
    let script = world.ask("GET /", &[browser, ("host", host), ("sec-fetch-dest", "empty")]).await;
    assert_eq!(script.json()["code"], 404);
}
