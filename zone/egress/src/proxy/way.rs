//! How a connection gets to whom it wants: from the zone's namespace, or by the sandbox's own
//! proxy, of which it is nobody's business but the zone's.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};

use sandboxo_zone_protocol::{HostName, ProxyAddress, ProxyHost, Secret, may_be_proxy};
use tokio::net::{TcpSocket, TcpStream};
use tokio_socks::{TargetAddr, tcp::Socks5Stream};

use super::Ways;
use crate::dns::addresses;

#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("its name has no address")]
    NoAddress,
    #[error("{0} is none that a proxy may have: zone.proxy_networks allows networks")]
    NotAllowed(Ipv4Addr),
    #[error("its password can't be opened")]
    NoPassword,
    #[error("dial it")]
    Dial(#[source] io::Error),
    #[error("it did not let the connection through")]
    Refused(#[from] tokio_socks::Error),
    #[error("it has taken too long")]
    Silent,
}

/// From where the kernel's rules for what the zone dials hold.
pub(super) async fn direct(to: SocketAddrV4, ways: &Ways) -> io::Result<TcpStream> {
    let socket = (ways.new_socket)().await?;
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    TcpSocket::from_std_stream(socket).connect(to.into()).await
}

/// `name`: told to the proxy in place of the address, which is one of that name's.
pub(super) async fn by_proxy(
    proxy: &ProxyAddress,
    login: Option<(&str, Secret)>,
    wanted: SocketAddrV4,
    name: Option<&HostName>,
    ways: &Ways,
) -> Result<TcpStream, ProxyError> {
    let stream = reach(proxy, ways).await?;
    let target = match name {
        Some(name) => TargetAddr::Domain(name.as_str().into(), wanted.port()),
        None => TargetAddr::Ip(SocketAddr::V4(wanted)),
    };
    let passed = match login {
        Some((username, password)) => {
            let password = password.expose();
            Socks5Stream::connect_with_password_and_socket(stream, target, username, password)
                .await?
        }
        None => Socks5Stream::connect_with_socket(stream, target).await?,
    };
    Ok(passed.into_inner())
}

/// The first of its addresses that may be one and that answers.
async fn reach(proxy: &ProxyAddress, ways: &Ways) -> Result<TcpStream, ProxyError> {
    let found = match &proxy.host {
        ProxyHost::Address(address) => vec![*address],
        ProxyHost::Name(name) => addresses(name, &ways.resolvers, &*ways.random).await,
    };
    let mut failed = ProxyError::NoAddress;
    for address in found {
        let to = SocketAddrV4::new(address, proxy.port.get());
        failed = match knock(to, ways).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
    }
    Err(failed)
}

async fn knock(to: SocketAddrV4, ways: &Ways) -> Result<TcpStream, ProxyError> {
    let networks = &ways.proxy_networks;
    if !may_be_proxy(*to.ip(), networks) {
        return Err(ProxyError::NotAllowed(*to.ip()));
    }
    // What the operator allows may be the host's own, which the zone's namespace never reaches.
    let dialed = if networks.iter().any(|net| net.contains(to.ip())) {
        TcpStream::connect(to).await.and_then(|it| it.set_nodelay(true).map(|()| it))
    } else {
        direct(to, ways).await
    };
    dialed.map_err(ProxyError::Dial)
}
