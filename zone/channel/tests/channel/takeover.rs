//! A zone dies, another takes the channel over; and what an agent does in between.

use std::{io, os::fd::AsFd};

use nix::sys::socket::{MsgFlags, send};
use sandboxo_channel::{
    ChannelError, Claim, Closed, DETACHED_MESSAGE, OpenError, Request, Response,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ECHO, SILENT, Seen, ZEROS, agent, echo, sockets, soon, zone};

fn claim() -> Request {
    Request::Claim(Claim {
        sandbox_id: "s1".into(),
        template_id: "base".into(),
        env: [("LONG".to_owned(), "x".repeat(100_000))].into(),
        hostname: "s1".into(),
        agent_token: None,
        user: "user".into(),
        workdir: None,
        nameservers: Vec::new(),
        pids: 100,
        authority: None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_zone_takes_over_in_the_middle_of_traffic() {
    let (zone_fd, agent_fd) = sockets();
    let mut seen = agent(agent_fd);
    let kept = zone_fd.as_fd().try_clone_to_owned().unwrap();
    let (first, driver) = zone(zone_fd, 1);
    assert_eq!(first.request(claim()).await, Ok(Response::Claimed));
    assert_eq!(seen.recv().await, Some(Seen::Hello));
    assert_eq!(seen.recv().await, Some(Seen::Request(claim())));
    let silent = first.open(SILENT).await.unwrap();
    let mut flood = first.open(ZEROS).await.unwrap();
    flood.read_exact(&mut vec![0; 100_000]).await.unwrap();
    driver.abort();
    soon("the driver's end", driver).await.unwrap_err();
    assert!(first.request(Request::Ping).await.is_err());
    assert_eq!(first.open(ECHO).await.unwrap_err(), OpenError::Lost);

    // Messages of the first zone's streams are still in the socket.
    let (second, _driver) = zone(kept, 2);
    let hello = soon("hello", second.hello()).await.unwrap();
    assert_eq!(hello.claimed.as_deref(), Some("s1"));
    let reset = Seen::SilentEnded(Err(io::ErrorKind::ConnectionReset));
    let next = [soon("hello", seen.recv()).await, soon("the reset", seen.recv()).await];
    assert!(next.contains(&Some(Seen::Hello)) && next.contains(&Some(reset)), "{next:?}");
    echo(&second, &vec![9; 300_000]).await;
    drop((silent, flood));
    echo(&second, b"old handles touch nothing").await;
}

#[tokio::test]
async fn detached_frees_the_agents_writers() {
    let (zone_fd, agent_fd) = sockets();
    let mut seen = agent(agent_fd);
    let kept = zone_fd.as_fd().try_clone_to_owned().unwrap();
    let (first, driver) = zone(zone_fd, 1);
    let _silent = first.open(SILENT).await.unwrap();
    let mut flood = first.open(ZEROS).await.unwrap();
    flood.read_exact(&mut [0]).await.unwrap();
    driver.abort();
    soon("the driver's end", driver).await.unwrap_err();
    assert_eq!(seen.recv().await, Some(Seen::Hello));
    send(std::os::fd::AsRawFd::as_raw_fd(&kept), &DETACHED_MESSAGE, MsgFlags::empty()).unwrap();
    let next = [soon("detached", seen.recv()).await, soon("the reset", seen.recv()).await];
    let reset = Seen::SilentEnded(Err(io::ErrorKind::ConnectionReset));
    assert!(next.contains(&Some(Seen::Detached)) && next.contains(&Some(reset)), "{next:?}");
    let (second, _driver) = zone(kept, 7);
    soon("hello", second.hello()).await.unwrap();
    echo(&second, b"again").await;
}

#[tokio::test]
async fn a_request_is_answered_once_or_lost() {
    let (zone_fd, agent_fd) = sockets();
    let kept = zone_fd.as_fd().try_clone_to_owned().unwrap();
    let (first, driver) = zone(zone_fd, 1);
    let asked = crate::support::spawn({
        let first = first.clone();
        async move { first.request(Request::Ping).await }
    });
    tokio::task::yield_now().await;
    driver.abort();
    assert_eq!(soon("the answer", asked).await.unwrap(), Err(ChannelError::Lost));
    soon("closed", first.closed()).await;
    assert_eq!(first.why_closed(), Some(Closed::Dropped));
    // The agent hears of both zones at once, and of the second one's requests only once.
    let (second, _driver) = zone(kept, 2);
    let second_asked = second.request(Request::Ping);
    let mut seen = agent(agent_fd);
    assert_eq!(soon("the answer", second_asked).await, Ok(Response::Pong));
    let mut pings = 0;
    while let Ok(what) = seen.try_recv() {
        pings += usize::from(what == Seen::Request(Request::Ping));
    }
    assert!((1..=2).contains(&pings), "{pings}");
}

#[tokio::test]
async fn an_agent_outlives_its_peer_and_a_zone_does_not() {
    let (zone_fd, agent_fd) = sockets();
    let number = std::os::fd::AsRawFd::as_raw_fd(&agent_fd);
    let mut seen = agent(agent_fd);
    let (first, driver) = zone(zone_fd, 1);
    first.hello().await.unwrap();
    assert_eq!(seen.recv().await, Some(Seen::Hello));
    drop(first);
    soon("the driver's end", driver).await.unwrap();
    assert_eq!(soon("detached", seen.recv()).await, Some(Seen::Detached));
    // A restored sandbox finds another socket under the same number.
    let (zone_fd, agent_fd) = sockets();
    replace(&agent_fd, number);
    drop(agent_fd);
    let (second, driver) = zone(zone_fd, 2);
    soon("hello", second.hello()).await.unwrap();
    echo(&second, b"restored").await;

    let mut stream = second.open(ECHO).await.unwrap();
    let (third, gone) = sockets();
    let (third, third_driver) = zone(third, 1);
    drop(gone);
    soon("closed", third.closed()).await;
    soon("the driver's end", third_driver).await.unwrap();
    assert_eq!(third.why_closed(), Some(Closed::PeerGone));
    driver.abort();
    soon("the driver's end", driver).await.unwrap_err();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(stream.write_all(b"x").await.is_err());
}

#[expect(unsafe_code, reason = "dup2 onto a number that somebody else owns is the point")]
fn replace(fd: &std::os::fd::OwnedFd, number: i32) {
    // SAFETY: the number stays open all the time; its owner reads whatever is there.
    let done = unsafe { nix::libc::dup2(std::os::fd::AsRawFd::as_raw_fd(fd), number) };
    assert_eq!(done, number);
}
