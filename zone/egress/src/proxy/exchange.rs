//! HTTP/1: every request of a connection says whom it wants, and each is judged.

use std::{future::poll_fn, pin::pin};

use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self as client, SendRequest},
    header::ALT_SVC,
    server::conn::http1 as server,
    service::service_fn,
    upgrade::{OnUpgrade, on},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sandboxo_zone_protocol::HostName;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};

use super::{
    connection::{Ended, Seat, cut_when},
    said::{self, LARGEST, MOST_HEADERS, Said},
};

/// Either end of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Whom the requests of a connection may want.
pub(super) enum Wants {
    /// Whoever is at that address; the first one is admitted already.
    Any(Option<HostName>),
    /// Whoever has that name.
    Only(HostName),
    /// The same, by the certificate it has shown.
    Verified(HostName),
}

/// What the requests of one connection share.
struct Line<'a> {
    seat: &'a Seat<'a>,
    /// `None`: the other side is done.
    sender: Mutex<Option<SendRequest<Incoming>>>,
    /// Of the latest request.
    name: Mutex<Option<HostName>>,
    only: Option<HostName>,
    is_secure: bool,
    /// Both ends, once they have agreed to speak something else.
    upgraded: Mutex<Option<[OnUpgrade; 2]>>,
}

pub(super) async fn exchange(
    guest: impl Stream,
    upstream: impl Stream,
    wants: Wants,
    seat: &Seat<'_>,
) -> Result<(), Ended> {
    let upstream = TokioIo::new(upstream);
    let mut builder = client::Builder::new();
    let (sender, sending) = builder.preserve_header_case(true).handshake(upstream).await?;
    let (first, only, is_secure) = match wants {
        Wants::Any(first) => (first, None, false),
        Wants::Only(name) => (Some(name.clone()), Some(name), false),
        Wants::Verified(name) => (Some(name.clone()), Some(name), true),
    };
    let line = Line {
        seat,
        sender: Mutex::new(Some(sender)),
        name: Mutex::new(first),
        only,
        is_secure,
        upgraded: Mutex::default(),
    };
    let until = seat.until_refused(|| line.name.lock().clone());
    cut_when(until, pass(guest, &line, sending)).await
}

async fn pass<U: Stream>(
    guest: impl Stream,
    line: &Line<'_>,
    sending: client::Connection<TokioIo<U>, Incoming>,
) -> Result<(), Ended> {
    let serving = server::Builder::new()
        .half_close(true)
        .preserve_header_case(true)
        .auto_date_header(false)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST)
        .serve_connection(TokioIo::new(guest), service_fn(|request| line.send(request)))
        .with_upgrades();
    let (mut serving, mut sending) = (pin!(serving), pin!(sending.with_upgrades()));
    let mut is_sending = true;
    loop {
        tokio::select! {
            served = &mut serving => break served?,
            sent = &mut sending, if is_sending => {
                is_sending = false;
                if let Err(error) = sent {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the other side");
                }
                // What it answered goes to its end, and nothing more can be asked.
                line.sender.lock().take();
                serving.as_mut().graceful_shutdown();
            }
        }
    }
    line.sender.lock().take();
    if is_sending {
        sending.await?;
    }
    let upgraded = line.upgraded.lock().take();
    if let Some([guest, upstream]) = upgraded {
        let (mut guest, mut upstream) = (TokioIo::new(guest.await?), TokioIo::new(upstream.await?));
        copy_bidirectional(&mut guest, &mut upstream).await?;
    }
    Ok(())
}

impl Line<'_> {
    async fn send(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Ended> {
        let name = match said::request(&request, self.seat.wanted.port()) {
            Said::Name(name) => Some(name),
            Said::Nobody => None,
            Said::Nonsense | Said::More => return Err(Ended::Unclear),
        };
        if self.only.is_some() && self.only != name {
            return Err(Ended::Refused(name));
        }
        let dress = self.seat.admit(name.as_ref()).await?;
        self.seat.put_on(dress, request.headers_mut(), self.is_secure).await?;
        *self.name.lock() = name;
        let guest = on(&mut request);
        poll_fn(|context| match &mut *self.sender.lock() {
            Some(sender) => sender.poll_ready(context).map_err(Ended::from),
            None => std::task::Poll::Ready(Err(Ended::Done)),
        })
        .await?;
        let sent = self.sender.lock().as_mut().map(|sender| sender.send_request(request));
        let mut response = sent.ok_or(Ended::Done)?.await?;
        if self.is_secure {
            // Another way to the host would lead past here.
            response.headers_mut().remove(ALT_SVC);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            *self.upgraded.lock() = Some([guest, on(&mut response)]);
        }
        Ok(response)
    }
}
