//! What a program sees of a request's headers, and a client of an answer's.

use sandboxo_control::Scope;
use sandboxo_model::NetworkAsked;

use crate::{
    program::{AGENT, HTTP},
    world::{OPERATOR, World},
};

#[tokio::test]
async fn routing_headers_are_stripped() {
    let world = World::new().await;
    let more = [
        ("x-agentenv-sandbox-id", "a"),
        ("x-agentenv-target-port", "b"),
        ("x-sandboxo-route", "kind=instance"),
        ("x-access-token", "the agent's"),
        ("x-kept", "1"),
    ];
    let seen = world.ask_port("GET /", HTTP, &more).await.seen();
    assert_eq!(seen.header("x-kept"), ["1"]);
    let others = seen.headers.iter().filter(|(name, _)| {
        ["e2b-", "x-agentenv-", "x-sandboxo-", "x-access-"].iter().any(|it| name.starts_with(it))
    });
    assert_eq!(others.count(), 0, "{seen:?}");
    let agent = world.ask_port("GET /", AGENT, &more).await.seen();
    assert_eq!(agent.header("x-access-token"), ["the agent's"]);
}

#[tokio::test]
async fn platform_key_is_stripped_by_value() {
    let world = World::new().await;
    let operator = format!("Bearer {OPERATOR}");
    for port in [HTTP, AGENT] {
        for (header, ours) in [("x-api-key", &world.key), ("authorization", &operator)] {
            let seen = world.ask_port("GET /", port, &[(header, ours)]).await.seen();
            assert!(seen.header(header).is_empty(), "{port}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn other_api_key_headers_pass() {
    let world = World::new().await;
    let longer = format!("{}0", world.key);
    let basic = format!("Basic {OPERATOR}");
    for (header, theirs) in [
        ("x-api-key", "of the application"),
        ("x-api-key", longer.as_str()),
        ("x-other-key", world.key.as_str()),
        ("authorization", "Bearer of the application"),
        ("authorization", basic.as_str()),
    ] {
        let seen = world.ask_port("GET /", HTTP, &[(header, theirs)]).await.seen();
        assert_eq!(seen.header(header), [theirs]);
    }
}

#[tokio::test]
async fn a_revoked_key_is_the_platforms_no_more() {
    let world = World::new().await;
    let key = world.control.keys.list(Scope::Operator)[0].id;
    world.control.keys.revoke(Scope::Operator, key).await.unwrap();
    let seen = world.ask_port("GET /", HTTP, &[("x-api-key", &world.key)]).await.seen();
    assert_eq!(seen.header("x-api-key"), [world.key.as_str()]);
}

#[tokio::test]
async fn connection_nominated_headers() {
    let world = World::new().await;
    let more = [
        ("connection", "X-One, x-two"),
        ("connection", "content-length, host, e2b-sandbox-id"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("x-three", "3"),
    ];
    // What the door itself goes by can't be nominated away.
    let host = world.host(HTTP);
    let headers = [&[("host", host.as_str())], &more[..]].concat();
    let seen = world.send("POST /", &headers, "the body").await.seen();
    assert_eq!((seen.port, seen.body.as_str()), (HTTP, "the body"));
    assert_eq!(seen.header("host"), [host.as_str()]);
    assert_eq!(seen.header("x-three"), ["3"]);
    for name in ["x-one", "x-two", "connection"] {
        assert!(seen.header(name).is_empty(), "{name}: {seen:?}");
    }
}

#[tokio::test]
async fn traffic_token_is_checked_then_stripped() {
    let world = World::new().await;
    let private = NetworkAsked { allow_public_traffic: Some(false), ..NetworkAsked::default() };
    let record = world.create(private).await;
    let id = record.id.label();
    let token = record.ingress.traffic_token.as_ref().unwrap().expose();
    let route = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    let with = |token| [&route[..], &[("e2b-traffic-access-token", token)]].concat();

    for headers in [route.to_vec(), with("wrong")] {
        let refused = world.ask("GET /", &headers).await;
        assert_eq!(refused.status, 403, "{headers:?}");
        assert_eq!(refused.json()["sandboxId"], id);
        assert_eq!(refused.json()["code"], 403);
    }
    let seen = world.ask("GET /", &with(token)).await.seen();
    assert!(seen.header("e2b-traffic-access-token").is_empty());
    // The agent has its own.
    assert_eq!(world.ask("GET /health", &route[..1]).await.seen().port, AGENT);
    // A key of the platform opens nothing.
    let keyed = [&route[..], &[("x-api-key", &world.key)]].concat();
    assert_eq!(world.ask("GET /", &keyed).await.status, 403);
}

#[tokio::test]
async fn hop_by_hop_both_ways() {
    let world = World::new().await;
    let more = [
        ("connection", "close, x-mine"),
        ("x-mine", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic x"),
        ("keep-alive", "timeout=1"),
        ("upgrade", "h2c"),
    ];
    let seen = world.ask_port("GET /", HTTP, &more).await.seen();
    for (name, _) in more {
        assert!(seen.header(name).is_empty(), "{name}: {seen:?}");
    }

    let answer = world.ask_port("GET /hops", HTTP, &[]).await;
    assert_eq!(answer.status, 307);
    assert_eq!(answer.headers["location"], "/elsewhere?a=%2F");
    assert_eq!(answer.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    for name in ["connection", "x-private", "keep-alive", "proxy-authenticate"] {
        assert!(!answer.headers.contains_key(name), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn cors_is_the_programs_own() {
    let world = World::new().await;
    let answer = world.ask_port("GET /hops", HTTP, &[("origin", "https://app.test")]).await;
    let origins: Vec<_> = answer.headers.get_all("access-control-allow-origin").iter().collect();
    assert_eq!(origins, ["https://app.test"]);
}

#[tokio::test]
async fn forwarded_headers_are_set() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let headers = [("host", host.as_str()), ("x-forwarded-for", "6.6.6.6"), ("forwarded", "x")];
    let seen = world.ask("PUT /a%20b?c=d", &headers).await.seen();
    for (name, value) in [
        ("host", host.as_str()),
        ("x-forwarded-host", &host),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-method", "PUT"),
        ("x-forwarded-uri", "/a%20b?c=d"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
    ] {
        assert_eq!(seen.header(name), [value], "{name}");
    }
    assert!(seen.header("forwarded").is_empty());
}

#[tokio::test]
async fn mask_request_host() {
    let world = World::new().await;
    let network = NetworkAsked {
        mask_request_host: Some("localhost:${PORT}".into()),
        ..NetworkAsked::default()
    };
    let id = world.create(network).await.id.label();
    let host = format!("{HTTP}-{id}.sbx.test");
    let seen = world.ask("GET /", &[("host", &host)]).await.seen();
    assert_eq!(seen.header("host"), ["localhost:8080"]);
    assert_eq!(seen.header("x-forwarded-host"), [host.as_str()]);
    let agent = format!("{AGENT}-{id}.sbx.test");
    assert_eq!(world.ask("GET /", &[("host", &agent)]).await.seen().header("host"), [agent]);
}
