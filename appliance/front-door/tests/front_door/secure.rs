//! Ports of programs that speak TLS, with a certificate that they have signed themselves.

use sandboxo_control::Control;
use sandboxo_model::NetworkAsked;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    program::{CLOSED, HTTP, SECURE},
    upgrade,
    world::{World, host, read_until, within},
};

async fn sandbox(world: &World, ports: &[u16]) -> String {
    let asked = NetworkAsked { https_ports: Some(ports.to_vec()), ..NetworkAsked::default() };
    world.create(asked).await.id.label()
}

#[tokio::test]
async fn a_program_that_insists_on_tls_is_reached() {
    let world = World::new().await;
    let id = sandbox(&world, &[1, SECURE]).await;
    let host = host(SECURE, &id);
    let answer = world.send("POST /path?a=b", &[("host", &host), ("x-a", "1")], "a body").await;
    assert_eq!(answer.status, 200);
    let seen = answer.seen();
    assert_eq!((seen.port, &*seen.uri, &*seen.body), (SECURE, "/path?a=b", "a body"));
    assert_eq!((seen.header("host"), seen.header("x-a")), (vec![&*host], vec!["1"]));
    // What the client spoke, which is not what the program is spoken to in.
    assert_eq!(seen.header("x-forwarded-proto"), ["http"]);

    let mut client = world.raw(&upgrade::ask("/upgrade", &host)).await;
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for _ in 0..3 {
        client.write_all(b"\x81\x05hello").await.unwrap();
        let mut echo = [0; 7];
        within(client.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, b"\x81\x05hello");
    }
}

#[tokio::test]
async fn a_port_that_does_not_speak_tls_is_told_from_one_that_is_closed() {
    let world = World::new().await;
    let id = sandbox(&world, &[HTTP, CLOSED]).await;
    for (port, says) in [(HTTP, "does not speak TLS"), (CLOSED, "port is not open")] {
        let answer = world.ask("GET /", &[("host", &host(port, &id))]).await;
        assert_eq!((answer.status, &answer.json()["port"]), (502, &port.into()));
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(says), "{message}");
    }
    // And the other way round: plain HTTP is nothing to it.
    let answer = world.ask("GET /", &[("host", &host(SECURE, &id))]).await;
    assert_eq!(answer.status, 502);
}

#[tokio::test]
async fn new_rules_leave_the_ports_as_they_are() {
    let world = World::new().await;
    let id = sandbox(&world, &[SECURE]).await;
    let Control { sandboxes, .. } = &world.control;
    let parsed = id.parse().unwrap();
    sandboxes.set_network(world.team, parsed, NetworkAsked::default(), None).await.unwrap();
    let answer = world.ask("GET /", &[("host", &host(SECURE, &id))]).await;
    assert_eq!(answer.status, 200);
}
