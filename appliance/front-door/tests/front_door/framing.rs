//! Forms of requests and answers that few clients and programs use, byte by byte.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    program::{HTTP, SCRIPTED},
    world::{World, read_until, within},
};

#[tokio::test]
async fn the_requests_own_authority_outranks_the_header() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let request = format!("GET http://{host}/a//b?c HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let answer = read_until(&mut world.raw(&request).await, "}").await;
    assert!(answer.contains(r#""uri":"/a//b?c""#), "{answer}");
    assert!(answer.contains(&format!(r#"["host","{host}"]"#)), "{answer}");
}

#[tokio::test]
async fn options_of_the_whole_server_pass() {
    let world = World::new().await;
    let request = format!("OPTIONS * HTTP/1.1\r\nhost: {}\r\n\r\n", world.host(HTTP));
    let answer = read_until(&mut world.raw(&request).await, "}").await;
    assert!(answer.contains(r#""method":"OPTIONS","uri":"*""#), "{answer}");
}

#[tokio::test]
async fn tunnels_are_refused() {
    let world = World::new().await;
    let by_host = format!("CONNECT {}:443 HTTP/1.1\r\n\r\n", world.host(HTTP));
    let by_header = format!(
        "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\ne2b-sandbox-id: {}\r\n\r\n",
        world.id
    );
    for request in [by_host.as_str(), &by_header, "CONNECT example.com:443 HTTP/1.1\r\n\r\n"] {
        let answer = read_until(&mut world.raw(request).await, "CONNECT is not").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn an_old_client_is_answered_until_the_connection_ends() {
    let world = World::new().await;
    let request = format!("GET /count HTTP/1.0\r\nhost: {}\r\n\r\n", world.host(HTTP));
    let mut answer = String::new();
    within(world.raw(&request).await.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\n0"), "{answer}");
    assert!(!answer.contains("chunked"), "{answer}");
}

#[tokio::test]
async fn two_framings_of_a_request_are_the_chunks_alone() {
    let world = World::new().await;
    for (before, after) in [("content-length: 4\r\n", ""), ("", "content-length: 4\r\n")] {
        let request = format!(
            "POST /count HTTP/1.1\r\nhost: {}\r\n{before}transfer-encoding: chunked\r\n{after}\r\n\
             a\r\n0123456789\r\n0\r\n\r\n",
            world.host(HTTP)
        );
        let answer = read_until(&mut world.raw(&request).await, "\r\n\r\n").await;
        assert!(answer.ends_with("\r\n\r\n10"), "{answer}");
    }
}

#[tokio::test]
async fn two_framings_of_an_answer_are_the_chunks_alone() {
    let world = World::new().await;
    for script in [
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
         a\r\n0123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n\
         a\r\n0123456789\r\n0\r\n\r\n",
    ] {
        world.programs.script(script);
        let answer = world.ask_port("GET /", SCRIPTED, &[]).await;
        assert_eq!((answer.status, answer.text()), (200, "0123456789"));
        assert!(!answer.headers.contains_key("content-length"), "{answer:?}");
    }
}

#[tokio::test]
async fn an_answer_may_come_before_the_upload_has_ended() {
    let world = World::new().await;
    world.programs.script("HTTP/1.1 413 Payload Too Large\r\ncontent-length: 5\r\n\r\nlarge");
    let request = format!(
        "POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000000000\r\n\r\nbegin",
        world.host(SCRIPTED)
    );
    let answer = read_until(&mut world.raw(&request).await, "\r\n\r\nlarge").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn what_comes_before_an_answer_is_not_the_answer() {
    let world = World::new().await;
    world.programs.script(
        "HTTP/1.1 103 Early Hints\r\nlink: </x.css>\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate",
    );
    let answer = world.ask_port("GET /", SCRIPTED, &[]).await;
    assert_eq!((answer.status, answer.text()), (200, "late"));
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_usable() {
    let world = World::new().await;
    let host = world.host(SCRIPTED);
    let mut client = world.raw("").await;
    for (method, script, comes) in [
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "204 No Content"),
        ("GET", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n", "304 Not Modified"),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", "content-length: 7"),
        ("DELETE", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "content-length: 0"),
    ] {
        world.programs.script(script);
        let request = format!("{method} / HTTP/1.1\r\nhost: {host}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = read_until(&mut client, "\r\n\r\n").await;
        assert!(answer.contains(comes) && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    // A refusal without its body as well.
    let request = "HEAD / HTTP/1.1\r\nhost: 8080-nosuch.sbx.test\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let refused = read_until(&mut client, "\r\n\r\n").await;
    assert!(refused.contains(" 404 ") && refused.ends_with("\r\n\r\n"), "{refused}");
    client.write_all(b"GET /sandboxes HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\nthe list").await;
}

#[tokio::test]
async fn header_values_need_not_be_ascii() {
    let world = World::new().await;
    world.programs.script("HTTP/1.1 200 OK\r\nx-name: Zo\u{eb}\r\ncontent-length: 0\r\n\r\n");
    let answer = world.ask_port("GET /", SCRIPTED, &[("x-name", "Zo\u{eb}")]).await;
    assert_eq!(answer.headers["x-name"].as_bytes(), "Zo\u{eb}".as_bytes());
    let seen = world.ask_port("GET /", HTTP, &[("x-name", "Zo\u{eb}")]).await.seen();
    assert_eq!(seen.header("x-name"), ["Zo\u{eb}"]);
}

#[tokio::test]
async fn heads_have_a_limit() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let many = "x: y\r\n".repeat(128);
    let large = format!("x: {}\r\n", "y".repeat(128 << 10));
    let long = "x".repeat(1 << 16);
    for (path, headers, status) in
        [("", many.as_str(), 431), ("", &large, 431), (&long, "", 414), ("x y", "", 400)]
    {
        let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
        let answer = read_until(&mut world.raw(&request).await, "\r\n\r\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// The head and the body of a small request may come one after the other.
#[tokio::test]
async fn a_refusal_before_the_body_has_come_does_not_cost_the_connection() {
    let world = World::new().await;
    let refused = "e2b-sandbox-id: sbx-loc-00000000000000000000\r\ncontent-length: 5\r\n\r\n";
    let head = format!("POST /process.Process/Start HTTP/1.1\r\nhost: localhost\r\n{refused}");
    let mut client = world.raw(&head).await;
    // The server sees the head alone: nothing else of this test runs it.
    tokio::task::yield_now().await;
    client.write_all(b"hello").await.unwrap();
    let answer = read_until(&mut client, "was not found").await;
    assert!(!answer.contains("connection: close"), "{answer}");
    client.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut client, "the appliance").await;
}

#[tokio::test]
async fn a_refusal_of_what_does_not_come_says_that_the_connection_ends() {
    let world = World::new().await;
    let refused = "host: localhost\r\ne2b-sandbox-id: sbx-loc-00000000000000000000\r\n";
    for rest in [
        "content-length: 5\r\n\r\n",
        "content-length: 5000000\r\n\r\nhello",
        "content-length: 5\r\nexpect: 100-continue\r\n\r\n",
    ] {
        let mut client = world.raw(&format!("POST / HTTP/1.1\r\n{refused}{rest}")).await;
        let answer = read_until(&mut client, "was not found").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        // A reset is an end as well.
        drop(within(client.read_to_end(&mut Vec::new())).await);
    }
}

/// A program that does not look at the request may have answered before the request's end comes.
#[tokio::test]
async fn an_answer_before_the_requests_end_does_not_cost_the_connection() {
    let world = World::new().await;
    let head = format!(
        "POST /no-upgrade HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        world.host(HTTP)
    );
    let mut client = world.raw(&head).await;
    read_until(&mut client, "not for you").await;
    within(world.programs.ended.notified()).await;
    client.write_all(b"0\r\n\r\n").await.unwrap();
    client.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut client, "the appliance").await;
}
