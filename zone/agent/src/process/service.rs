//! The methods of `process.Process`.

use std::{
    ffi::CStr,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Response;
use nix::{errno::Errno, fcntl::OFlag, sys::signal::Signal as Unix, unistd::pipe2};
use sandboxo_agent_proto::{
    connect::{Code, Failure},
    process::{
        CloseStdinRequest, CloseStdinResponse, ConnectRequest, ListRequest, ListResponse,
        ProcessConfig, ProcessInfo, ProcessInput, Pty, SendInputRequest, SendInputResponse,
        SendSignalRequest, SendSignalResponse, Signal, StartRequest, StreamInputRequest,
        StreamInputResponse, UpdateRequest, UpdateResponse, process_input, stream_input_request,
    },
};
use sandboxo_tasks::Tasks;
use tokio::time::{Instant, timeout};

use super::{
    environment::{BadText, candidates, environment, to_argument, to_block},
    input::{Form, Input, InputError},
    journal::Journal,
    output::{Kind, Output},
    owner::Process,
    pty,
    reaper::Reaper,
    registry::{REMEMBERED, Registry},
    spawn::{Launch, SpawnError, Spawner},
    stream::{Opened, ProcessStream},
};
use crate::{
    body::Body,
    clock,
    identity::Identity,
    paths,
    rpc::{self, Call, Messages},
    users::User,
};

/// Kept for the platform's own processes.
const RESERVED_TAG: &str = "_system";
/// They do nothing and read no file of the user's.
const WARM_UP: [&CStr; 3] = [c"/bin/bash", c"-c", c":"];
/// A client that kills a process finds it gone, unless its death takes longer.
const DYING: Duration = Duration::from_millis(500);

pub(crate) struct ProcessService {
    /// For the sandbox's log.
    pub(crate) journal: Journal,
    registry: Registry,
    reaper: Arc<Reaper>,
    spawner: Spawner,
    null: File,
    path: String,
    tasks: Tasks,
    /// A checkpoint is coming, which must not meet a process that is half started.
    is_quiet: AtomicBool,
}

/// The ends of a new process's files.
struct Files {
    child: ChildFiles,
    outputs: [Output; 2],
    input: Input,
    terminal: Option<OwnedFd>,
}

enum ChildFiles {
    /// Without an input there is nothing to read.
    Pipes {
        input: Option<OwnedFd>,
        output: OwnedFd,
        error: OwnedFd,
    },
    Terminal(OwnedFd),
}

impl ChildFiles {
    fn stdio<'a>(&'a self, null: &'a File) -> [BorrowedFd<'a>; 3] {
        match self {
            Self::Pipes { input, output, error } => {
                let input = input.as_ref().map_or_else(|| null.as_fd(), OwnedFd::as_fd);
                [input, output.as_fd(), error.as_fd()]
            }
            Self::Terminal(slave) => [slave.as_fd(); 3],
        }
    }
}

impl ProcessService {
    pub(crate) fn new(reaper: Arc<Reaper>, path: String, tasks: Tasks) -> std::io::Result<Self> {
        Ok(Self {
            journal: Journal::default(),
            registry: Registry::default(),
            reaper,
            spawner: Spawner::new(),
            null: File::open("/dev/null")?,
            path,
            tasks,
            is_quiet: AtomicBool::new(false),
        })
    }

    pub(crate) async fn serve(
        self: Arc<Self>,
        who: Arc<Identity>,
        method: &str,
        call: Call,
    ) -> Response<Body> {
        match method {
            "List" => rpc::unary(call, async |_: ListRequest| Ok(self.list())).await,
            "Start" => {
                let user = call.user.clone();
                let options = Options::of(&call);
                let start = |request| self.start(&who, user.as_deref(), request, options);
                rpc::server_stream(call, start).await
            }
            "Connect" => {
                let options = Options::of(&call);
                rpc::server_stream(call, |request| self.connect(request, options)).await
            }
            "Update" => rpc::unary(call, async |request| self.update(request)).await,
            "SendInput" => rpc::unary(call, async |request| self.send_input(request).await).await,
            "StreamInput" => {
                rpc::client_stream(call, async |messages| self.stream_input(messages).await).await
            }
            "SendSignal" => {
                rpc::unary(call, async |request| self.send_signal(&request).await).await
            }
            "CloseStdin" => rpc::unary(call, async |request| self.close_stdin(request).await).await,
            unknown => rpc::unimplemented(&call, "process.Process", unknown),
        }
    }

