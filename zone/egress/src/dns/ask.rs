//! One question to the resolvers, each after the other has had its chance.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use sandboxo_zone_protocol::Random;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::{Instant, sleep, sleep_until},
};

use super::{
    Resolvers,
    message::{Failure, Query, Verdict, with_id},
};

/// How long one resolver has before the next is asked too.
const PATIENCE: Duration = Duration::from_secs(1);
/// Below the five seconds after which clients give up.
const DEADLINE: Duration = Duration::from_millis(4500);
/// A datagram may get lost on the way to the only resolver.
const FEWEST_ATTEMPTS: usize = 3;
const LARGEST: usize = 65_535;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// Always an answer: the first good one; else what the last resolver that answered had to say;
/// else that the server failed.
pub(super) async fn ask(
    query: &Query,
    transport: Transport,
    resolvers: &Resolvers,
    random: &dyn Random,
) -> Vec<u8> {
    let started = Instant::now();
    let order = resolvers.order(started);
    let attempts = order.len().max(FEWEST_ATTEMPTS);
    let mut to_ask = order.into_iter().cycle().take(attempts);
    let mut asked = FuturesUnordered::new();
    let mut answer = None;
    loop {
        let latest = to_ask.next();
        if let Some(resolver) = latest {
            asked.push(attempt(query, transport, resolver, random));
        }
        tokio::select! {
            // None: nobody is left to wait for.
            finished = asked.next() => match finished {
                Some((resolver, Ok((Verdict::Answer, bytes)))) => {
                    resolvers.answered(resolver);
                    return with_id(bytes, query.id());
                }
                Some((_, Ok((Verdict::TryAnother, bytes)))) => answer = Some(bytes),
                Some((resolver, Err(error))) => {
                    tracing::debug!(%resolver, %error, "a resolver did not answer");
                    resolvers.failed(resolver, Instant::now());
                }
                None => break,
            },
            slow = outlasts(latest) => resolvers.failed(slow, Instant::now()),
            () = sleep_until(started + DEADLINE) => break,
        }
    }
    answer.map_or_else(|| query.fail(Failure::Server), |bytes| with_id(bytes, query.id()))
}

/// Never, for nobody.
async fn outlasts(resolver: Option<SocketAddr>) -> SocketAddr {
    match resolver {
        Some(resolver) => {
            sleep(PATIENCE).await;
            resolver
        }
        None => std::future::pending().await,
    }
}

async fn attempt(
    query: &Query,
    transport: Transport,
    resolver: SocketAddr,
    random: &dyn Random,
) -> (SocketAddr, io::Result<(Verdict, Vec<u8>)>) {
    let result = match transport {
        Transport::Udp => by_datagram(query, resolver, random).await,
        Transport::Tcp => by_stream(query, resolver, random).await,
    };
    (resolver, result)
}

/// A socket of its own for each: the port is as hard to guess as the id.
async fn by_datagram(
    query: &Query,
    resolver: SocketAddr,
    random: &dyn Random,
) -> io::Result<(Verdict, Vec<u8>)> {
    let any = match resolver {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    let id = new_id(random);
    socket.send(&query.with_id(id)).await?;
    loop {
        let mut answer = Vec::with_capacity(LARGEST);
        socket.recv_buf(&mut answer).await?;
        // Anything else is a late answer or somebody who guesses.
        if let Some(verdict) = query.judge(id, &answer) {
            answer.shrink_to_fit();
            return Ok((verdict, answer));
        }
    }
}

async fn by_stream(
    query: &Query,
    resolver: SocketAddr,
    random: &dyn Random,
) -> io::Result<(Verdict, Vec<u8>)> {
    let mut stream = TcpStream::connect(resolver).await?;
    let id = new_id(random);
    write_framed(&mut stream, &query.with_id(id)).await?;
    let answer = read_framed(&mut stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let verdict = query.judge(id, &answer).ok_or(io::ErrorKind::InvalidData)?;
    Ok((verdict, answer))
}

fn new_id(random: &dyn Random) -> [u8; 2] {
    let mut id = [0; 2];
    random.fill(&mut id);
    id
}

/// `None`: the other side is done.
pub(super) async fn read_framed(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

pub(super) async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    // In one segment: some servers expect it.
    let mut framed = Vec::with_capacity(message.len() + 2);
    framed.extend(length.to_be_bytes());
    framed.extend(message);
    stream.write_all(&framed).await
}
