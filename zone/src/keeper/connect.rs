//! Finding a keeper, or starting one; and the first words.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixDatagram as StdDatagram},
    },
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket},
};
use sandboxo_channel::DETACHED_MESSAGE;
use sandboxo_keeper::{
    protocol::{Failure, FromKeeper, Greeting, Identity, Label, MAX_MESSAGE, PROTOCOL, ToKeeper},
    wire::{self, Receiver},
};
use tokio::{
    io::Interest,
    net::UnixDatagram,
    process::Command,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Held, KeeperConfig};

/// From nothing to a keeper that answers. It takes 20 ms; a host in trouble may take longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// When our start failed, another's may have been in the way; then its keeper answers soon.
const OTHERS: Duration = Duration::from_secs(1);
/// Nothing tells that a socket has come into being.
const RETRY: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("open the keeper's log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("start {} as the keeper", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("the keeper ended at once ({status}); {} may say why", log.display())]
    Ended { status: ExitStatus, log: PathBuf },
    #[error("connect to the keeper at {}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the keeper does not answer; another zone may be connected to it")]
    Silent,
    #[error("talk with the keeper")]
    Talk(#[source] io::Error),
    #[error("the keeper's words make no sense")]
    Words(#[source] serde_json::Error),
    #[error("the keeper says what it should not: {0}")]
    Unexpected(&'static str),
    #[error(
        "the keeper speaks protocol {theirs} and this zone {PROTOCOL}, and it can't become this \
         program; end it when nothing runs (`sandboxo down`)"
    )]
    Protocol { theirs: u32, source: Failure },
    #[error("hold a channel")]
    Channel(#[source] io::Error),
}

/// A packet socket that the runtime watches.
pub(super) struct Connection {
    /// The runtime has no type for packet sockets; of this one only its readiness is used.
    socket: UnixDatagram,
    receiver: Receiver,
}

/// A keeper that has greeted.
pub(super) struct Met {
    pub(super) connection: Connection,
    pub(super) identity: Identity,
    pub(super) build: String,
    pub(super) held: Vec<Held>,
    /// We have started it.
    pub(super) fresh: bool,
}

impl Connection {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixDatagram::from_std(StdDatagram::from(socket))?;
        Ok(Self { socket, receiver: Receiver::new(MAX_MESSAGE) })
    }

    /// `WouldBlock`: wait until it is writable.
    pub(super) fn send(&self, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        self.socket.try_io(Interest::WRITABLE, || {
            wire::send(&self.socket, bytes, &descriptors).map_err(io::Error::from)
        })
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Cancel-safe. The connection's end is an error.
    pub(super) async fn hear(&mut self) -> Result<(FromKeeper, Vec<OwnedFd>), KeeperError> {
        loop {
            if let Some(message) = self.hear_or_room(false).await? {
                return Ok(message);
            }
        }
    }

    /// `None`: there is room to send again, if that was wanted.
    pub(super) async fn hear_or_room(
        &mut self,
        room: bool,
    ) -> Result<Option<(FromKeeper, Vec<OwnedFd>)>, KeeperError> {
        let interest =
            if room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        loop {
            let ready = self.socket.ready(interest).await.map_err(KeeperError::Talk)?;
            if ready.is_readable()
                && let Some(message) = self.try_hear()?
            {
                return Ok(Some(message));
            }
            if room && ready.is_writable() {
                return Ok(None);
            }
        }
    }

    fn try_hear(&mut self) -> Result<Option<(FromKeeper, Vec<OwnedFd>)>, KeeperError> {
        let (socket, receiver) = (&self.socket, &mut self.receiver);
        let packet =
            socket.try_io(Interest::READABLE, || receiver.receive(socket).map_err(io::Error::from));
        match packet {
            Ok(packet) if packet.bytes.is_empty() => {
                Err(KeeperError::Talk(io::ErrorKind::UnexpectedEof.into()))
            }
            Ok(packet) => {
                let message = serde_json::from_slice(packet.bytes).map_err(KeeperError::Words)?;
                Ok(Some((message, packet.descriptors)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(KeeperError::Talk(error)),
        }
    }
}

/// `resume`: who the keeper was that has died.
pub(super) async fn connect_or_start(
    config: &KeeperConfig,
    resume: Option<&Identity>,
) -> Result<Met, KeeperError> {
    let mut deadline = Instant::now() + PATIENCE;
    let mut started = None;
    loop {
        let error = match dial(&config.socket) {
            Ok(socket) => {
                let met = timeout_at(deadline, meet(socket, config, resume)).await;
                match met.map_err(|_late| KeeperError::Silent)? {
                    // It died while it was being greeted.
                    Err(error @ KeeperError::Talk(_)) => error,
                    Err(error) => return Err(error),
                    Ok(Greeted::Met(met)) => return Ok(Met { fresh: started.is_some(), ..met }),
                    Ok(Greeted::Upgraded) => KeeperError::Unexpected("the same protocol as before"),
                }
            }
            Err(errno @ (Errno::ENOENT | Errno::ECONNREFUSED)) => {
                if started.is_none() {
                    let status = start(config).await?;
                    if !status.success() {
                        deadline = Instant::now() + OTHERS;
                    }
                    started = Some(status);
                }
                match started {
                    Some(status) if !status.success() => {
                        KeeperError::Ended { status, log: config.log.clone() }
                    }
                    _ => connect_failed(config, errno),
                }
            }
            Err(Errno::EAGAIN) => KeeperError::Silent,
            Err(errno) => return Err(connect_failed(config, errno)),
        };
        if Instant::now() >= deadline {
            return Err(error);
        }
        sleep(RETRY).await;
    }
}

fn connect_failed(config: &KeeperConfig, errno: Errno) -> KeeperError {
    KeeperError::Connect { socket: config.socket.clone(), source: errno.into() }
}

fn dial(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// The program goes to the background by itself and returns once its socket is there. It gets
/// nothing of our environment, which may hold secrets and outlives us with it.
async fn start(config: &KeeperConfig) -> Result<ExitStatus, KeeperError> {
    let log_failed = |source| KeeperError::Log { path: config.log.clone(), source };
    let log = open_log(&config.log).map_err(log_failed)?;
    let mut command = Command::new(&config.program);
    command.arg("keeper").arg("--socket").arg(&config.socket).arg("--log").arg(&config.log);
    command.arg("--build").arg(&config.build);
    if config.hide_proc_sys_net {
        command.arg("--hide-proc-sys-net");
    }
    for dir in &config.cgroups {
        command.arg("--cgroup").arg(dir);
    }
    command.env_clear().stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(log_failed)?).stderr(log);
    let start_failed = |source| KeeperError::Start { program: config.program.clone(), source };
    let mut child = command.spawn().map_err(start_failed)?;
    match timeout(PATIENCE, child.wait()).await {
        Ok(status) => status.map_err(start_failed),
        Err(_late) => Err(KeeperError::Silent),
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

enum Greeted {
    Met(Met),
    /// It spoke another protocol, and is this program now.
    Upgraded,
}

async fn meet(
    socket: OwnedFd,
    config: &KeeperConfig,
    resume: Option<&Identity>,
) -> Result<Greeted, KeeperError> {
    let mut connection = Connection::new(socket).map_err(KeeperError::Talk)?;
    let greeting = ToKeeper::Hello(Greeting {
        protocol: PROTOCOL,
        detached: DETACHED_MESSAGE.into(),
        resume: resume.cloned(),
    });
    let greeting = serde_json::to_vec(&greeting).map_err(KeeperError::Words)?;
    connection.writable().await.map_err(KeeperError::Talk)?;
    connection.send(&greeting, &[]).map_err(KeeperError::Talk)?;
    let (identity, build) = match connection.hear().await?.0 {
        FromKeeper::Welcome { protocol: PROTOCOL, identity, build } => (identity, build),
        FromKeeper::Welcome { protocol: theirs, .. } => {
            upgrade(&mut connection, config, theirs).await?;
            return Ok(Greeted::Upgraded);
        }
        FromKeeper::Holding { .. }
        | FromKeeper::Ready
        | FromKeeper::Spawned { .. }
        | FromKeeper::Failed { .. }
        | FromKeeper::Done { .. }
        | FromKeeper::Exited { .. } => return Err(KeeperError::Unexpected("no welcome")),
    };
    let mut all = Vec::new();
    loop {
        match connection.hear().await? {
            (FromKeeper::Holding { held }, channels) => {
                if held.len() != channels.len() {
                    return Err(KeeperError::Unexpected("labels without channels"));
                }
                for (Label { label, meta }, channel) in held.into_iter().zip(channels) {
                    all.push(Held { label, meta, channel });
                }
            }
            (FromKeeper::Ready, _) => {
                let met = Met { connection, identity, build, held: all, fresh: false };
                return Ok(Greeted::Met(met));
            }
            // Of the zone before.
            (FromKeeper::Exited { .. }, _) => {}
            (
                FromKeeper::Welcome { .. }
                | FromKeeper::Spawned { .. }
                | FromKeeper::Failed { .. }
                | FromKeeper::Done { .. },
                _,
            ) => return Err(KeeperError::Unexpected("no end of what is held")),
        }
    }
}

/// Of a keeper with which nothing else can be spoken about.
async fn upgrade(
    connection: &mut Connection,
    config: &KeeperConfig,
    theirs: u32,
) -> Result<(), KeeperError> {
    let (program, build) = (config.program.clone(), config.build.clone());
    let message = ToKeeper::Upgrade { call: 0, program, build };
    let message = serde_json::to_vec(&message).map_err(KeeperError::Words)?;
    connection.writable().await.map_err(KeeperError::Talk)?;
    connection.send(&message, &[]).map_err(KeeperError::Talk)?;
    match connection.hear().await?.0 {
        FromKeeper::Done { .. } => Ok(()),
        FromKeeper::Failed { failure: source, .. } => Err(KeeperError::Protocol { theirs, source }),
        FromKeeper::Welcome { .. }
        | FromKeeper::Holding { .. }
        | FromKeeper::Ready
        | FromKeeper::Spawned { .. }
        | FromKeeper::Exited { .. } => Err(KeeperError::Unexpected("no end of the upgrade")),
    }
}
