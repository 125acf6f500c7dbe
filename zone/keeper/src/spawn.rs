//! Starting one command.
//!
//! The keeper doesn't wait for the child on its way to the program: a child that joins a frozen
//! control group would freeze the keeper with it. The child reports a failed step over a pipe,
//! which closes by itself when the program runs.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::{CloneFlags, CpuSet, sched_setaffinity, setns},
    sys::{
        signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, sigaction, sigprocmask},
        socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt},
        stat::{Mode, umask},
    },
    unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork, pipe2, setsid},
};

use crate::{
    mounts::{BindError, Views},
    protocol::{Failure, Launch, Stdin, Step},
    setup::IGNORED,
};

/// Room for a few of the longest messages; more would only be more to throw away at a takeover.
const SOCKET_BUFFER: usize = 512 * 1024;

/// On its way to the program.
pub(crate) struct Starting {
    pub(crate) pid: i32,
    pub(crate) program: PathBuf,
    pub(crate) cgroups: Vec<PathBuf>,
    pub(crate) report: File,
}

pub(crate) struct Begun {
    pub(crate) starting: Starting,
    /// The zone's end.
    pub(crate) channel: Option<OwnedFd>,
}

/// What the child needs, made before it exists.
struct Prepared {
    program: CString,
    args: Vec<CString>,
    env: Vec<CString>,
    stdin: OwnedFd,
    log: File,
    cgroups: Vec<File>,
    netns: Option<OwnedFd>,
    view: Option<Rc<OwnedFd>>,
    processors: Option<CpuSet>,
    oom_score_adj: Option<String>,
}

pub(crate) fn begin(
    launch: Launch,
    netns: Option<OwnedFd>,
    views: &mut Views,
) -> Result<Begun, Failure> {
    let view = views.with(&launch.binds).map_err(|BindError { target, errno }| {
        failure(&launch.program, Step::Bind, &target.display().to_string(), errno)
    })?;
    let (prepared, channel) = prepare(&launch, netns, view)?;
    let failed = |errno: Errno| failure(&launch.program, Step::Fork, "", errno);
    let (report, child_report) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let pid = fork_into(&prepared, child_report).map_err(failed)?;
    let Launch { program, cgroups, .. } = launch;
    let starting = Starting { pid, program, cgroups, report: report.into() };
    Ok(Begun { starting, channel })
}

impl Starting {
    pub(crate) fn report(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// To be called once the pipe says something. Running, or the step that failed.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        let mut report = [0; Report::SIZE];
        match self.report.read_exact(&mut report) {
            Ok(()) => {
                let Report { step, cgroup, errno } = Report::decode(report);
                let target = self.cgroups.get(cgroup).filter(|_| step == Step::JoinCgroup);
                let target = target.map(|path| path.display().to_string()).unwrap_or_default();
                Err(failure(&self.program, step, &target, Errno::from_raw(errno)))
            }
            // Closed by execve, or by a death that is going to be reaped.
            Err(_) => Ok(()),
        }
    }
}

fn failure(program: &Path, step: Step, target: &str, errno: Errno) -> Failure {
    Failure::Start {
        program: program.to_owned(),
        step,
        target: target.to_owned(),
        errno: errno as i32,
    }
}

fn prepare(
    launch: &Launch,
    netns: Option<OwnedFd>,
    view: Option<Rc<OwnedFd>>,
) -> Result<(Prepared, Option<OwnedFd>), Failure> {
    let text = |field: &str, bytes: &[u8]| {
        CString::new(bytes).map_err(|_zero| Failure::ZeroByte { field: field.to_owned() })
    };
    let io_failed = |step, path: &Path, error: &io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        failure(&launch.program, step, &path.display().to_string(), errno)
    };
    let program = text("program", launch.program.as_os_str().as_bytes())?;
    let mut args = vec![program.clone()];
    for arg in &launch.args {
        args.push(text("args", arg.as_bytes())?);
    }
    let mut env = Vec::new();
    for (name, value) in &launch.env {
        env.push(text("env", format!("{name}={value}").as_bytes())?);
    }
    let mut options = OpenOptions::new();
    let log = options
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&launch.log)
        .map_err(|error| io_failed(Step::OpenLog, &launch.log, &error))?;
    let mut cgroups = Vec::new();
    for path in &launch.cgroups {
        let file = OpenOptions::new().write(true).open(path);
        cgroups.push(file.map_err(|error| io_failed(Step::OpenCgroup, path, &error))?);
    }
    let (stdin, channel) = match launch.stdin {
        Stdin::Null => {
            let path = Path::new("/dev/null");
            let null = File::open(path);
            (null.map_err(|error| io_failed(Step::OpenNull, path, &error))?.into(), None)
        }
        Stdin::Channel => {
            let (guest, zone) = make_channel()
                .map_err(|errno| failure(&launch.program, Step::MakeChannel, "", errno))?;
            (guest, Some(zone))
        }
    };
    let oom_score_adj = launch.oom_score_adj.map(|score| score.to_string());
    let processors = processors(&launch.processors)
        .map_err(|errno| failure(&launch.program, Step::SetProcessors, "", errno))?;
    let prepared = Prepared {
        program,
        args,
        env,
        stdin,
        log,
        cgroups,
        netns,
        view,
        processors,
        oom_score_adj,
    };
    Ok((prepared, channel))
}

