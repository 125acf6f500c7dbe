//! One connection: what it says, what becomes of it.

use std::{io, net::SocketAddrV4, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use sandboxo_zone_protocol::{
    EgressProxy, HostName, Secret, SetHeader,
    placeholder::{Part, parts},
};
use tokio::{io::copy_bidirectional_with_sizes, net::TcpStream, time::timeout};

use super::{
    Ways,
    exchange::{Wants, exchange},
    intercept::{self, Interception},
    said::{self, Said},
    socket::Socket,
    way::{self, ProxyError},
};
use crate::{AuthorityError, dns::addresses, guests::Guest, judge::Verdict};

const HTTP: u16 = 80;
const TLS: u16 = 443;

/// How long one may be silent about whom it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// To an address that the sandbox was told of no name for: nearly always a refusal.
const LITTLE_PATIENCE: Duration = Duration::from_secs(2);
/// As long as clients wait for a connect, most of them.
pub(super) const DIAL: Duration = Duration::from_secs(10);
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
    #[error("its rules or its way changed")]
    Cut,
    #[error("the other side is done")]
    Done,
    #[error("dial")]
    Dial(#[source] io::Error),
    #[error("by the sandbox's proxy")]
    Proxy(#[source] ProxyError),
    #[error("pass on")]
    Pass(#[from] io::Error),
    #[error("HTTP")]
    Http(#[from] hyper::Error),
    #[error("a certificate for it")]
    Certificate(#[from] AuthorityError),
    #[error("TLS with it")]
    Greet(#[source] io::Error),
    #[error("a secret or a token would go there without TLS")]
    InTheClear,
    #[error("there is no secret {0:?}")]
    NoSecret(String),
    #[error("the sandbox has no token {0:?}")]
    NoToken(String),
    #[error("TLS with the sandbox")]
    GreetGuest(#[source] io::Error),
}

/// Dropped in the middle, both ends are closed.
pub(super) async fn attend(
    mut socket: Socket,
    wanted: SocketAddrV4,
    guest: &Guest,
    ways: &Ways,
) -> Result<(), Ended> {
    let ip = *wanted.ip();
    let is_open = guest.judge(ip, None) == Verdict::Allowed;
    let seat = Seat { wanted, proxy: guest.proxy(), guest, ways };
    if is_open && !guest.sets_headers() {
        return seat.pass_on(socket).await;
    }
    let is_known = !is_open && guest.was_told_of(ip);
    let patience = if is_known { PATIENCE } else { LITTLE_PATIENCE };
    let name = match timeout(patience, whom(&mut socket, wanted.port())).await {
        Ok(Ok(name)) => name,
        // Whatever it speaks is its own business.
        _ if is_open => return seat.pass_on(socket).await,
        Ok(Err(error)) => return Err(error),
        Err(_silent) => return Err(Ended::Unclear),
    };
    let is_dressed = name.as_ref().is_some_and(|name| guest.headers(name).is_some());
    if is_open && !is_dressed {
        return seat.pass_on(socket).await;
    }
    seat.admit(name.as_ref()).await?;
    match name {
        name if wanted.port() == HTTP => {
            let upstream = seat.dial(name.as_ref()).await?;
            // A proxy looks the name up itself: who is there need not be another name's host.
            let wants = match name {
                Some(name) if seat.proxy.is_some() => Wants::Only(name),
                name => Wants::Any(name),
            };
            exchange(socket, upstream, wants, &seat).await
        }
        Some(name) if is_dressed => Box::pin(intercept::intercept(socket, &name, &seat)).await,
        name => {
            let refused = |guest: &Guest| {
                let is_dressed = name.as_ref().is_some_and(|name| guest.headers(name).is_some());
                is_dressed || guest.judge(ip, name.as_ref()) == Verdict::Refused
            };
            cut_when(seat.until(refused), seat.splice(socket, name.as_ref())).await
        }
    }
}

/// A connection to one address, for whichever name.
pub(super) struct Seat<'a> {
    pub(super) wanted: SocketAddrV4,
    /// By whom it leaves, from its beginning to its end.
    proxy: Option<EgressProxy>,
    guest: &'a Guest,
    ways: &'a Ways,
}

/// What a request is given, by the rules that admitted it.
pub(super) struct Dress(Option<Vec<SetHeader>>);

impl Seat<'_> {
    /// Whether its sandbox may have that name at that address, and what requests to it are given.
    pub(super) async fn admit(&self, name: Option<&HostName>) -> Result<Dress, Ended> {
        let ip = *self.wanted.ip();
        let dress = name.and_then(|name| self.guest.headers(name));
        match (self.guest.judge(ip, name), name) {
            (Verdict::Allowed, _) if dress.is_none() => Ok(Dress(dress)),
            // Headers are for that host only, and may be secrets.
            (Verdict::Allowed | Verdict::AllowedAsNamed, Some(name)) => {
                if self.guest.was_told(ip, name) {
                    return Ok(Dress(dress));
                }
                // It may have been told before it was paused, or before this process was there.
                let found = addresses(name, &self.ways.resolvers, &*self.ways.random).await;
                self.guest.note(name, &found);
                if found.contains(&ip) {
                    Ok(Dress(dress))
                } else {
                    Err(Ended::NotItsAddress(name.clone()))
                }
            }
            (_, name) => Err(Ended::Refused(name.cloned())),
        }
    }

    /// `name`: the one it is about at that moment.
    pub(super) async fn until_refused(&self, name: impl Fn() -> Option<HostName>) {
        let ip = *self.wanted.ip();
        self.until(|guest| guest.judge(ip, name().as_ref()) == Verdict::Refused).await;
    }

    /// Resolves when `refused` says so, or when it would leave another way.
    async fn until(&self, refused: impl Fn(&Guest) -> bool) {
        let proxy = self.proxy.as_ref();
        self.guest.until(|guest| !guest.leaves_by(proxy) || refused(guest)).await;
    }

    /// What placeholders stand for is asked for now, and only where nobody else can read it.
    pub(super) async fn put_on(
        &self,
        Dress(given): Dress,
        headers: &mut HeaderMap,
        is_secure: bool,
    ) -> Result<(), Ended> {
        for SetHeader { name, value } in given.into_iter().flatten() {
            let mut text = Vec::with_capacity(value.expose().len());
            for part in parts(value.expose()).map_err(|_unknown| Ended::Unclear)? {
                match part {
                    Part::Text(part) => text.extend_from_slice(part.as_bytes()),
                    Part::Secret(_) | Part::Token(_) if !is_secure => {
                        return Err(Ended::InTheClear);
                    }
                    Part::Secret(secret) => {
                        let found = self.secret(secret).await;
                        let found = found.ok_or_else(|| Ended::NoSecret(secret.to_owned()))?;
                        text.extend_from_slice(found.expose().as_bytes());
                    }
                    Part::Token(token) => {
                        let signed = self.token(token).await;
                        let signed = signed.ok_or_else(|| Ended::NoToken(token.to_owned()))?;
                        text.extend_from_slice(signed.expose().as_bytes());
                    }
                }
            }
            let (name, value) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&text));
            // Rules with others are not made, nor such secrets.
            let (Ok(name), Ok(mut value)) = (name, value) else { return Err(Ended::Unclear) };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(())
    }

    async fn secret(&self, name: &str) -> Option<Secret> {
        self.ways.guests.vault()?.secret(self.guest.sandbox()?, name).await
    }

    async fn token(&self, name: &str) -> Option<Secret> {
        self.ways.guests.vault()?.token(self.guest.sandbox()?, name).await
    }

    pub(super) fn interception(&self) -> &Interception {
        &self.ways.interception
    }

    /// To an address that is allowed, whatever is said to it.
    async fn pass_on(&self, socket: Socket) -> Result<(), Ended> {
        let ip = *self.wanted.ip();
        let until = self.until(|guest| guest.judge(ip, None) != Verdict::Allowed);
        cut_when(until, self.splice(socket, None)).await
    }

    async fn splice(&self, mut socket: Socket, name: Option<&HostName>) -> Result<(), Ended> {
        let mut upstream = self.dial(name).await?;
        copy_bidirectional_with_sizes(&mut socket, &mut upstream, BUFFER, BUFFER).await?;
        Ok(())
    }

    /// `name`: by which it is allowed or given headers; a proxy is told it in place of the address.
    pub(super) async fn dial(&self, name: Option<&HostName>) -> Result<TcpStream, Ended> {
        let Some(proxy) = &self.proxy else {
            let dialed = timeout(DIAL, way::direct(self.wanted, self.ways)).await;
            return dialed.map_err(io::Error::from).flatten().map_err(Ended::Dial);
        };
        let dialed = timeout(DIAL, async {
            let login = match &proxy.login {
                Some(login) => Some((&*login.username, self.password(proxy).await?)),
                None => None,
            };
            way::by_proxy(&proxy.address, login, self.wanted, name, self.ways).await
        });
        dialed.await.unwrap_or(Err(ProxyError::Silent)).map_err(Ended::Proxy)
    }

    async fn password(&self, proxy: &EgressProxy) -> Result<Secret, ProxyError> {
        let (vault, sandbox) = (self.ways.guests.vault(), self.guest.sandbox());
        let (vault, sandbox) = vault.zip(sandbox).ok_or(ProxyError::NoPassword)?;
        vault.password(sandbox, proxy).await.ok_or(ProxyError::NoPassword)
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
