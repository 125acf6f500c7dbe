//! HTTP/2: the requests of one connection go side by side, and each is judged.

use std::pin::pin;

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http2::{self as client, SendRequest},
    header::ALT_SVC,
    rt::Executor,
    server::conn::http2 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use sandboxo_zone_protocol::HostName;
use tokio::sync::mpsc;

use super::{
    connection::{Ended, Seat},
    exchange::Stream,
    said::{self, LARGEST, Said},
};

/// As many as servers commonly allow.
const AT_A_TIME: u32 = 128;

/// Runs what belongs to a connection beside it, so that it ends with it.
#[derive(Clone)]
struct Beside<'a>(mpsc::UnboundedSender<BoxFuture<'a, ()>>);

impl<'a, F: Future<Output = ()> + Send + 'a> Executor<F> for Beside<'a> {
    fn execute(&self, work: F) {
        if self.0.send(Box::pin(work)).is_err() {
            // The connection is over, and with it what belongs to it.
        }
    }
}

pub(super) async fn exchange(
    guest: TokioIo<impl Stream>,
    upstream: TokioIo<impl Stream>,
    name: &HostName,
    seat: &Seat<'_>,
) -> Result<(), Ended> {
    let (sender, mut more) = mpsc::unbounded_channel();
    let beside = Beside(sender);
    let (sender, sending) = client::Builder::new(beside.clone())
        .max_header_list_size(LARGEST_LIST)
        .handshake(upstream)
        .await?;
    let service = service_fn(|request| send(sender.clone(), request, name, seat));
    let serving = server::Builder::new(beside)
        .max_concurrent_streams(AT_A_TIME)
        .max_header_list_size(LARGEST_LIST)
        .auto_date_header(false)
        .serve_connection(guest, service);
    let (mut serving, mut sending) = (pin!(serving), pin!(sending));
    let mut work = FuturesUnordered::new();
    let mut is_sending = true;
    loop {
        tokio::select! {
            served = &mut serving => return Ok(served?),
            ended = &mut sending, if is_sending => {
                is_sending = false;
                if let Err(error) = ended {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the other side");
                }
                serving.as_mut().graceful_shutdown();
            }
            Some(one) = more.recv() => work.push(one),
            Some(()) = work.next() => {}
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const LARGEST_LIST: u32 = LARGEST as u32;

async fn send(
    mut sender: SendRequest<Incoming>,
    mut request: Request<Incoming>,
    name: &HostName,
    seat: &Seat<'_>,
) -> Result<Response<Incoming>, Ended> {
    match said::request(&request, seat.wanted.port()) {
        Said::Name(wanted) if wanted == *name => {}
        Said::Name(wanted) => return Err(Ended::Refused(Some(wanted))),
        Said::Nobody | Said::Nonsense | Said::More => return Err(Ended::Unclear),
    }
    let dress = seat.admit(Some(name)).await?;
    seat.put_on(dress, request.headers_mut(), true).await?;
    sender.ready().await?;
    let mut response = sender.send_request(request).await?;
    // Another way to the host would lead past here.
    response.headers_mut().remove(ALT_SVC);
    Ok(response)
}
