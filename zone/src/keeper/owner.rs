//! The task that owns the connection.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::ExitStatus,
    time::Duration,
};

use sandboxo_keeper::protocol::{BATCH, FromKeeper, Label, Launch, MAX_MESSAGE, Stdin, ToKeeper};
use sandboxo_tasks::Stop;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    CALL_TIMEOUT, CallError, Held, KeeperConfig, KeeperError, Spawned, Standing, WaitError,
    connect::{self, Connection, Met},
};

/// Between attempts to get a keeper again.
const RETRY: Duration = Duration::from_millis(500);
/// Ends that nobody has asked for yet; beyond that the oldest are forgotten.
const MOST_ENDED: usize = 1024;

type Reply<T> = oneshot::Sender<Result<T, CallError>>;

pub(super) enum Command {
    Spawn { launch: Box<Launch>, netns: Option<OwnedFd>, reply: Reply<Spawned> },
    Wait { pid: i32, reply: oneshot::Sender<Result<ExitStatus, WaitError>> },
    Release { label: String, reply: Reply<()> },
    Upgrade { reply: Reply<()> },
    ShutDown { reply: Reply<()> },
}

/// What an answer is for.
enum Call {
    Spawn { label: Option<Label>, reply: Reply<Spawned> },
    Done { reply: Reply<()> },
    Upgrade { reply: Reply<()> },
    ShutDown { reply: Reply<()> },
}

pub(super) struct Owner {
    config: KeeperConfig,
    connection: Connection,
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    next_call: u64,
    calls: BTreeMap<u64, Call>,
    held: BTreeMap<String, (String, OwnedFd)>,
    running: BTreeMap<i32, Vec<oneshot::Sender<Result<ExitStatus, WaitError>>>>,
    ended: VecDeque<(i32, ExitStatus)>,
    standing: watch::Sender<Standing>,
    /// Answered when the keeper has closed the connection, which it does last.
    shut_down: Option<Reply<()>>,
}

impl Owner {
    pub(super) fn new(
        config: KeeperConfig,
        met: Met,
    ) -> Result<(Self, watch::Receiver<Standing>, Vec<Held>), KeeperError> {
        let Met { connection, identity, build, held, fresh: _ } = met;
        let (standing, watched) =
            watch::channel(Standing { identity, build, connected: true, replaced: 0, rejoined: 0 });
        let mut kept = BTreeMap::new();
        for Held { label, meta, channel } in &held {
            let channel = channel.try_clone().map_err(KeeperError::Channel)?;
            kept.insert(label.clone(), (meta.clone(), channel));
        }
        let owner = Self {
            config,
            connection,
            outbox: VecDeque::new(),
            next_call: 1,
            calls: BTreeMap::new(),
            held: kept,
            running: BTreeMap::new(),
            ended: VecDeque::new(),
            standing,
            shut_down: None,
        };
        Ok((owner, watched, held))
    }

