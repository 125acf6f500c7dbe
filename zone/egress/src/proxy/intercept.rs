//! TLS that is ended here, because requests in it are given headers: the sandbox speaks to a
//! certificate of the zone's own authority, the host is verified as any client would.

use std::{io, sync::Arc};

use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::ServerName,
    server::Acceptor,
    sign::SingleCertAndKey,
};
use sandboxo_zone_protocol::HostName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, client::TlsStream};

use super::{
    connection::{DIAL, Ended, Seat, cut_when},
    exchange::{Wants, exchange},
    socket::Socket,
    streams,
};
use crate::Authority;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What it takes to stand between a sandbox and a host.
#[derive(Clone)]
pub struct Interception {
    authority: Arc<Authority>,
    provider: Arc<CryptoProvider>,
    client: ClientConfig,
}

impl Interception {
    /// `roots`: whom hosts are verified by.
    pub fn new(authority: Arc<Authority>, roots: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { authority, provider, client })
    }

    /// This host's own.
    pub fn host_roots() -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (known, _unread) = roots.add_parsable_certificates(found.certs);
        if known == 0 {
            tracing::warn!(
                "this host knows no authorities (ca-certificates is not installed?), so no host \
                 that requests with headers of rules are meant for is believed"
            );
        }
        roots
    }

    fn connector(&self, protocols: Vec<Vec<u8>>) -> TlsConnector {
        let mut client = self.client.clone();
        client.alpn_protocols = protocols;
        TlsConnector::from(Arc::new(client))
    }

    fn server(&self, name: &HostName, protocol: Option<Vec<u8>>) -> Result<ServerConfig, Ended> {
        let leaf = SingleCertAndKey::from(self.authority.leaf(name)?);
        let builder = ServerConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(leaf));
        config.alpn_protocols = protocol.into_iter().collect();
        Ok(config)
    }
}

/// `name` is admitted already. Both sides speak what the host chose of what the sandbox offered.
pub(super) async fn intercept(
    socket: Socket,
    name: &HostName,
    seat: &Seat<'_>,
) -> Result<(), Ended> {
    let refused = seat.until_refused(|| Some(name.clone()));
    cut_when(refused, Box::pin(converse(socket, name, seat))).await
}

async fn converse(socket: Socket, name: &HostName, seat: &Seat<'_>) -> Result<(), Ended> {
    let hello = timeout(DIAL, LazyConfigAcceptor::new(Acceptor::default(), socket)).await;
    let hello = hello.map_err(io::Error::from).flatten().map_err(Ended::GreetGuest)?;
    let offered = hello.client_hello().alpn().map(|it| it.map(<[u8]>::to_vec).collect());
    let upstream = greet(name, spoken(offered), seat).await?;
    let chosen = upstream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let is_http2 = chosen.as_deref() == Some(HTTP2);
    let server = Arc::new(seat.interception().server(name, chosen)?);
    let guest = timeout(DIAL, hello.into_stream(server)).await;
    let guest = guest.map_err(io::Error::from).flatten().map_err(Ended::GreetGuest)?;
    if is_http2 {
        streams::exchange(TokioIo::new(guest), TokioIo::new(upstream), name, seat).await
    } else {
        Box::pin(exchange(guest, upstream, Wants::Verified(name.clone()), seat)).await
    }
}

/// What of it is spoken here.
fn spoken(offered: Option<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let mut offered = offered.unwrap_or_default();
    offered.retain(|it| it == HTTP2 || it == HTTP1);
    offered
}

async fn greet(
    name: &HostName,
    protocols: Vec<Vec<u8>>,
    seat: &Seat<'_>,
) -> Result<TlsStream<TcpStream>, Ended> {
    let server = ServerName::try_from(name.as_str().to_owned());
    let server = server.map_err(|error| Ended::Greet(io::Error::other(error)))?;
    let stream = seat.dial(Some(name)).await?;
    let greeted = seat.interception().connector(protocols).connect(server, stream);
    timeout(DIAL, greeted).await.map_err(io::Error::from).flatten().map_err(Ended::Greet)
}
