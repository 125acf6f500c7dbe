//! A pair of sockets, and an agent that does what its target says.

use std::{future::Future, io, os::fd::OwnedFd, time::Duration};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sandboxo_channel::{
    AgentEnd, Hello, Incoming, Refusal, Request, Response, Stream, Target, ZoneEnd, attach, serve,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

#[expect(clippy::disallowed_methods, reason = "a test ends with its runtime")]
pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(task: F) -> JoinHandle<F::Output> {
    tokio::spawn(task)
}

/// Zone's and agent's socket.
pub(crate) fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// What the agent of a test has seen, apart from streams.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "few, in a test")]
pub(crate) enum Seen {
    Hello,
    Request(Request),
    Detached,
    /// A stream of port `SILENT` ended, with this result of its last read.
    SilentEnded(Result<usize, io::ErrorKind>),
}

/// Sends back what it gets.
pub(crate) const ECHO: Target = Target::Agent;
/// Counts what it gets, and tells the count at the end.
pub(crate) const COUNT: Target = Target::Port(1);
/// Sends `FLOOD` zeros.
pub(crate) const ZEROS: Target = Target::Port(2);
pub(crate) const FLOOD: u64 = 4 * 1024 * 1024;
/// Reads and says nothing.
pub(crate) const SILENT: Target = Target::Port(3);
pub(crate) const CLOSED: Target = Target::Port(9);

pub(crate) fn agent(fd: OwnedFd) -> mpsc::UnboundedReceiver<Seen> {
    let (end, driver) = serve(fd).unwrap();
    spawn(driver);
    let (sender, seen) = mpsc::unbounded_channel();
    spawn(run(end, sender));
    seen
}

async fn run(mut end: AgentEnd, seen: mpsc::UnboundedSender<Seen>) {
    let mut claimed = None;
    loop {
        let what = match end.accept().await {
            Incoming::Hello(reply) => {
                reply.answer(&Hello { version: "test".into(), claimed: claimed.clone() });
                Seen::Hello
            }
            Incoming::Request(request, reply) => {
                match &request {
                    Request::Ping => reply.answer(&Response::Pong),
                    Request::WarmUp => reply.answer(&Response::Warm),
                    Request::Believe(_) => reply.answer(&Response::Believes),
                    Request::Notices => reply.answer(&Response::Notices(Vec::new())),
                    Request::Quiesce { .. } => reply.answer(&Response::Quiet),
                    Request::GoOn => reply.answer(&Response::GoesOn),
                    Request::Mount { .. } => reply.answer(&Response::Mounted),
                    Request::OpenInVolumes => reply.answer(&Response::OpenInVolumes(Vec::new())),
                    Request::Claim(claim) | Request::Restored { claim, .. } => {
                        claimed = Some(claim.sandbox_id.clone());
                        reply.answer(&Response::Claimed);
                    }
                }
                Seen::Request(request)
            }
            Incoming::Open(CLOSED, reply) => {
                reply.refuse(Refusal::PortClosed);
                continue;
            }
            Incoming::Open(target, reply) => {
                spawn(serve_stream(target, reply.accept(), seen.clone()));
                continue;
            }
            Incoming::Detached => Seen::Detached,
        };
        if seen.send(what).is_err() {
            return;
        }
    }
}

async fn serve_stream(target: Target, mut stream: Stream, seen: mpsc::UnboundedSender<Seen>) {
    match target {
        COUNT => {
            let mut count = 0_u64;
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                count += read as u64;
            }
            let told = stream.write_all(&count.to_be_bytes()).await;
            assert!(told.is_ok() && stream.shutdown().await.is_ok());
        }
        ZEROS => {
            let mut zeros = tokio::io::repeat(0).take(FLOOD);
            if tokio::io::copy(&mut zeros, &mut stream).await.is_ok() {
                stream.shutdown().await.unwrap();
            }
        }
        SILENT => {
            let mut last = Ok(1);
            while let Ok(1..) = last {
                last = stream.read(&mut [0; 1024]).await.map_err(|error| error.kind());
            }
            // The test may be over.
            drop(seen.send(Seen::SilentEnded(last)));
        }
        Target::Agent | Target::Port(_) => {
            let (mut read, mut write) = tokio::io::split(stream);
            if tokio::io::copy(&mut read, &mut write).await.is_ok() {
                write.shutdown().await.unwrap();
            }
        }
    }
}

/// A zone and the task of its driver.
pub(crate) fn zone(fd: OwnedFd, epoch: u64) -> (ZoneEnd, JoinHandle<()>) {
    let (end, driver) = attach(fd, epoch).unwrap();
    (end, spawn(driver))
}

pub(crate) async fn echo(zone: &ZoneEnd, words: &[u8]) {
    let mut stream = zone.open(ECHO).await.unwrap();
    stream.write_all(words).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    soon("the echo", stream.read_to_end(&mut back)).await.unwrap();
    assert_eq!(back, words);
}
