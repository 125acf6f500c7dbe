//! What breaks off inside breaks off outside, and the other way round: no broken answer looks
//! whole.

use std::time::Duration;

use http_body_util::BodyExt as _;
use sandboxo_control::Scope;
use sandboxo_front_door::FrontDoorConfig;
use sandboxo_model::NetworkAsked;
use sandboxo_zone_protocol::EndReason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    program::{DEAF, HTTP, OLD},
    world::{DOMAIN, World, host, read_until, within},
};

#[tokio::test]
async fn cut_upstream_cuts_the_client() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let mut answer = world.begin("GET /broken", &[("host", &host)], "").await;
    within(answer.body_mut().frame()).await.unwrap().unwrap();
    world.programs.go.notify_one();
    within(answer.into_body().collect()).await.unwrap_err();
}

/// Some clients take a connection that is closed for the end of the answer, in the middle of it.
#[tokio::test]
async fn a_cut_is_a_reset() {
    for path in ["/broken", "/ticks"] {
        let world = World::new().await;
        let mut client =
            world.raw(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", world.host(HTTP))).await;
        read_until(&mut client, "\r\n\r\n").await;
        match path {
            "/broken" => world.programs.go.notify_one(),
            _ => world.zone.end(world.record.id, EndReason::Crashed),
        }
        let rest = within(client.read_to_end(&mut Vec::new())).await;
        assert_eq!(rest.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset, "{path}");
    }
}

#[tokio::test]
async fn a_sandbox_that_ends_cuts_its_streams() {
    for port in [HTTP, OLD] {
        let world = World::new().await;
        let host = world.host(port);
        let mut answer = world.begin("GET /ticks", &[("host", &host)], "").await;
        within(answer.body_mut().frame()).await.unwrap().unwrap();
        world.zone.end(world.record.id, EndReason::Crashed);
        within(answer.into_body().collect()).await.unwrap_err();
        within(world.programs.ended.notified()).await;
    }
}

#[tokio::test]
async fn a_killed_sandbox_ends_its_streams_abruptly() {
    let world = World::new().await;
    let other = world.create(NetworkAsked::default()).await.id.label();
    let request = format!(
        "POST /echo HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000\r\n\r\nbefore",
        host(HTTP, &other)
    );
    let mut lives = world.raw(&request).await;
    read_until(&mut lives, "before").await;
    let killed = world.host(HTTP);
    let mut killed = world.begin("GET /ticks", &[("host", &killed)], "").await;
    within(killed.body_mut().frame()).await.unwrap().unwrap();
    world.control.sandboxes.kill(Scope::Operator, world.record.id).await.unwrap();
    within(killed.into_body().collect()).await.unwrap_err();
    // Its neighbor's go on.
    lives.write_all(b"after").await.unwrap();
    read_until(&mut lives, "after").await;
}

#[tokio::test]
async fn a_body_that_stands_still_is_cut() {
    let domains = sandboxo_front_door::Domains::new([DOMAIN]);
    let standstill = Duration::from_millis(200);
    let config = FrontDoorConfig { domains, standstill, ..FrontDoorConfig::default() };
    let world = World::with(config).await;
    let host = world.host(HTTP);
    let mut answer = world.begin("GET /ticks", &[("host", &host)], "").await;
    within(answer.body_mut().frame()).await.unwrap().unwrap();
    within(answer.into_body().collect()).await.unwrap_err();
    within(world.programs.ended.notified()).await;
}

#[tokio::test]
async fn a_killed_sandbox_was_not_found_by_the_request_that_waits() {
    let world = World::new().await;
    let port = DEAF.to_string();
    let route = [("e2b-sandbox-id", world.id.as_str()), ("e2b-sandbox-port", &port)];
    let (answer, killed) = within(async {
        tokio::join!(world.ask("GET /", &route), async {
            world.programs.taken.notified().await;
            world.control.sandboxes.kill(Scope::Operator, world.record.id).await
        })
    })
    .await;
    killed.unwrap();
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["message"], "The sandbox was not found");
}

#[tokio::test]
async fn a_sandbox_that_ends_closes_upgraded_connections() {
    let world = World::new().await;
    let mut client = world
        .raw(&format!(
            "GET /upgrade HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            world.host(HTTP)
        ))
        .await;
    read_until(&mut client, "\r\n\r\n").await;
    client.write_all(b"hello").await.unwrap();
    read_until(&mut client, "hello").await;
    world.zone.end(world.record.id, EndReason::Crashed);
    let mut rest = Vec::new();
    // A reset is an end as well.
    drop(within(client.read_to_end(&mut rest)).await);
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_inside() {
    for (port, path, comes) in
        [(HTTP, "/ticks", "tick 1"), (HTTP, "/upgrade", "101"), (OLD, "/", "part")]
    {
        let world = World::new().await;
        let mut client = world
            .raw(&format!(
                "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
                world.host(port)
            ))
            .await;
        read_until(&mut client, comes).await;
        drop(client);
        within(world.programs.ended.notified()).await;
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_noticed_inside() {
    let world = World::new().await;
    let request = format!(
        "POST /count HTTP/1.1\r\nhost: {}\r\ncontent-length: 100\r\n\r\nhalf",
        world.host(OLD)
    );
    let mut client = world.raw(&request).await;
    read_until(&mut client, "part").await;
    drop(client);
    within(world.programs.ended.notified()).await;
}

#[tokio::test]
async fn a_stop_cuts_what_is_open() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let mut answer = world.begin("GET /ticks", &[("host", &host)], "").await;
    within(answer.body_mut().frame()).await.unwrap().unwrap();
    world.tasks.stop().cancel();
    within(answer.into_body().collect()).await.unwrap_err();
}