    /// Until all handles are gone, or the stop, or a shut-down.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>, stop: Stop) {
        loop {
            let lost = tokio::select! {
                () = stop.cancelled() => return,
                command = queue.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                heard = self.connection.hear_or_room(!self.outbox.is_empty()) => match heard {
                    Ok(Some((message, channels))) => self.heard(message, channels),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                },
            };
            let Err(error) = lost.and_then(|()| self.flush()) else { continue };
            if let Some(reply) = self.shut_down.take() {
                self.forget_calls();
                answer(reply, Ok(()));
                return;
            }
            tracing::warn!(error = &error as &dyn std::error::Error, "keeper lost");
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.get_back() => {}
            }
        }
    }

    fn take(&mut self, command: Command) -> Result<(), KeeperError> {
        let call = self.next_call;
        match command {
            Command::Spawn { launch, netns, reply } => {
                let label = (launch.stdin == Stdin::Channel).then(|| launch.label.clone());
                let message = ToKeeper::Spawn { call, launch };
                self.ask(&message, netns.into_iter().collect(), Call::Spawn { label, reply })
            }
            Command::Wait { pid, reply } => {
                self.wait(pid, reply);
                Ok(())
            }
            Command::Release { label, reply } => {
                self.held.remove(&label);
                self.ask(&ToKeeper::Release { call, label }, Vec::new(), Call::Done { reply })
            }
            Command::Upgrade { reply } => {
                let (program, build) = (self.config.program.clone(), self.config.build.clone());
                let message = ToKeeper::Upgrade { call, program, build };
                self.ask(&message, Vec::new(), Call::Upgrade { reply })
            }
            Command::ShutDown { reply } => {
                self.ask(&ToKeeper::ShutDown { call }, Vec::new(), Call::ShutDown { reply })
            }
        }
    }

    fn ask(
        &mut self,
        message: &ToKeeper,
        descriptors: Vec<OwnedFd>,
        call: Call,
    ) -> Result<(), KeeperError> {
        let bytes = serde_json::to_vec(message).map_err(KeeperError::Words)?;
        if bytes.len() > MAX_MESSAGE {
            call.fail(CallError::TooLong);
            return Ok(());
        }
        self.calls.insert(self.next_call, call);
        self.next_call += 1;
        self.outbox.push_back((bytes, descriptors));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), KeeperError> {
        while let Some((bytes, descriptors)) = self.outbox.front() {
            match self.connection.send(bytes, descriptors) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(KeeperError::Talk(error)),
            }
        }
        Ok(())
    }

    fn heard(&mut self, message: FromKeeper, channels: Vec<OwnedFd>) -> Result<(), KeeperError> {
        match message {
            FromKeeper::Spawned { call, pid } => {
                self.running.insert(pid, Vec::new());
                self.ended.retain(|(ended, _)| *ended != pid);
                match self.calls.remove(&call) {
                    Some(Call::Spawn { label, reply }) => {
                        let channel = self.keep(label, channels)?;
                        answer(reply, Ok(Spawned { pid, channel }));
                    }
                    Some(other) => other.fail(CallError::Lost),
                    None => {}
                }
            }
            FromKeeper::Failed { call, failure } => {
                if let Some(call) = self.calls.remove(&call) {
                    call.fail(CallError::Refused(failure));
                }
            }
            FromKeeper::Done { call } => match self.calls.remove(&call) {
                Some(Call::Done { reply }) => answer(reply, Ok(())),
                Some(Call::Upgrade { reply }) => {
                    let build = self.config.build.clone();
                    self.standing.send_modify(|standing| standing.build = build);
                    answer(reply, Ok(()));
                }
                Some(Call::ShutDown { reply }) => self.shut_down = Some(reply),
                Some(other @ Call::Spawn { .. }) => other.fail(CallError::Lost),
                None => {}
            },
            FromKeeper::Exited { pid, status } => {
                self.exited(pid, ExitStatus::from_raw(status));
            }
            FromKeeper::Welcome { .. } | FromKeeper::Holding { .. } | FromKeeper::Ready => {
                return Err(KeeperError::Unexpected("a second welcome"));
            }
        }
        Ok(())
    }

    fn keep(
        &mut self,
        label: Option<Label>,
        channels: Vec<OwnedFd>,
    ) -> Result<Option<OwnedFd>, KeeperError> {
        let channel = channels.into_iter().next();
        if let (Some(Label { label, meta }), Some(channel)) = (label, &channel) {
            let kept = channel.try_clone().map_err(KeeperError::Channel)?;
            self.held.insert(label, (meta, kept));
        }
        Ok(channel)
    }

    fn wait(&mut self, pid: i32, reply: oneshot::Sender<Result<ExitStatus, WaitError>>) {
        if let Some(waiting) = self.running.get_mut(&pid) {
            waiting.push(reply);
            return;
        }
        let at = self.ended.iter().position(|(ended, _)| *ended == pid);
        let status = at.and_then(|at| self.ended.remove(at));
        answer(reply, status.map(|(_, status)| status).ok_or(WaitError::Unknown(pid)));
    }

    fn exited(&mut self, pid: i32, status: ExitStatus) {
        let Some(waiting) = self.running.remove(&pid) else { return };
        let waiting: Vec<_> = waiting.into_iter().filter(|reply| !reply.is_closed()).collect();
        if waiting.is_empty() {
            self.ended.push_back((pid, status));
            if self.ended.len() > MOST_ENDED {
                self.ended.pop_front();
            }
        }
        for reply in waiting {
            answer(reply, Ok(status));
        }
    }

    fn forget_calls(&mut self) {
        self.outbox.clear();
        for call in std::mem::take(&mut self.calls).into_values() {
            call.fail(CallError::Lost);
        }
        // Who waits sees the sender dropped.
        self.running.clear();
    }

    async fn get_back(&mut self) {
        self.forget_calls();
        self.standing.send_modify(|standing| standing.connected = false);
        while let Err(error) = self.try_get_back().await {
            tracing::error!(error = &error as &dyn std::error::Error, "keeper not back yet");
            sleep(RETRY).await;
        }
        let standing = self.standing.borrow().clone();
        tracing::warn!(
            keeper.epoch = standing.identity.epoch,
            keeper.replaced = standing.replaced,
            keeper.rejoined = standing.rejoined,
            held = self.held.len(),
            "keeper back"
        );
    }

    async fn try_get_back(&mut self) -> Result<(), KeeperError> {
        let before = self.standing.borrow().identity.clone();
        let met = connect::connect_or_start(&self.config, Some(&before)).await?;
        let Met { mut connection, identity, build, held, fresh } = met;
        let theirs: Vec<_> = held.into_iter().map(|held| held.label).collect();
        let missing: Vec<_> =
            self.held.iter().filter(|(label, _)| !theirs.contains(label)).collect();
        for (call, batch) in (0..).zip(missing.chunks(BATCH)) {
            hand_over(&mut connection, call, batch).await?;
        }
        self.connection = connection;
        self.standing.send_modify(|standing| {
            standing.identity = identity;
            standing.build = build;
            standing.connected = true;
            if fresh {
                standing.replaced += 1;
            } else {
                standing.rejoined += 1;
            }
        });
        Ok(())
    }
}

