//! The zone's end: greets, opens streams, asks.

use std::{collections::BTreeMap, io, os::fd::OwnedFd, sync::Arc};

use tokio::sync::{oneshot, watch};

use crate::{
    link::{Closed, Driver, Link, Side},
    mux::{Event, Mux, Refused, StreamKey},
    stream::Stream,
    words::{Hello, Refusal, Request, Response, Target},
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the channel to the agent is lost")]
    Lost,
    #[error("too many requests wait for the agent")]
    TooMany,
    #[error("the request is too long for the channel")]
    TooLong,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("nothing listens on that port of the sandbox")]
    PortClosed,
    #[error("the sandbox has too many connections")]
    TooMany,
    #[error("the channel to the agent is lost")]
    Lost,
}

/// A cheap handle. The channel closes when the last of them and of its streams is dropped.
#[derive(Clone)]
pub struct ZoneEnd {
    link: Arc<Link>,
    holder: Arc<Holder>,
    hello: watch::Receiver<Option<Hello>>,
}

pub(crate) struct ZoneSide {
    /// None once the channel is lost; its receivers see that.
    hello: Option<watch::Sender<Option<Hello>>>,
    /// Dropped when the channel is lost, which tells those who wait.
    requests: BTreeMap<u32, oneshot::Sender<Response>>,
    opens: BTreeMap<StreamKey, oneshot::Sender<Result<(), Refusal>>>,
}

impl ZoneSide {
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Welcome(words) => {
                if let Some(hello) = &self.hello {
                    hello.send_replace(Some(words));
                }
            }
            Event::Answered { id, response } => {
                if let Some(sender) = self.requests.remove(&id)
                    && sender.send(response).is_err()
                {
                    // Whoever asked has left.
                }
            }
            Event::Opened(key) => self.opened(key, Ok(())),
            Event::Refused(key, refusal) => self.opened(key, Err(refusal)),
            Event::Greeted { .. }
            | Event::Detached
            | Event::Cleared
            | Event::Asked { .. }
            | Event::Offered { .. }
            | Event::Readable(_)
            | Event::Writable(_)
            | Event::Broken(_) => {}
        }
    }

    /// A stream that breaks before it was opened is lost to whoever waits for it.
    pub(crate) fn broken(&mut self, key: StreamKey) {
        self.opens.remove(&key);
    }

    pub(crate) fn lost(&mut self) {
        self.hello = None;
        self.requests.clear();
        self.opens.clear();
    }

    fn opened(&mut self, key: StreamKey, result: Result<(), Refusal>) {
        if let Some(sender) = self.opens.remove(&key)
            && sender.send(result).is_err()
        {
            // Whoever opened it has left, and its drop resets the stream.
        }
    }
}

struct Holder {
    link: Arc<Link>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.link.close(Closed::Dropped);
    }
}

/// Takes the channel over: all streams of the zone before are reset, and the agent is greeted with
/// this epoch. The caller spawns the future; dropping it loses the channel.
pub fn attach(
    fd: OwnedFd,
    epoch: u64,
) -> io::Result<(ZoneEnd, impl Future<Output = ()> + Send + 'static)> {
    let (sender, hello) = watch::channel(None);
    let side = ZoneSide { hello: Some(sender), requests: BTreeMap::new(), opens: BTreeMap::new() };
    let link = Link::new(Mux::zone(epoch), Side::Zone(side));
    let driver = Driver::new(fd, link.clone(), false)?;
    let holder = Arc::new(Holder { link: link.clone() });
    Ok((ZoneEnd { link, holder, hello }, driver))
}

impl ZoneEnd {
    /// The agent's answer to our greeting, as soon as it is there.
    pub async fn hello(&self) -> Result<Hello, ChannelError> {
        let mut hello = self.hello.clone();
        // Copied out before the next await: the guard is a lock.
        let answer = hello.wait_for(Option::is_some).await.map(|hello| hello.clone());
        answer.ok().flatten().ok_or(ChannelError::Lost)
    }

    /// To the agent itself the stream is open at once, and breaks if it was refused after all; a
    /// port is waited for.
    pub async fn open(&self, target: Target) -> Result<Stream, OpenError> {
        if target == Target::Port(0) {
            return Err(OpenError::PortClosed);
        }
        let (sender, answer) = oneshot::channel();
        let key = self.link.change(|state| {
            let (None, Side::Zone(zone)) = (&state.closed, &mut state.side) else {
                return Err(OpenError::Lost);
            };
            let key = state.mux.open(target).map_err(|_full: Refused| OpenError::TooMany)?;
            if target != Target::Agent {
                zone.opens.insert(key, sender);
            }
            Ok(key)
        })?;
        // From here on dropping the stream takes the open back.
        let stream = Stream::new(self.link.clone(), key, Some(self.holder.clone()));
        if target == Target::Agent {
            return Ok(stream);
        }
        match answer.await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(Refusal::PortClosed)) => Err(OpenError::PortClosed),
            Ok(Err(Refusal::TooMany)) => Err(OpenError::TooMany),
            Err(_) => Err(OpenError::Lost),
        }
    }

    /// Sent once. On `Lost` the agent may or may not have done it.
    pub async fn request(&self, request: Request) -> Result<Response, ChannelError> {
        let (sender, answer) = oneshot::channel();
        self.link.change(|state| {
            let (None, Side::Zone(zone)) = (&state.closed, &mut state.side) else {
                return Err(ChannelError::Lost);
            };
            zone.requests.retain(|_, sender| !sender.is_closed());
            let id = state.mux.ask(&request).map_err(|refused| match refused {
                Refused::TooMany => ChannelError::TooMany,
                Refused::TooLong => ChannelError::TooLong,
            })?;
            zone.requests.insert(id, sender);
            Ok(())
        })?;
        answer.await.map_err(|_lost| ChannelError::Lost)
    }

    /// Resolves once the channel is lost.
    pub async fn closed(&self) {
        let mut hello = self.hello.clone();
        while hello.changed().await.is_ok() {}
    }

    /// Why, once it is lost.
    pub fn why_closed(&self) -> Option<Closed> {
        self.link.look(|state| state.closed.clone())
    }
}