fn processors(numbers: &[usize]) -> Result<Option<CpuSet>, Errno> {
    let mut set = CpuSet::new();
    numbers.iter().try_for_each(|number| set.set(*number))?;
    Ok((!numbers.is_empty()).then_some(set))
}

fn make_channel() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (guest, zone) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    for end in [&guest, &zone] {
        // Over the system's limit only with privilege; below it any message still fits.
        if setsockopt(end, sockopt::SndBufForce, &SOCKET_BUFFER).is_err() {
            setsockopt(end, sockopt::SndBuf, &SOCKET_BUFFER)?;
        }
    }
    Ok((guest, zone))
}

#[expect(unsafe_code, reason = "fork")]
fn fork_into(prepared: &Prepared, report: OwnedFd) -> Result<i32, Errno> {
    // SAFETY: the keeper has one thread, so the child may do whatever the parent may.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let report = File::from(report);
            let failed = become_program(prepared);
            // A parent that is gone needs no report.
            drop((&report).write_all(&failed.encode()));
            // SAFETY: ends this process, which shares nothing with the parent's.
            unsafe { nix::libc::_exit(127) }
        }
    }
}

/// Returns only if it fails.
fn become_program(prepared: &Prepared) -> Report {
    let Err(report) = try_become_program(prepared);
    report
}

fn try_become_program(prepared: &Prepared) -> Result<std::convert::Infallible, Report> {
    let step = |step| move |errno: Errno| Report { step, cgroup: 0, errno: errno as i32 };
    setsid().map_err(step(Step::Session))?;
    reset_signals().map_err(step(Step::Signals))?;
    umask(Mode::from_bits_truncate(0o022));
    for (number, mut cgroup) in prepared.cgroups.iter().enumerate() {
        cgroup.write_all(b"0").map_err(|error| Report {
            step: Step::JoinCgroup,
            cgroup: number,
            errno: error.raw_os_error().unwrap_or(nix::libc::EIO),
        })?;
    }
    if let Some(netns) = &prepared.netns {
        setns(netns, CloneFlags::CLONE_NEWNET).map_err(step(Step::JoinNetwork))?;
    }
    if let Some(view) = &prepared.view {
        setns(view.as_ref(), CloneFlags::CLONE_NEWNS).map_err(step(Step::Bind))?;
    }
    if let Some(processors) = &prepared.processors {
        let this = Pid::from_raw(0);
        sched_setaffinity(this, processors).map_err(step(Step::SetProcessors))?;
    }
    let score = prepared.oom_score_adj.as_deref().unwrap_or("0");
    std::fs::write("/proc/self/oom_score_adj", score)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
        .map_err(step(Step::SetOomScore))?;
    dup2_stdin(&prepared.stdin)
        .and_then(|()| dup2_stdout(&prepared.log))
        .and_then(|()| dup2_stderr(&prepared.log))
        .map_err(step(Step::SetStdio))?;
    execve(&prepared.program, &prepared.args, &prepared.env).map_err(step(Step::Exec))
}

#[expect(unsafe_code, reason = "sigaction")]
fn reset_signals() -> Result<(), Errno> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in IGNORED {
        // SAFETY: no handler of ours runs.
        unsafe { sigaction(signal, &default) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// What a child says about its failure, in few enough bytes to be written at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Report {
    step: Step,
    /// Which of them, when joining one failed.
    cgroup: usize,
    errno: i32,
}

impl Report {
    const SIZE: usize = 6;
    const STEPS: [Step; 9] = [
        Step::Exec,
        Step::Session,
        Step::Signals,
        Step::JoinCgroup,
        Step::JoinNetwork,
        Step::Bind,
        Step::SetProcessors,
        Step::SetOomScore,
        Step::SetStdio,
    ];

    #[expect(clippy::cast_possible_truncation, reason = "a handful of steps and control groups")]
    fn encode(self) -> [u8; Self::SIZE] {
        let step = Self::STEPS.iter().position(|step| *step == self.step).unwrap_or_default();
        let [a, b, c, d] = self.errno.to_le_bytes();
        [step as u8, self.cgroup as u8, a, b, c, d]
    }

    fn decode([step, cgroup, a, b, c, d]: [u8; Self::SIZE]) -> Self {
        Self {
            step: Self::STEPS.get(usize::from(step)).copied().unwrap_or(Step::Exec),
            cgroup: cgroup.into(),
            errno: i32::from_le_bytes([a, b, c, d]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_keeps_step_group_and_reason() {
        for step in Report::STEPS {
            let report = Report { step, cgroup: 3, errno: 40_000 };
            assert_eq!(Report::decode(report.encode()), report);
        }
    }
}
