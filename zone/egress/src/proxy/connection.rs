//! One connection: what it says, what becomes of it.

use std::{io, net::SocketAddrV4, time::Duration};

use sandboxo_zone_protocol::HostName;
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::{
    Ways,
    exchange::exchange,
    said::{self, Said},
    socket::Socket,
};
use crate::{dns::addresses, guests::Guest, judge::Verdict};

const HTTP: u16 = 80;
const TLS: u16 = 443;

/// How long one may be silent about whom it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// To an address that the sandbox was told of no name for: nearly always a refusal.
const LITTLE_PATIENCE: Duration = Duration::from_secs(2);
/// As long as clients wait for a connect, most of them.
const DIAL: Duration = Duration::from_secs(10);
/// Of each direction: a segment's worth of a fast link, and small beside the kernel's own.
const BUFFER: usize = 32 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("refused: it is about {0:?}")]
    Refused(Option<HostName>),
    #[error("refused: the address is not one of {0}")]
    NotItsAddress(HostName),
    #[error("refused: it does not say whom it wants")]
    Unclear,
    #[error("its rules changed")]
    Cut,
    #[error("the other side is done")]
    Done,
    #[error("dial")]
    Dial(#[source] io::Error),
    #[error("pass on")]
    Pass(#[from] io::Error),
    #[error("HTTP")]
    Http(#[from] hyper::Error),
}

/// Dropped in the middle, both ends are closed.
pub(super) async fn attend(
    mut socket: Socket,
    wanted: SocketAddrV4,
    guest: &Guest,
    ways: &Ways,
) -> Result<(), Ended> {
    let ip = *wanted.ip();
    if guest.judge(ip, None) == Verdict::Allowed {
        let until = guest.until(|guest| guest.judge(ip, None) != Verdict::Allowed);
        return cut_when(until, splice(socket, wanted, ways)).await;
    }
    let patience = if guest.was_told_of(ip) { PATIENCE } else { LITTLE_PATIENCE };
    let look = timeout(patience, whom(&mut socket, wanted.port())).await;
    let name = look.map_err(|_silent| Ended::Unclear)??;
    let seat = Seat { wanted, guest, ways };
    seat.admit(name.as_ref()).await?;
    if wanted.port() == HTTP {
        return exchange(socket, name, &seat).await;
    }
    let until = seat.until_refused(|| name.clone());
    cut_when(until, splice(socket, wanted, ways)).await
}

/// A connection to one address, for whichever name.
pub(super) struct Seat<'a> {
    pub(super) wanted: SocketAddrV4,
    guest: &'a Guest,
    ways: &'a Ways,
}

impl Seat<'_> {
    /// Whether its sandbox may have that name at that address.
    pub(super) async fn admit(&self, name: Option<&HostName>) -> Result<(), Ended> {
        let ip = *self.wanted.ip();
        match (self.guest.judge(ip, name), name) {
            (Verdict::Allowed, _) => Ok(()),
            (Verdict::AllowedAsNamed, Some(name)) => {
                if self.guest.was_told(ip, name) {
                    return Ok(());
                }
                // It may have been told before it was paused, or before this process was there.
                let found = addresses(name, &self.ways.resolvers, &*self.ways.random).await;
                self.guest.note(name, &found);
                if found.contains(&ip) { Ok(()) } else { Err(Ended::NotItsAddress(name.clone())) }
            }
            (Verdict::AllowedAsNamed | Verdict::Refused, name) => {
                Err(Ended::Refused(name.cloned()))
            }
        }
    }

    /// `name`: the one it is about at that moment.
    pub(super) async fn until_refused(&self, name: impl Fn() -> Option<HostName>) {
        let ip = *self.wanted.ip();
        self.guest.until(|guest| guest.judge(ip, name().as_ref()) == Verdict::Refused).await;
    }

    pub(super) async fn dial(&self) -> Result<TcpStream, Ended> {
        dial(self.wanted, self.ways).await
    }
}

pub(super) async fn cut_when<T>(
    refused: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    tokio::select! {
        result = work => result,
        () = refused => Err(Ended::Cut),
    }
}

async fn whom(socket: &mut Socket, port: u16) -> Result<Option<HostName>, Ended> {
    loop {
        let said = match port {
            HTTP => said::head(socket.ahead(), HTTP),
            TLS => said::hello(socket.ahead()),
            _ => Said::Nonsense,
        };
        match said {
            Said::Name(name) => return Ok(Some(name)),
            Said::Nobody => return Ok(None),
            Said::Nonsense => return Err(Ended::Unclear),
            Said::More if socket.ahead().len() > said::LARGEST => return Err(Ended::Unclear),
            Said::More => {
                if !socket.look().await? {
                    return Err(Ended::Unclear);
                }
            }
        }
    }
}

async fn splice(mut socket: Socket, wanted: SocketAddrV4, ways: &Ways) -> Result<(), Ended> {
    let mut upstream = dial(wanted, ways).await?;
    copy_bidirectional_with_sizes(&mut socket, &mut upstream, BUFFER, BUFFER).await?;
    Ok(())
}

async fn dial(wanted: SocketAddrV4, ways: &Ways) -> Result<TcpStream, Ended> {
    let dial = async {
        let socket = (ways.new_socket)().await?;
        let socket = std::net::TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        TcpSocket::from_std_stream(socket).connect(wanted.into()).await
    };
    timeout(DIAL, dial).await.map_err(io::Error::from).flatten().map_err(Ended::Dial)
}