    /// From here on nothing is started, or again something. Starts happen at once, so none is
    /// under way.
    pub(crate) fn quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    pub(crate) fn kill_all(&self) {
        for process in self.registry.live() {
            process.kill_all();
        }
    }

    fn list(&self) -> ListResponse {
        let info = |process: Arc<Process>| ProcessInfo {
            config: Some(process.config.clone()),
            pid: process.pid.as_raw().unsigned_abs(),
            tag: process.tag.clone(),
        };
        ListResponse { processes: self.registry.live().into_iter().map(info).collect() }
    }

    /// Everything up to the task that owns the process happens at once: no caller can leave in
    /// between.
    fn start(
        self: &Arc<Self>,
        who: &Identity,
        user: Option<&str>,
        request: StartRequest,
        options: Options,
    ) -> Result<ProcessStream, Failure> {
        if self.is_quiet.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Unavailable, "the sandbox is being paused"));
        }
        let user = who.user(user)?;
        let config = request.process.unwrap_or_default();
        if request.tag.as_deref() == Some(RESERVED_TAG) {
            return Err(invalid(format!("tag '{RESERVED_TAG}' is reserved")));
        }
        let files = match request.pty {
            Some(pty) => Self::terminal(pty, &user)?,
            None => Self::pipes(request.stdin.unwrap_or(true))?,
        };
        let Files { child, outputs, input, terminal } = files;
        let pid = self.launch(who, &user, &config, &child)?;
        let exit = self.reaper.expect(pid);
        drop(child);

        let number = pid.as_raw().unsigned_abs();
        self.journal.started(number, &config, clock::now());
        let process = Arc::new(Process::new(pid, config, request.tag, input, terminal));
        self.registry.insert(process.clone());
        let stream = ProcessStream::new(
            process.clone(),
            Opened::ByStart,
            options.codec,
            options.deadline,
            options.keepalive,
        );
        let service = self.clone();
        self.tasks.spawn("process", |_stop| async move {
            let end = process.watch_over(outputs, exit, options.deadline).await;
            // Before the client knows, who may read the log next.
            service.journal.ended(number, end.exit.to_event(), clock::now());
            process.finish(end);
            service.registry.end(&process);
            process.set_over();
            service.clone().tasks.spawn("ended process", |_stop| async move {
                tokio::time::sleep(REMEMBERED).await;
                service.registry.forget(&process);
            });
        });
        Ok(stream)
    }

    /// Runs a shell, so that the first command finds the shell's files in memory: that saves it a
    /// few milliseconds. A system without it goes without.
    pub(crate) async fn warm_up(&self) {
        let words = WARM_UP.map(CStr::to_owned);
        let launch = Launch {
            programs: &words[..1],
            arguments: &words,
            environment: &[],
            folder: c"/",
            user: &User::root(),
            stdio: [self.null.as_fd(); 3],
            terminal: false,
        };
        if let Ok(pid) = self.spawner.spawn(&launch)
            && self.reaper.expect(pid).await.is_err()
        {
            // The reaper has ended, and with it the agent.
        }
    }

    fn launch(
        &self,
        who: &Identity,
        user: &User,
        config: &ProcessConfig,
        files: &ChildFiles,
    ) -> Result<nix::unistd::Pid, Failure> {
        let folder = paths::resolve(
            config.cwd.as_deref().unwrap_or_default(),
            &user.home,
            who.workdir.as_deref(),
        );
        let variables = environment(&self.path, user, &who.trust, &who.environment, &config.envs);
        let path = variables.get("PATH").map_or("", String::as_str);
        let bad = |error: BadText| invalid(error.to_string());
        let programs: Vec<_> = candidates(&config.cmd, path)
            .iter()
            .map(|program| to_argument(program))
            .collect::<Result<_, _>>()
            .map_err(bad)?;
        let arguments: Vec<_> = [&config.cmd]
            .into_iter()
            .chain(&config.args)
            .map(|argument| to_argument(argument))
            .collect::<Result<_, _>>()
            .map_err(bad)?;
        let launch = Launch {
            programs: &programs,
            arguments: &arguments,
            environment: &to_block(&variables).map_err(bad)?,
            folder: &to_argument(&folder).map_err(bad)?,
            user,
            stdio: files.stdio(&self.null),
            terminal: matches!(files, ChildFiles::Terminal(_)),
        };
        self.spawner.spawn(&launch).map_err(|error| not_started(error, &config.cmd, &folder))
    }

    fn pipes(stdin: bool) -> Result<Files, Failure> {
        let make = || -> Result<Files, Errno> {
            let (input, child_input) = if stdin {
                let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                pty::unblock(&write)?;
                (Input::new(Form::Pipe, Some(write)), Some(read))
            } else {
                (Input::new(Form::Pipe, None), None)
            };
            let (out, child_out) = pipe2(OFlag::O_CLOEXEC)?;
            let (err, child_err) = pipe2(OFlag::O_CLOEXEC)?;
            pty::unblock(&out)?;
            pty::unblock(&err)?;
            Ok(Files {
                child: ChildFiles::Pipes {
                    input: child_input,
                    output: child_out,
                    error: child_err,
                },
                outputs: [output(Kind::Stdout, out)?, output(Kind::Stderr, err)?],
                input,
                terminal: None,
            })
        };
        make().map_err(no_files)
    }

    fn terminal(wanted: Pty, user: &User) -> Result<Files, Failure> {
        let make = || -> Result<Files, Errno> {
            let pair = pty::open_pair(size(wanted), user.uid)?;
            let (writer, sizer) = (pty::second(&pair.master)?, pty::second(&pair.master)?);
            Ok(Files {
                child: ChildFiles::Terminal(pair.slave),
                outputs: [output(Kind::Pty, pair.master)?, Output::none(Kind::Stderr)],
                input: Input::new(Form::Terminal, Some(writer)),
                terminal: Some(sizer),
            })
        };
        make().map_err(no_files)
    }

    fn connect(&self, request: ConnectRequest, options: Options) -> Result<ProcessStream, Failure> {
        let process = self.registry.find(request.process)?;
        let Options { codec, deadline, keepalive } = options;
        Ok(ProcessStream::new(process, Opened::ByConnect, codec, deadline, keepalive))
    }

    fn update(&self, request: UpdateRequest) -> Result<UpdateResponse, Failure> {
        let process = self.registry.find_live(request.process)?;
        if let Some(pty) = request.pty {
            match process.resize(size(pty)) {
                Some(Ok(())) => {}
                Some(Err(errno)) => {
                    let message = format!("error resizing tty: {}", errno.desc());
                    return Err(Failure::new(Code::Internal, message));
                }
                None => {
                    return Err(Failure::new(
                        Code::FailedPrecondition,
                        "tty not assigned to process",
                    ));
                }
            }
        }
        Ok(UpdateResponse {})
    }

    async fn send_input(&self, request: SendInputRequest) -> Result<SendInputResponse, Failure> {
        let process = self.registry.find_live(request.process)?;
        feed(&process, request.input).await?;
        Ok(SendInputResponse {})
    }

    async fn stream_input(
        &self,
        mut messages: Messages<StreamInputRequest>,
    ) -> Result<StreamInputResponse, Failure> {
        let mut process = None;
        while let Some(message) = messages.next().await? {
            match message.event {
                Some(stream_input_request::Event::Start(start)) => {
                    process = Some(self.registry.find_live(start.process)?);
                }
                Some(stream_input_request::Event::Data(data)) => match &process {
                    Some(process) => feed(process, data.input).await?,
                    None => return Err(invalid("the first message must select a process")),
                },
                Some(stream_input_request::Event::Keepalive(_)) | None => {}
            }
        }
        Ok(StreamInputResponse {})
    }

    async fn send_signal(
        &self,
        request: &SendSignalRequest,
    ) -> Result<SendSignalResponse, Failure> {
        let process = self.registry.find_live(request.process.clone())?;
        let signal = match request.signal() {
            Signal::Sigkill => Unix::SIGKILL,
            Signal::Sigterm => Unix::SIGTERM,
            Signal::Unspecified => return Err(invalid("no signal given, or one unknown here")),
        };
        if let Err(errno) = process.signal(signal) {
            let message = format!("error sending signal: {}", errno.desc());
            return Err(Failure::new(Code::Internal, message));
        }
        if signal == Unix::SIGKILL && timeout(DYING, process.over()).await.is_err() {
            // It sleeps where no signal reaches it; it will die when it wakes.
        }
        Ok(SendSignalResponse {})
    }

    async fn close_stdin(&self, request: CloseStdinRequest) -> Result<CloseStdinResponse, Failure> {
        let process = self.registry.find_live(request.process)?;
        process.input.close().await.map_err(|error| input_failure(&error))?;
        Ok(CloseStdinResponse {})
    }
}

