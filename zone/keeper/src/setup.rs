//! From a program somebody started to a keeper: in the background, in a session of its own, with
//! its socket open.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg, OFlag},
    sys::{
        prctl::set_child_subreaper,
        resource::{Resource, getrlimit, setrlimit},
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
        signalfd::{SfdFlags, SignalFd},
        socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
        stat::{Mode, umask},
    },
    unistd::{
        ForkResult, chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid, unlink,
    },
};

use crate::{
    args::Args,
    book::Book,
    log,
    mounts::{self, MountError},
    server::Server,
};

pub(crate) enum Started {
    /// The keeper answers; this process has done its part.
    Parent,
    /// The log says why.
    Failed,
    Keeper(Box<Server>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("open the log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("go to the background")]
    Background(#[source] nix::Error),
    #[error("the keeper ended before it answered; its log says why")]
    Ended,
    #[error("join the control group {}", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("another keeper serves {}", path.display())]
    Taken { path: PathBuf },
    #[error(transparent)]
    Mounts(#[from] MountError),
    #[error("set up signals")]
    Signals(#[source] nix::Error),
    #[error("become the reaper of orphans")]
    Reaper(#[source] nix::Error),
    #[error("listen at {}", path.display())]
    Listen { path: PathBuf, source: nix::Error },
    #[error("read a boot id")]
    BootId(#[source] io::Error),
}

/// What `Server` is made of.
pub(crate) struct Sockets {
    pub(crate) listener: OwnedFd,
    pub(crate) signals: SignalFd,
    /// Held as long as the process lives.
    pub(crate) lock: Flock<File>,
}

pub(crate) fn start(args: Args) -> Result<Started, SetupError> {
    close_inherited();
    umask(Mode::from_bits_truncate(0o177));
    let log = open_log(&args.log)?;
    let (told, tell) = pipe2(OFlag::O_CLOEXEC).map_err(SetupError::Background)?;
    if in_parent()? {
        drop(tell);
        return match File::from(told).read(&mut [0]) {
            Ok(1) => Ok(Started::Parent),
            Ok(_) | Err(_) => Err(SetupError::Ended),
        };
    }
    drop(told);
    go_to_background(&log).map_err(SetupError::Background)?;
    let (sockets, boot_id) = match become_keeper(&args) {
        Ok(made) => made,
        Err(error) => {
            // Before the starting process hears of the end and sends somebody to the log.
            log::error(&error);
            return Ok(Started::Failed);
        }
    };
    // A parent that did not wait does not matter.
    drop(File::from(tell).write_all(b"."));
    log::line("ready");
    Ok(Started::Keeper(Box::new(Server::new(args, sockets, Book::new(boot_id)))))
}

fn become_keeper(args: &Args) -> Result<(Sockets, String), SetupError> {
    let lock = take_lock(&args.socket)?;
    for dir in &args.cgroups {
        join_cgroup(dir).map_err(|source| SetupError::Cgroup { path: dir.clone(), source })?;
    }
    protect();
    if args.hide_proc_sys_net {
        mounts::hide_proc_sys_net()?;
    }
    let signals = take_signals().map_err(SetupError::Signals)?;
    set_child_subreaper(true).map_err(SetupError::Reaper)?;
    let boot_id =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(SetupError::BootId)?;
    let listener = listen_at(&args.socket)
        .map_err(|source| SetupError::Listen { path: args.socket.clone(), source })?;
    Ok((Sockets { listener, signals, lock }, boot_id.trim().to_owned()))
}

/// What the starting process left open is not ours to hold.
#[expect(unsafe_code, reason = "there is no safe way to close what one doesn't own")]
fn close_inherited() {
    // SAFETY: the keeper has opened nothing yet, and its process does nothing else.
    // Kernels before 5.9 refuse, and then some descriptors stay open for nothing.
    unsafe { nix::libc::syscall(nix::libc::SYS_close_range, 3, nix::libc::c_uint::MAX, 0) };
}

#[expect(unsafe_code, reason = "fork")]
fn in_parent() -> Result<bool, SetupError> {
    // SAFETY: the process has one thread, by the contract of `run`.
    let forked = unsafe { fork() }.map_err(SetupError::Background)?;
    Ok(matches!(forked, ForkResult::Parent { .. }))
}

fn open_log(path: &Path) -> Result<File, SetupError> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(path).map_err(|source| SetupError::Log { path: path.to_owned(), source })
}

fn go_to_background(log: &File) -> Result<(), nix::Error> {
    setsid()?;
    chdir("/")?;
    let null = File::open("/dev/null").map_err(|_gone| nix::Error::ENOENT)?;
    dup2_stdin(&null)?;
    dup2_stdout(log)?;
    dup2_stderr(log)
}

/// Two keepers at one socket would each hold half.
fn take_lock(socket: &Path) -> Result<Flock<File>, SetupError> {
    let path = socket.with_extension("lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file =
        options.open(&path).map_err(|source| SetupError::Lock { path: path.clone(), source })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, _errno)| SetupError::Taken { path: socket.to_owned() })
}

fn join_cgroup(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("cgroup.procs"), "0")
}

/// Every sandbox costs a descriptor; and when memory is short, sandboxes go first.
fn protect() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        log::line(&format!("raise the limit of open files: {errno}"));
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-900") {
        log::line(&format!("lower the OOM score: {error}"));
    }
}

/// Ends come over a descriptor; what a terminal or an impatient operator sends is ignored, since
/// ending would lose every agent. The way to end is to ask at the socket.
#[expect(unsafe_code, reason = "sigaction")]
pub(crate) fn take_signals() -> Result<SignalFd, nix::Error> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in IGNORED {
        // SAFETY: no handler of ours runs.
        unsafe { sigaction(signal, &ignore) }?;
    }
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    ends.thread_block()?;
    SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Also what a child has to take back. SIGPIPE is ignored by Rust's runtime.
pub(crate) const IGNORED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGPIPE];

fn listen_at(path: &Path) -> Result<OwnedFd, nix::Error> {
    match unlink(path) {
        Ok(()) | Err(nix::Error::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::new(16)?)?;
    Ok(listener)
}
