//! Bodies move as they come, in both directions.

use http_body_util::BodyExt as _;
use sandboxo_model::NetworkAsked;
use tokio::io::AsyncWriteExt as _;

use crate::{
    program::{HASTY, HTTP, SILENT},
    world::{World, host, read_until, within},
};

#[tokio::test]
async fn sse_is_not_buffered() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let mut answer = world.begin("GET /ticks", &[("host", &host)], "").await;
    let first = within(answer.body_mut().frame()).await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "tick 1\n");
    // Only now is there a second.
    world.programs.go.notify_one();
    let rest = within(answer.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(rest, "tick 2\n");
}

#[tokio::test]
async fn a_large_answer_passes() {
    let world = World::new().await;
    let answer = within(world.ask_port("GET /large", HTTP, &[])).await;
    assert_eq!(answer.body.len(), 4 << 20);
    assert_eq!(answer.headers["content-length"], (4 << 20).to_string().as_str());
}

#[tokio::test]
async fn an_upload_of_unknown_length_passes() {
    let world = World::new().await;
    let head = format!(
        "POST /count HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\
         expect: 100-continue\r\n\r\n",
        world.host(HTTP)
    );
    let mut client = world.raw(&head).await;
    read_until(&mut client, "100 Continue\r\n\r\n").await;
    for _ in 0..64 {
        let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        within(client.write_all(piece.as_bytes())).await.unwrap();
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = read_until(&mut client, "\r\n\r\n4194304").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// A program that refuses an upload reads none of it.
#[tokio::test]
async fn an_answer_is_heard_though_the_request_could_not_be_said_to_its_end() {
    let world = World::new().await;
    let reason = "no room ".repeat(5000);
    let length = reason.len();
    let answer = format!("HTTP/1.1 507 Full\r\ncontent-length: {length}\r\n\r\n{reason}");
    world.programs.script(answer.leak());
    // More than a stream takes unread, and less than the door reads of a refused request.
    let upload = "x".repeat(200 << 10);
    for _again in 0..8 {
        let host = world.host(HASTY);
        let answer = within(world.send("POST /files", &[("host", &host)], &upload)).await;
        assert_eq!((answer.status, answer.text() == reason), (507, true));
    }
    // One that closes without a word has still not answered.
    let host = world.host(SILENT);
    let answer = within(world.send("POST /files", &[("host", &host)], &upload)).await;
    assert_eq!(answer.status, 502, "{answer:?}");
}

/// Many clients say all that they have to say before they listen.
#[tokio::test]
async fn an_answer_that_comes_early_is_heard_behind_a_large_upload() {
    let world = World::new().await;
    world.programs.script("HTTP/1.1 507 Full\r\ncontent-length: 7\r\n\r\nno room");
    for _again in 0..8 {
        let head = format!(
            "POST /files HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            world.host(HASTY),
            64 << 20
        );
        let mut client = world.raw(&head).await;
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            within(client.write_all(&piece)).await.unwrap();
        }
        let answer = read_until(&mut client, "no room").await;
        assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
    }
}

#[tokio::test]
async fn large_upload_is_streamed() {
    let world = World::new().await;
    let mut client = world
        .raw(&format!(
            "POST /echo HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            world.host(HTTP),
            10_u64 << 30
        ))
        .await;
    // Each piece is back before the next one is sent, and the last is never sent.
    for piece in ["the first piece", "the second piece", "the third piece"] {
        client.write_all(piece.as_bytes()).await.unwrap();
        read_until(&mut client, piece).await;
    }
}

#[tokio::test]
async fn keep_alive_connections_mix_hosts() {
    let world = World::new().await;
    let other = world.create(NetworkAsked::default()).await.id.label();
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\n{more}\r\n\r\n");
    let of = |id: &str| format!("host: {}", host(HTTP, id));
    let mut client = world.raw("").await;
    for (request, comes) in [
        (get("/one", &of(&world.id)), host(HTTP, &world.id)),
        (get("/sandboxes", "host: localhost"), "\r\n\r\nthe list".to_owned()),
        (get("/two", &of(&other)), host(HTTP, &other)),
        (
            get("/health", &format!("host: localhost\r\ne2b-sandbox-id: {other}")),
            "\"/health\"".into(),
        ),
        (get("/health", "host: localhost"), "\r\n\r\nthe appliance".to_owned()),
        (get("/x", "host: 8080-nosuch.sbx.test"), "sandbox not found".to_owned()),
        (get("/three", &of(&world.id)), host(HTTP, &world.id)),
    ] {
        client.write_all(request.as_bytes()).await.unwrap();
        read_until(&mut client, &comes).await;
    }
}
