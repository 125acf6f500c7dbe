//! Connections to programs in the sandbox, wherever they listen.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use nix::ifaddrs::getifaddrs;
use sandboxo_channel::{OpenReply, Refusal};
use tokio::{io::copy_bidirectional_with_sizes, net::TcpStream, time::timeout};

/// Inside one kernel a connection is made or refused at once, unless a queue is full.
const PATIENCE: Duration = Duration::from_secs(5);
const BUFFER: usize = 32 * 1024;

/// Refuses at once where nothing listens: whoever asked decides whether to try again.
pub(crate) async fn carry(port: u16, reply: OpenReply) {
    let Some(mut inside) = dial(port).await else {
        reply.refuse(Refusal::PortClosed);
        return;
    };
    let mut outside = reply.accept();
    let copied = copy_bidirectional_with_sizes(&mut outside, &mut inside, BUFFER, BUFFER).await;
    if copied.is_err() {
        // One side broke off; dropping both tells the other.
    }
}

async fn dial(port: u16) -> Option<TcpStream> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    for address in loopback {
        if let Some(stream) = connect(address, port).await {
            return Some(stream);
        }
    }
    // Only now: asking for addresses costs more than both.
    for address in own_addresses() {
        if let Some(stream) = connect(address, port).await {
            return Some(stream);
        }
    }
    None
}

async fn connect(address: IpAddr, port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect(SocketAddr::new(address, port));
    let stream = timeout(PATIENCE, stream).await.ok()?.ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let mut found: Vec<IpAddr> = Vec::new();
    for interface in interfaces {
        let Some(address) = interface.address else { continue };
        let address = address
            .as_sockaddr_in()
            .map(|v4| IpAddr::V4(v4.ip()))
            .or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())));
        // A link-local address means nothing without its interface.
        let usable = |address: &IpAddr| match address {
            IpAddr::V4(v4) => !v4.is_loopback(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        };
        if let Some(address) = address.filter(usable)
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}
