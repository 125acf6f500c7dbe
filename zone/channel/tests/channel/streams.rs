//! Streams: order, fairness, ends.

use std::{io, os::fd::AsRawFd};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send, setsockopt, sockopt},
};
use sandboxo_channel::{MAX_STREAMS, OpenError, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    CLOSED, COUNT, ECHO, FLOOD, SILENT, Seen, ZEROS, agent, echo, sockets, soon, spawn, zone,
};

#[tokio::test]
async fn greeting_request_and_echo() {
    let (zone_fd, agent_fd) = sockets();
    let mut seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    assert_eq!(soon("hello", zone.hello()).await.unwrap().version, "test");
    assert_eq!(zone.request(Request::Ping).await, Ok(Response::Pong));
    echo(&zone, b"words").await;
    assert_eq!(seen.recv().await, Some(Seen::Hello));
    assert_eq!(seen.recv().await, Some(Seen::Request(Request::Ping)));
}

#[tokio::test]
async fn a_socket_that_takes_only_short_messages_is_served() {
    let (zone_fd, agent_fd) = sockets();
    for end in [&zone_fd, &agent_fd] {
        // The kernel doubles it and keeps some for itself.
        setsockopt(end, sockopt::SndBuf, &(20 * 1024)).unwrap();
    }
    let long = send(zone_fd.as_raw_fd(), &vec![0; 100_000], MsgFlags::MSG_DONTWAIT);
    assert_eq!(long, Err(Errno::EMSGSIZE));
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    let mut stream = zone.open(COUNT).await.unwrap();
    soon("the write", stream.write_all(&vec![0; 1_000_000])).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(soon("the count", stream.read_u64()).await.unwrap(), 1_000_000);
    let mut all = Vec::new();
    let mut zeros = zone.open(ZEROS).await.unwrap();
    soon("the zeros", zeros.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all.len() as u64, FLOOD);
}

#[tokio::test]
async fn a_closed_port_is_told_apart() {
    let (zone_fd, agent_fd) = sockets();
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    assert_eq!(soon("refusal", zone.open(CLOSED)).await.unwrap_err(), OpenError::PortClosed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_mebibytes_through_one_stream() {
    const TOTAL: u64 = 64 * 1024 * 1024;
    let (zone_fd, agent_fd) = sockets();
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    let mut stream = zone.open(COUNT).await.unwrap();
    let sent = tokio::io::copy(&mut tokio::io::repeat(7).take(TOTAL), &mut stream).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(sent, TOTAL);
    assert_eq!(soon("the count", stream.read_u64()).await.unwrap(), TOTAL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_streams_keep_their_bytes_apart() {
    let (zone_fd, agent_fd) = sockets();
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    let mut all = Vec::new();
    for number in 0..100_u8 {
        let zone = zone.clone();
        all.push(spawn(async move {
            let stream = zone.open(ECHO).await.unwrap();
            let (mut read, mut write) = tokio::io::split(stream);
            let words: Vec<u8> =
                (0..300_000_u32).map(|at| number.wrapping_add(at.to_be_bytes()[2])).collect();
            let expected = words.clone();
            let writer = spawn(async move {
                for piece in words.chunks(997 + usize::from(number)) {
                    write.write_all(piece).await.unwrap();
                }
                write.shutdown().await.unwrap();
            });
            let mut back = Vec::new();
            read.read_to_end(&mut back).await.unwrap();
            writer.await.unwrap();
            assert!(back == expected, "stream {number} came back changed");
        }));
    }
    for one in all {
        soon("every echo", one).await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_stops_does_not_stop_others() {
    let (zone_fd, agent_fd) = sockets();
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    let mut stuck = zone.open(ZEROS).await.unwrap();
    // It sends, so its window is filling up while nobody reads.
    stuck.read_exact(&mut [1]).await.unwrap();
    let mut other = zone.open(ZEROS).await.unwrap();
    let mut all = Vec::new();
    soon("the other stream", other.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all.len() as u64, FLOOD);
    echo(&zone, b"still here").await;
    all.clear();
    soon("the rest of the first", stuck.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all.len() as u64, FLOOD - 1);
}

#[tokio::test]
async fn ends_are_told_as_they_happened() {
    let (zone_fd, agent_fd) = sockets();
    let mut seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    assert_eq!(seen.recv().await, Some(Seen::Hello));
    let stream = zone.open(SILENT).await.unwrap();
    drop(stream);
    let reset = Err(io::ErrorKind::ConnectionReset);
    assert_eq!(soon("the reset", seen.recv()).await, Some(Seen::SilentEnded(reset)));
    let mut stream = zone.open(SILENT).await.unwrap();
    stream.write_all(b"last words").await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    assert_eq!(soon("the end", seen.recv()).await, Some(Seen::SilentEnded(Ok(0))));
    // What was sent before a shutdown arrives, though the holder is gone.
    let mut stream = zone.open(COUNT).await.unwrap();
    stream.write_all(&vec![0; 500_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(soon("the count", stream.read_u64()).await.unwrap(), 500_000);
    assert!(stream.write_all(b"more").await.is_err());
}

#[tokio::test]
async fn streams_have_a_limit_and_make_room_when_dropped() {
    let (zone_fd, agent_fd) = sockets();
    let _seen = agent(agent_fd);
    let (zone, _driver) = zone(zone_fd, 1);
    let mut all = Vec::new();
    for _ in 0..MAX_STREAMS {
        all.push(soon("open", zone.open(SILENT)).await.unwrap());
    }
    assert_eq!(zone.open(SILENT).await.unwrap_err(), OpenError::TooMany);
    all.pop();
    soon("open again", zone.open(SILENT)).await.unwrap();
}

#[tokio::test]
async fn an_open_that_is_given_up_leaves_nothing() {
    let (zone_fd, agent_fd) = sockets();
    let (zone, _driver) = zone(zone_fd, 1);
    // Nobody answers yet.
    for _ in 0..MAX_STREAMS + 100 {
        let gave_up = tokio::select! {
            biased;
            _ = zone.open(SILENT) => false,
            () = std::future::ready(()) => true,
        };
        assert!(gave_up);
    }
    let _seen = agent(agent_fd);
    echo(&zone, b"and now").await;
}
