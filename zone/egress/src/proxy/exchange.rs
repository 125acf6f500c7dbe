//! HTTP/1 in the clear: every request of a connection says whom it wants, and each is judged.

use std::{future::poll_fn, pin::pin};

use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self as client, SendRequest},
    server::conn::http1 as server,
    service::service_fn,
    upgrade::{OnUpgrade, on},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sandboxo_zone_protocol::HostName;
use tokio::io::copy_bidirectional;

use super::{
    connection::{Ended, Seat, cut_when},
    said::{self, LARGEST, MOST_HEADERS, Said},
    socket::Socket,
};

/// What the requests of one connection share.
struct Line<'a> {
    seat: &'a Seat<'a>,
    /// `None`: the other side is done.
    sender: Mutex<Option<SendRequest<Incoming>>>,
    /// Of the latest request.
    name: Mutex<Option<HostName>>,
    /// Both ends, once they have agreed to speak something else.
    upgraded: Mutex<Option<[OnUpgrade; 2]>>,
}

/// `first`: the name of the first request, which is admitted already.
pub(super) async fn exchange(
    socket: Socket,
    first: Option<HostName>,
    seat: &Seat<'_>,
) -> Result<(), Ended> {
    let upstream = TokioIo::new(seat.dial().await?);
    let mut builder = client::Builder::new();
    let (sender, sending) = builder.preserve_header_case(true).handshake(upstream).await?;
    let line = Line {
        seat,
        sender: Mutex::new(Some(sender)),
        name: Mutex::new(first),
        upgraded: Mutex::default(),
    };
    let until = seat.until_refused(|| line.name.lock().clone());
    cut_when(until, pass(socket, &line, sending)).await
}

async fn pass(
    socket: Socket,
    line: &Line<'_>,
    sending: client::Connection<TokioIo<tokio::net::TcpStream>, Incoming>,
) -> Result<(), Ended> {
    let serving = server::Builder::new()
        .half_close(true)
        .preserve_header_case(true)
        .auto_date_header(false)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST)
        .serve_connection(TokioIo::new(socket), service_fn(|request| line.send(request)))
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
        self.seat.admit(name.as_ref()).await?;
        *self.name.lock() = name;
        let guest = on(&mut request);
        poll_fn(|context| match &mut *self.sender.lock() {
            Some(sender) => sender.poll_ready(context).map_err(Ended::from),
            None => std::task::Poll::Ready(Err(Ended::Done)),
        })
        .await?;
        let sent = self.sender.lock().as_mut().map(|sender| sender.send_request(request));
        let mut response = sent.ok_or(Ended::Done)?.await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            *self.upgraded.lock() = Some([guest, on(&mut response)]);
        }
        Ok(response)
    }
}
