//! The proxy of a zone: it ends the connections of sandboxes whose rules are by name, looks at
//! whom they want, and dials the very address they asked for, or has the sandbox's own proxy do
//! so, or dials nobody.
//!
//! It holds no rules of the kernel's: what must not get here is refused before, and what must not
//! be dialed after.

mod connection;
mod exchange;
mod intercept;
mod said;
mod socket;
mod streams;
mod way;

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use nix::sys::socket::{getsockopt, sockopt::OriginalDst};
use sandboxo_tasks::{Stop, Tasks};
use sandboxo_zone_protocol::Random;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use self::{connection::attend, socket::Socket};
use crate::{Guests, dns::Resolvers};

pub use self::intercept::Interception;
#[cfg(any(test, fuzzing))]
pub(crate) use self::said::{Said, head, hello};

/// Of all sandboxes: two descriptors each.
const AT_A_TIME: usize = 4096;

/// Makes a TCP socket from where sandboxes' connections go on.
pub type NewSocket = Arc<dyn Fn() -> BoxFuture<'static, io::Result<OwnedFd>> + Send + Sync>;

pub struct Proxy {
    listener: TcpListener,
    room: Arc<Semaphore>,
    ways: Arc<Ways>,
}

/// What a connection needs besides its sandbox.
struct Ways {
    guests: Guests,
    resolvers: Resolvers,
    random: Arc<dyn Random>,
    new_socket: NewSocket,
    interception: Interception,
    proxy_networks: Vec<Ipv4Net>,
}

impl Proxy {
    /// `listener`: made by a thread in the namespace where connections are led to it.
    /// `proxy_networks`: where sandboxes' own proxies may be beside the public internet; they are
    /// dialed from where this process is.
    pub fn new(
        listener: std::net::TcpListener,
        guests: Guests,
        resolvers: Resolvers,
        random: Arc<dyn Random>,
        new_socket: NewSocket,
        interception: Interception,
        proxy_networks: Vec<Ipv4Net>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let ways = Ways { guests, resolvers, random, new_socket, interception, proxy_networks };
        let ways = Arc::new(ways);
        Ok(Self { listener, room: Arc::new(Semaphore::new(AT_A_TIME)), ways })
    }

    /// Serves until it is told to stop.
    pub async fn run(self, tasks: Tasks, stop: Stop) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.take(stream, client, &tasks),
                Err(error) => {
                    tracing::warn!(%error, "accept a sandbox's connection");
                    // Out of descriptors: the next accept would fail at once, too.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, client: SocketAddr, tasks: &Tasks) {
        let wanted = wanted(&stream);
        let (socket, ending) = Socket::new(stream);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return tracing::debug!(%client, %error, "nobody led it here"),
        };
        let Some(guest) = self.ways.guests.find_by(client.ip()) else { return };
        let room = (self.room.clone().try_acquire_owned(), guest.room.clone().try_acquire_owned());
        let (Ok(of_all), Ok(of_one)) = room else {
            return tracing::debug!(%client, "too many connections by name");
        };
        let ways = self.ways.clone();
        tasks.spawn("connection by name", |stop| async move {
            let _room = (of_all, of_one);
            tokio::select! {
                () = stop.cancelled() => {}
                ended = attend(socket, wanted, &guest, &ways) => match ended {
                    Ok(()) => ending.well(),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(%client, %wanted, error, "a connection by name");
                    }
                }
            }
        });
    }
}

/// Whom it was meant for before it was led here.
fn wanted(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let led = getsockopt(stream, OriginalDst)?;
    let wanted =
        SocketAddrV4::new(u32::from_be(led.sin_addr.s_addr).into(), u16::from_be(led.sin_port));
    if stream.local_addr()?.ip() == IpAddr::V4(*wanted.ip()) {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(wanted)
}