async fn hand_over(
    connection: &mut Connection,
    call: u64,
    batch: &[(&String, &(String, OwnedFd))],
) -> Result<(), KeeperError> {
    let mut held = Vec::new();
    let mut channels = Vec::new();
    for (label, (meta, channel)) in batch {
        held.push(Label { label: (*label).clone(), meta: meta.clone() });
        channels.push(channel.try_clone().map_err(KeeperError::Channel)?);
    }
    let message = serde_json::to_vec(&ToKeeper::Hold { call, held }).map_err(KeeperError::Words)?;
    let done = async {
        connection.writable().await.map_err(KeeperError::Talk)?;
        connection.send(&message, &channels).map_err(KeeperError::Talk)?;
        loop {
            match connection.hear().await?.0 {
                FromKeeper::Done { .. } => return Ok(()),
                FromKeeper::Exited { .. } => {}
                FromKeeper::Failed { .. }
                | FromKeeper::Welcome { .. }
                | FromKeeper::Holding { .. }
                | FromKeeper::Ready
                | FromKeeper::Spawned { .. } => {
                    return Err(KeeperError::Unexpected("it does not hold what it is given"));
                }
            }
        }
    };
    timeout(CALL_TIMEOUT, done).await.map_err(|_late| KeeperError::Silent)?
}

impl Call {
    fn fail(self, error: CallError) {
        match self {
            Self::Spawn { reply, .. } => answer(reply, Err(error)),
            Self::Done { reply } | Self::Upgrade { reply } | Self::ShutDown { reply } => {
                answer(reply, Err(error));
            }
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        // Whoever asked has left.
    }
}
