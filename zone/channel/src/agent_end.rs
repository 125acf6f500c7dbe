//! The agent's end: hears greetings, requests and streams, and answers each.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    link::{Driver, Link, Side},
    mux::{Event, Mux, StreamKey},
    stream::Stream,
    words::{Hello, Refusal, Request, Response, Target},
};

/// What comes in at one channel, in order.
pub struct AgentEnd {
    link: Arc<Link>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and none is kept")]
pub enum Incoming {
    /// A zone is here. Until it has its answer nothing else is sent.
    Hello(HelloReply),
    Request(Request, RequestReply),
    Open(Target, OpenReply),
    /// No zone is here; all streams have ended.
    Detached,
}

/// Dropped, it leaves the zone waiting.
pub struct HelloReply {
    link: Arc<Link>,
    session: u64,
}

/// Dropped, it refuses.
pub struct RequestReply {
    link: Arc<Link>,
    session: u64,
    id: u32,
    answered: bool,
}

/// Dropped, it refuses as if nothing listened.
pub struct OpenReply {
    link: Arc<Link>,
    key: StreamKey,
    answered: bool,
}

#[derive(Default)]
pub(crate) struct AgentSide {
    events: VecDeque<Event>,
    acceptor: Option<Waker>,
}

impl AgentSide {
    pub(crate) fn handle(&mut self, event: Event) -> Option<Waker> {
        if matches!(event, Event::Greeted { .. } | Event::Detached) {
            // Answers to what came before would reach nobody.
            self.events.clear();
        }
        self.events.push_back(event);
        self.acceptor.take()
    }
}

/// The future never ends while it is polled: a peer that is gone may come back, under the same
/// number of the descriptor.
pub fn serve(fd: OwnedFd) -> io::Result<(AgentEnd, impl Future<Output = ()> + Send + 'static)> {
    let link = Link::new(Mux::agent(), Side::Agent(AgentSide::default()));
    let driver = Driver::new(fd, link.clone(), true)?;
    Ok((AgentEnd { link }, driver))
}

impl AgentEnd {
    /// For as long as the sandbox may be saved: who restores it may come without the kernel
    /// telling, so that the socket is looked at now and then.
    pub fn look_too(&self, may_be_saved: bool) {
        self.link.change(|state| state.may_be_saved = may_be_saved);
    }

    /// Cancel-safe.
    pub async fn accept(&mut self) -> Incoming {
        let event = poll_fn(|cx| {
            self.link.look(|state| {
                let Side::Agent(agent) = &mut state.side else { return Poll::Pending };
                if let Some(event) = agent.events.pop_front() {
                    return Poll::Ready(event);
                }
                agent.acceptor = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
        let link = self.link.clone();
        match event {
            Event::Greeted { session } => Incoming::Hello(HelloReply { link, session }),
            Event::Asked { session, id, request } => {
                Incoming::Request(request, RequestReply { link, session, id, answered: false })
            }
            Event::Offered { key, target } => {
                Incoming::Open(target, OpenReply { link, key, answered: false })
            }
            Event::Detached
            | Event::Cleared
            | Event::Welcome(_)
            | Event::Answered { .. }
            | Event::Opened(_)
            | Event::Refused(..)
            | Event::Readable(_)
            | Event::Writable(_)
            | Event::Broken(_) => Incoming::Detached,
        }
    }
}

impl HelloReply {
    pub fn answer(self, hello: &Hello) {
        self.link.change(|state| state.mux.welcome(self.session, hello));
    }
}

impl RequestReply {
    pub fn answer(mut self, response: &Response) {
        self.answered = true;
        self.link.change(|state| state.mux.answer(self.session, self.id, response));
    }
}

impl Drop for RequestReply {
    fn drop(&mut self) {
        if !self.answered {
            let response = Response::Refused("the agent gave up on the request".into());
            self.link.change(|state| state.mux.answer(self.session, self.id, &response));
        }
    }
}

impl OpenReply {
    pub fn accept(mut self) -> Stream {
        self.answered = true;
        self.link.change(|state| state.mux.accept(self.key));
        Stream::new(self.link.clone(), self.key, None)
    }

    pub fn refuse(mut self, refusal: Refusal) {
        self.answered = true;
        self.link.change(|state| state.mux.refuse(self.key, refusal));
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        if !self.answered {
            self.link.change(|state| state.mux.refuse(self.key, Refusal::PortClosed));
        }
    }
}

impl fmt::Debug for HelloReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelloReply").field("session", &self.session).finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestReply").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenReply").field("key", &self.key).finish_non_exhaustive()
    }
}