/// What a streaming caller asked for beside the message.
#[derive(Clone, Copy)]
struct Options {
    codec: sandboxo_agent_proto::connect::Codec,
    deadline: Option<Instant>,
    keepalive: Duration,
}

impl Options {
    fn of(call: &Call) -> Self {
        let deadline = call.timeout.map(|timeout| Instant::now() + timeout);
        Self { codec: call.form.codec, deadline, keepalive: call.keepalive }
    }
}

async fn feed(process: &Process, input: Option<ProcessInput>) -> Result<(), Failure> {
    let (form, bytes) = match input.and_then(|input| input.input) {
        Some(process_input::Input::Stdin(bytes)) => (Form::Pipe, bytes),
        Some(process_input::Input::Pty(bytes)) => (Form::Terminal, bytes),
        None => return Err(invalid("no input given")),
    };
    process.input.write(form, &bytes).await.map_err(|error| input_failure(&error))
}

fn input_failure(error: &InputError) -> Failure {
    let code = match error {
        InputError::Closed | InputError::Terminal | InputError::WrongForm => {
            Code::FailedPrecondition
        }
        InputError::Ended => Code::NotFound,
        InputError::Write(..) => Code::Internal,
    };
    Failure::new(code, error.to_string())
}

fn size(pty: Pty) -> pty::Size {
    let size = pty.size.unwrap_or_default();
    let cells = |count: u32, default: u16| match u16::try_from(count) {
        Ok(0) => default,
        Ok(count) => count,
        Err(_too_many) => u16::MAX,
    };
    pty::Size { columns: cells(size.cols, 80), rows: cells(size.rows, 24) }
}

