//! HTTP/1.1 on anything that carries bytes.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use sandboxo_tasks::Tasks;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

use crate::{agent::Agent, asker::Asker, guest, http_service::answer};

/// Of one connection, each way: a slow reader holds no more than this in memory.
const BUFFER: usize = 64 * 1024;
/// Until descriptors are free again.
const PAUSE: Duration = Duration::from_millis(50);
const TIDY_AFTER: Duration = Duration::from_secs(2);

/// Programs inside find it until the sandbox ends.
pub(crate) fn listen(agent: Arc<Agent>, listener: TcpListener, tasks: &Tasks) {
    let connections = tasks.clone();
    tasks.spawn_critical("listener", |stop| async move {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _from)) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            // A short answer must not wait for an acknowledgement.
            if stream.set_nodelay(true).is_err() {
                // It is closed already.
            }
            let agent = agent.clone();
            let after = connections.clone();
            let asker = Asker::of(&stream);
            connections
                .spawn("connection", move |_stop| serve(agent, Box::new(stream), asker, after));
        }
    });
}

/// What connections leave behind goes back to the kernel, once for many of them.
#[derive(Default)]
pub(crate) struct Tidy {
    is_due: AtomicBool,
}

impl Tidy {
    fn soon(self: Arc<Self>, tasks: &Tasks) {
        if self.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        tasks.spawn("tidy", |_stop| async move {
            tokio::time::sleep(TIDY_AFTER).await;
            self.is_due.store(false, Ordering::Relaxed);
            guest::give_back_memory();
        });
    }
}

pub(crate) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// One type of connection, whatever carries it: each more is a tenth of a megabyte in every
/// sandbox.
pub(crate) async fn serve(
    agent: Arc<Agent>,
    stream: Box<dyn Carrier>,
    asker: Option<Asker>,
    after: Tasks,
) {
    let tidy = agent.tidy.clone();
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move { Ok::<_, Infallible>(answer(&agent, asker, request).await) }
    });
    let served =
        http1::Builder::new().max_buf_size(BUFFER).serve_connection(TokioIo::new(stream), service);
    if served.await.is_err() {
        // The client left, or its answer was cut on purpose.
    }
    tidy.soon(&after);
}
