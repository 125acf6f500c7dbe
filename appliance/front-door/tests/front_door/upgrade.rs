//! Switches of protocols: from there on, bytes.

use std::time::Duration;

use sandboxo_front_door::{Domains, FrontDoorConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    program::{CLOSED, DEAF, HTTP},
    world::{DOMAIN, World, read_until, within},
};

pub(crate) fn ask(path: &str, host: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: chat.v2\r\n\r\n"
    )
}

#[tokio::test]
async fn websocket_subprotocol() {
    let world = World::new().await;
    let mut client = world.raw(&ask("/upgrade", &world.host(HTTP))).await;
    let head = read_until(&mut client, "\r\n\r\n").await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-protocol: chat.v2\r\n",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    for _ in 0..3 {
        client.write_all(b"\x81\x05hello").await.unwrap();
        let mut echo = [0; 7];
        within(client.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, b"\x81\x05hello");
    }
    // Half-closing passes as well.
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    within(client.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn websocket_rejection_passes_through() {
    let world = World::new().await;
    let mut client = world.raw(&ask("/no-upgrade", &world.host(HTTP))).await;
    let answer = read_until(&mut client, "not for you").await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
}

#[tokio::test]
async fn an_upgrade_to_nobody_is_502() {
    let world = World::new().await;
    let mut client = world.raw(&ask("/", &world.host(CLOSED))).await;
    let answer = read_until(&mut client, "port is not open").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn websocket_handshake_timeout_is_504() {
    let domains = Domains::new([DOMAIN]);
    let answer_timeout = Duration::from_millis(200);
    let config = FrontDoorConfig { domains, answer_timeout, ..FrontDoorConfig::default() };
    let world = World::with(config).await;
    let mut client = world.raw(&ask("/", &world.host(DEAF))).await;
    let answer = read_until(&mut client, "did not answer in time").await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
}

/// The control plane's router has seen it, and must not have touched the answer.
#[tokio::test]
async fn upgrades_and_heads_on_unmatched_paths_keep_their_form() {
    let world = World::new().await;
    let port = HTTP.to_string();
    let route = [("x-agentenv-sandbox-id", world.id.as_str()), ("x-agentenv-target-port", &port)];
    let head = world.ask("HEAD /ticks", &route).await;
    assert_eq!(head.headers["content-type"], "text/event-stream");
    assert!(!head.headers.contains_key("content-length"), "{head:?}");
    let upgrade = ask("/upgrade", "localhost").replace(
        "\r\n\r\n",
        &format!(
            "\r\nx-agentenv-sandbox-id: {}\r\nx-agentenv-target-port: {port}\r\n\r\n",
            world.id
        ),
    );
    let mut client = world.raw(&upgrade).await;
    let head = read_until(&mut client, "\r\n\r\n").await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && !head.contains("content-length"), "{head}");
    client.write_all(b"hello").await.unwrap();
    read_until(&mut client, "hello").await;
}
