//! The zone's side of the agent: greetings, claims, and streams to the agent or to ports.

use std::{io, os::fd::OwnedFd, sync::Arc};

use sandboxo_channel::{
    AgentEnd, Claim, Hello, Incoming, Refusal, Request, RequestReply, Response, Target, serve,
};
use sandboxo_tasks::Tasks;

use crate::{agent::Agent, clock, ports, server};

/// Both tasks live as long as the sandbox: without the channel nobody can reach it.
pub(crate) fn attend(agent: Arc<Agent>, fd: OwnedFd, tasks: &Tasks) -> io::Result<()> {
    let (end, driver) = serve(fd)?;
    tasks.spawn_critical("channel", |_stop| driver);
    let streams = tasks.clone();
    tasks.spawn_critical("zone", |_stop| answer_all(agent, end, streams));
    Ok(())
}

async fn answer_all(agent: Arc<Agent>, mut end: AgentEnd, streams: Tasks) {
    loop {
        match end.accept().await {
            Incoming::Hello(reply) => {
                agent.processes.quiet(false);
                end.look_too(false);
                let claimed = agent.identity().map(|identity| identity.sandbox_id.clone());
                reply.answer(&Hello { version: env!("CARGO_PKG_VERSION").to_owned(), claimed });
            }
            Incoming::Request(Request::Ping, reply) => reply.answer(&Response::Pong),
            Incoming::Request(Request::WarmUp, reply) => {
                let agent = agent.clone();
                streams.spawn("warm up", |_stop| async move {
                    agent.processes.warm_up().await;
                    reply.answer(&Response::Warm);
                });
            }
            Incoming::Request(Request::Believe(authority), reply) => {
                if Agent::believe(&authority).is_err() {
                    // Tried again at the claim.
                }
                reply.answer(&Response::Believes);
            }
            Incoming::Request(Request::Notices, reply) => {
                let notices = agent.processes.journal.take(clock::now());
                reply.answer(&Response::Notices(notices));
            }
            Incoming::Request(Request::Quiesce { end_processes }, reply) => {
                agent.processes.quiet(true);
                end.look_too(true);
                let agent = agent.clone();
                streams.spawn("quiesce", |_stop| async move {
                    let left = if end_processes { agent.end_processes().await } else { Ok(()) };
                    match left {
                        Ok(()) => reply.answer(&Response::Quiet),
                        Err(why) => {
                            agent.processes.quiet(false);
                            reply.answer(&Response::Refused(why.to_string()));
                        }
                    }
                });
            }
            Incoming::Request(Request::Mount { paths }, reply) => {
                reply.answer(&agent.volumes.mount(&paths));
            }
            Incoming::Request(Request::OpenInVolumes, reply) => {
                let agent = agent.clone();
                streams.spawn("open in volumes", |_stop| async move {
                    // Some thousand calls of a kernel that is slow at them.
                    let look = tokio::task::spawn_blocking(move || agent.volumes.in_use());
                    reply.answer(&match look.await {
                        Ok(open) => Response::OpenInVolumes(open),
                        Err(panicked) => Response::Refused(panicked.to_string()),
                    });
                });
            }
            Incoming::Request(Request::GoOn, reply) => {
                agent.processes.quiet(false);
                end.look_too(false);
                reply.answer(&Response::GoesOn);
            }
            Incoming::Request(Request::Restored { claim, reboot: false }, reply) => {
                agent.go_on_as(&claim);
                send(reply, &Response::Claimed).await;
                settle(&agent, &claim);
            }
            Incoming::Request(Request::Restored { claim, reboot: true }, reply) => {
                let agent = agent.clone();
                streams.spawn("reboot", |_stop| async move {
                    match agent.reboot().await {
                        Ok(()) => {
                            agent.go_on_as(&claim);
                            settle(&agent, &claim);
                            reply.answer(&Response::Claimed);
                        }
                        Err(why) => reply.answer(&Response::Refused(why.to_string())),
                    }
                });
            }
            Incoming::Request(Request::Claim(claim), reply) => {
                let answer = agent.claim(claim.clone());
                let is_claimed = answer == Response::Claimed;
                send(reply, &answer).await;
                if is_claimed {
                    settle(&agent, &claim);
                }
            }
            Incoming::Open(Target::Agent, reply) if agent.identity().is_some() => {
                let agent = agent.clone();
                let stream = Box::new(reply.accept());
                let after = streams.clone();
                streams.spawn("stream", |_stop| server::serve(agent, stream, None, after));
            }
            Incoming::Open(Target::Port(port), reply) if agent.identity().is_some() => {
                streams.spawn("port", |_stop| ports::carry(port, reply));
            }
            Incoming::Open(_unclaimed, reply) => reply.refuse(Refusal::PortClosed),
            // Its streams have ended by themselves.
            Incoming::Detached => {}
        }
    }
}

/// Behind an answer, and before anything that the zone sends next.
fn settle(agent: &Agent, claim: &Claim) {
    if agent.settle(claim).is_err() {
        // A sandbox with a full or read-only disk is still its owner's.
    }
}

/// Lets the channel's task send it before anything else is done here.
async fn send(reply: RequestReply, response: &Response) {
    reply.answer(response);
    tokio::task::yield_now().await;
}
