//! Hosts with certificates, and clients that want to see them. Both speak HTTP/1 and HTTP/2.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, Version,
    body::{Bytes, Incoming},
    client, server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use sandboxo_egress::{Authority, proxy::Interception};
use sandboxo_zone_protocol::{SystemClock, SystemRandom};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    guest::{Guest, connect},
    world::{TLS, within},
};

const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

pub(super) struct Secure {
    authority: Arc<Authority>,
    /// Of the internet.
    root: CertificateDer<'static>,
    server: Arc<ServerConfig>,
}

/// Whom a client believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Believes {
    Zone,
    Internet,
}

impl Secure {
    /// `secure.test` and `secure-two.test`.
    pub(super) fn new() -> Self {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let kept = Authority::make(&*clock, &*random).unwrap();
        let authority = Arc::new(Authority::read(&kept, clock, random).unwrap());

        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let names = ["secure.test", "secure-two.test"].map(str::to_owned);
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Self { authority, root, server: Arc::new(server) }
    }

    pub(super) fn interception(&self) -> Interception {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        Interception::new(self.authority.clone(), roots).unwrap()
    }

    /// Answers each request with what it was.
    pub(super) fn serve(&self, listener: TcpListener) {
        let acceptor = TlsAcceptor::from(self.server.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, acceptor) = (stream.unwrap(), acceptor.clone());
                // One that is cut is no surprise.
                thread::spawn(move || drop(own(converse(stream, acceptor))));
            }
        });
    }

    /// What the host has heard, for each of the requests on one connection.
    pub(super) fn ask(
        &self,
        guest: &Guest<'_>,
        (address, name): (Ipv4Addr, &str),
        believes: Believes,
        protocol: &[u8],
        requests: Vec<Request<Full<Bytes>>>,
        between: impl FnMut() + Send,
    ) -> io::Result<Vec<String>> {
        let mut roots = RootCertStore::empty();
        let zone = CertificateDer::from_pem_slice(self.authority.certificate().as_bytes());
        roots
            .add(match believes {
                Believes::Zone => zone.unwrap(),
                Believes::Internet => self.root.clone(),
            })
            .unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        within(guest.0, || {
            let stream = connect(SocketAddr::from((address, TLS)))?;
            own(speak(stream, connector, name, requests, between))
        })
    }
}

pub(super) fn request(uri: &str, body: usize) -> Request<Full<Bytes>> {
    let host = uri.parse::<hyper::Uri>().unwrap().host().unwrap().to_owned();
    let request = Request::post(uri).header("host", host).header("x-token", "mine");
    request.header("x-other", "stays").body(Full::new(Bytes::from(vec![b'x'; body]))).unwrap()
}

fn own<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let stream = acceptor.accept(tokio::net::TcpStream::from_std(stream)?).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0]);
    let (stream, service) = (TokioIo::new(stream), service_fn(heard));
    let served = if is_http2 {
        server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await
    } else {
        server::conn::http1::Builder::new().serve_connection(stream, service).await
    };
    served.map_err(io::Error::other)
}

async fn heard(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_or(0, |body| body.to_bytes().len());
    let mut lines = vec![format!("{:?} {} {body}", head.version, head.uri.path())];
    lines.extend(
        head.headers.iter().map(|(name, value)| format!("{name}: {:?}", value.to_str().unwrap())),
    );
    Ok(Response::new(Full::new(Bytes::from(lines.join("\n")))))
}

async fn speak(
    stream: TcpStream,
    connector: TlsConnector,
    name: ServerName<'static>,
    requests: Vec<Request<Full<Bytes>>>,
    mut between: impl FnMut(),
) -> io::Result<Vec<String>> {
    stream.set_nonblocking(true)?;
    let stream = connector.connect(name, tokio::net::TcpStream::from_std(stream)?).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(PROTOCOLS[0]);
    let stream = TokioIo::new(stream);
    let mut answers = Vec::new();
    let mut note = async |response: Response<Incoming>| -> io::Result<()> {
        let body = response.into_body().collect().await.map_err(io::Error::other)?;
        answers.push(String::from_utf8(body.to_bytes().to_vec()).unwrap());
        between();
        Ok(())
    };
    if is_http2 {
        let (mut sender, connection) = client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .map_err(io::Error::other)?;
        let asking = async {
            for request in requests {
                note(sender.send_request(request).await.map_err(io::Error::other)?).await?;
            }
            Ok::<_, io::Error>(())
        };
        tokio::select! {
            asked = asking => asked?,
            ended = connection => ended.map_err(io::Error::other)?,
        }
    } else {
        let (mut sender, connection) =
            client::conn::http1::handshake(stream).await.map_err(io::Error::other)?;
        let asking = async {
            for mut request in requests {
                *request.version_mut() = Version::HTTP_11;
                *request.uri_mut() = request.uri().path().parse().unwrap();
                note(sender.send_request(request).await.map_err(io::Error::other)?).await?;
            }
            Ok::<_, io::Error>(())
        };
        tokio::select! {
            asked = asking => asked?,
            ended = connection => ended.map_err(io::Error::other)?,
        }
    }
    Ok(answers)
}
