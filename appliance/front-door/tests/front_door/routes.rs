//! Whose request it is.

use crate::{
    program::{AGENT, HTTP},
    world::{DOMAIN, World},
};

#[tokio::test]
async fn host_route_wins_over_any_control_path() {
    let world = World::new().await;
    let host = world.host(HTTP);
    for path in ["/sandboxes?a=%2F", "/health", "/proxy/x", "/admin/v1/zone"] {
        let headers = [("host", host.as_str()), ("e2b-sandbox-id", "another")];
        let seen = world.ask(&format!("GET {path}"), &headers).await.seen();
        assert_eq!((seen.port, seen.uri.as_str()), (HTTP, path));
    }
    assert_eq!(world.ask("GET /sandboxes", &[]).await.text(), "the list");
}

#[tokio::test]
async fn health_is_the_agents_with_the_header_and_ours_without() {
    let world = World::new().await;
    assert_eq!(world.ask("GET /health", &[]).await.text(), "the appliance");
    let seen = world.ask("GET /health", &[("e2b-sandbox-id", &world.id)]).await.seen();
    assert_eq!(seen.port, AGENT);
}

#[tokio::test]
async fn prefix_route_forwards_root_and_suffix() {
    let world = World::new().await;
    for (path, inside) in [
        ("/proxy", "/"),
        ("/proxy/", "/"),
        ("/proxy?a=b", "/?a=b"),
        ("/proxy/status/x", "/status/x"),
        ("/proxy/sandboxes", "/sandboxes"),
    ] {
        let seen = world.ask_port(&format!("GET {path}"), HTTP, &[]).await.seen();
        assert_eq!(seen.uri, inside, "{path}");
    }
}

#[tokio::test]
async fn header_route_on_unmatched_path() {
    let world = World::new().await;
    let route = [("x-agentenv-sandbox-id", world.id.as_str()), ("x-agentenv-target-port", "8080")];
    assert_eq!(world.ask("GET /any/path?x", &route).await.seen().uri, "/any/path?x");
    assert_eq!(world.ask("GET /sandboxes", &route).await.text(), "the list");
    let none = world.ask("GET /any/path", &[]).await;
    assert_eq!(none.status, 404);
    assert_eq!(none.json()["message"], "no route GET /any/path");
}

#[tokio::test]
async fn both_header_spellings() {
    let world = World::new().await;
    for (id, port) in [
        ("x-agentenv-sandbox-id", "x-agentenv-target-port"),
        ("e2b-sandbox-id", "e2b-sandbox-port"),
        ("x-agentenv-sandbox-id", "e2b-sandbox-port"),
    ] {
        let seen = world.ask("GET /proxy/a", &[(id, &world.id), (port, "8080")]).await.seen();
        assert_eq!((seen.port, seen.uri.as_str()), (HTTP, "/a"), "{id} {port}");
    }
}

#[tokio::test]
async fn missing_or_bad_header_is_400() {
    let world = World::new().await;
    let id = ("e2b-sandbox-id", world.id.as_str());
    for (path, headers, names) in [
        ("/proxy", vec![], "x-agentenv-sandbox-id"),
        ("/proxy", vec![id], "x-agentenv-target-port"),
        ("/proxy", vec![id, ("e2b-sandbox-port", "x")], "e2b-sandbox-port"),
        ("/proxy", vec![("e2b-sandbox-id", "no id"), ("e2b-sandbox-port", "1")], "id"),
        ("/sandboxes", vec![("e2b-sandbox-port", "1")], "e2b-sandbox-id"),
        ("/sandboxes", vec![id, ("e2b-sandbox-port", "65536")], "e2b-sandbox-port"),
        ("/nothing", vec![("x-agentenv-target-port", "1")], "x-agentenv-sandbox-id"),
    ] {
        let answer = world.ask(&format!("GET {path}"), &headers).await;
        assert_eq!(answer.status, 400, "{path} {headers:?}");
        assert!(answer.text().contains(names), "{path} {headers:?}: {}", answer.text());
    }
    let zero = format!("0-{}.{DOMAIN}", world.id);
    assert_eq!(world.ask("GET /", &[("host", &zero)]).await.status, 400);
}

#[tokio::test]
async fn percent_encoding_is_untouched() {
    let world = World::new().await;
    for path in ["/a%20b/%2F%2e%2E/%c3%a9", "/%", "/%zz", "/a;b=c/@:!$&'()*+,", "/{x}|^"] {
        for line in [format!("GET {path}"), format!("GET /proxy{path}")] {
            let seen = world.ask_port(&line, HTTP, &[]).await.seen();
            assert_eq!(seen.uri, path, "{line}");
        }
    }
}

#[tokio::test]
async fn repeated_slashes_are_untouched() {
    let world = World::new().await;
    for path in ["//", "//api", "/a//b///", "/./a/../b"] {
        for line in [format!("GET {path}"), format!("GET /proxy{path}")] {
            let seen = world.ask_port(&line, HTTP, &[]).await.seen();
            assert_eq!(seen.uri, path, "{line}");
        }
    }
}

#[tokio::test]
async fn query_is_untouched() {
    let world = World::new().await;
    for query in ["?", "?a=%2F&b", "?&&", "?a=b?c=d", "?x=%252525", "?a=+%20"] {
        let seen = world.ask_port(&format!("GET /q{query}"), HTTP, &[]).await.seen();
        assert_eq!(seen.uri, format!("/q{query}"));
    }
}

#[tokio::test]
async fn head_options_and_delete_bodies() {
    let world = World::new().await;
    let host = world.host(HTTP);
    for method in ["DELETE", "POST", "PUT", "PATCH", "OPTIONS", "GET", "PROPFIND"] {
        let line = format!("{method} /x");
        let seen = world.send(&line, &[("host", &host)], "the body").await.seen();
        assert_eq!((seen.method.as_str(), seen.body.as_str()), (method, "the body"));
        assert_eq!(seen.header("content-length"), ["8"], "{method}");
    }
    let options = world.ask("OPTIONS /x", &[("host", &host)]).await.seen();
    assert_eq!(options.body, "");
    let head = world.ask("HEAD /head", &[("host", &host)]).await;
    assert_eq!(head.headers["content-length"], "1234");
    assert!(head.body.is_empty());
}

#[tokio::test]
async fn a_signed_url_finds_its_sandbox() {
    use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
    use sha2::{Digest as _, Sha256};
    let world = World::new().await;
    let token = world.record.spec.agent_token.as_ref().unwrap().expose();
    let sign = |text: &str| {
        let text = STANDARD_NO_PAD.encode(Sha256::digest(text));
        format!("v1_{}", text.replace('+', "%2B").replace('/', "%2F"))
    };
    let signature = sign(&format!("a.txt:read:user:{token}"));
    let path = format!("/files?path=a.txt&username=user&signature={signature}");
    let seen = world.ask(&format!("GET {path}"), &[]).await.seen();
    assert_eq!((seen.port, seen.uri), (AGENT, path));

    let signature = sign(":write::another");
    let path = format!("/files?signature={signature}");
    let foreign = world.ask(&format!("POST {path}"), &[]).await;
    assert_eq!(
        (foreign.status, foreign.json()["message"].as_str()),
        (401, Some("invalid signature"))
    );
    assert_eq!(world.ask("GET /files?path=a.txt", &[]).await.status, 404);
}