fn output(kind: Kind, fd: OwnedFd) -> Result<Output, Errno> {
    Output::new(kind, fd).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidArgument, message)
}

fn no_files(errno: Errno) -> Failure {
    let message = format!("error opening the files of a process: {}", errno.desc());
    Failure::new(exhausted_or(errno, Code::Internal), message)
}

fn not_started(error: SpawnError, command: &str, folder: &str) -> Failure {
    match error {
        SpawnError::Folder(Errno::ENOENT) => invalid(format!("cwd '{folder}' does not exist")),
        SpawnError::Folder(Errno::ENOTDIR) => invalid(format!("cwd '{folder}' is not a directory")),
        SpawnError::Folder(errno) => invalid(format!("cwd '{folder}': {}", errno.desc())),
        SpawnError::Run(errno) => Failure::new(
            exhausted_or(errno, Code::InvalidArgument),
            format!("error starting process '{command}': {error}"),
        ),
        SpawnError::Clone(errno) | SpawnError::SetUp(errno) => Failure::new(
            exhausted_or(errno, Code::Internal),
            format!("error starting process '{command}': {error}"),
        ),
    }
}

fn exhausted_or(errno: Errno, other: Code) -> Code {
    let exhausted =
        [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE, Errno::ENOSPC, Errno::E2BIG];
    if exhausted.contains(&errno) { Code::ResourceExhausted } else { other }
}
