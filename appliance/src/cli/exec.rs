//! `sandbox exec`: a command in a sandbox, as if it ran here.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Fuse},
    stream,
};
use reqwest::Body;
use sandboxo_agent_proto::{
    connect::Codec,
    process::{
        ProcessConfig, ProcessInput, Pty, Signal, StartRequest, StreamInputRequest, UpdateRequest,
        process_event::{DataEvent, EndEvent, Event, StartEvent, data_event::Output},
        process_input::Input,
        pty::Size,
        stream_input_request,
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{
    Context,
    agent::{Agent, Events, selector},
    target::Target,
    terminal::{self, Raw},
    words::{Duration, Pair},
};
use crate::output;

/// One read of standard input, one message to the agent.
const PIECE: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// With a terminal of its own
    #[arg(short, long)]
    tty: bool,
    /// Do not pass standard input on
    #[arg(short, long)]
    no_stdin: bool,
    /// As which user [default: the template's]
    #[arg(short, long)]
    user: Option<String>,
    /// In which folder [default: the user's home]
    #[arg(short, long, value_name = "FOLDER")]
    workdir: Option<String>,
    /// A variable of its environment
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<Pair>,
    /// Kill it after so long
    #[arg(long)]
    timeout: Option<Duration>,
    /// The sandbox
    id: String,
    /// The program and its arguments [default with --tty: a login shell]
    #[arg(last = true, required_unless_present = "tty")]
    command: Vec<String>,
}

pub(crate) async fn exec(context: &Context, exec: Exec) -> Result<ExitCode> {
    let target = Target::find(context)?;
    let agent = Agent::find(&target, &exec.id, exec.user.clone()).await?;
    let limit = exec.timeout.map(|limit| limit.0);
    let stdin = !exec.no_stdin;
    let tty = exec.tty;
    // The prompt of the other side starts in raw mode, the errors of this side do not.
    let events = agent.start(&request(exec), limit).await?;
    let raw = if tty { Raw::enter().context("put the terminal into raw mode")? } else { None };
    let end = attend(&agent, events, Attached { tty, stdin, raw: raw.is_some() }).await;
    drop(raw);
    Ok(ExitCode::from(end?))
}

fn request(exec: Exec) -> StartRequest {
    let Exec { tty, no_stdin, env, workdir, command, .. } = exec;
    let mut envs: BTreeMap<String, String> = BTreeMap::new();
    if tty {
        let term = crate::config::ClientEnvironment::read().term;
        envs.insert("TERM".into(), term.unwrap_or_else(|| "xterm-256color".into()));
        envs.insert("LANG".into(), "C.UTF-8".into());
        envs.insert("LC_ALL".into(), "C.UTF-8".into());
    }
    envs.extend(env.into_iter().map(|Pair(name, value)| (name, value)));
    let mut words = command.into_iter();
    let (cmd, args) = match words.next() {
        Some(program) => (program, words.collect()),
        None => ("/bin/bash".into(), vec!["-i".into(), "-l".into()]),
    };
    StartRequest {
        process: Some(ProcessConfig { cmd, args, envs, cwd: workdir }),
        pty: tty.then(pty),
        tag: None,
        stdin: Some(!no_stdin),
    }
}

fn pty() -> Pty {
    let (cols, rows) = terminal::size();
    Pty { size: Some(Size { cols, rows }) }
}

#[derive(Clone, Copy)]
struct Attached {
    tty: bool,
    stdin: bool,
    /// Keys go to the other side as they are, also the ones that make signals.
    raw: bool,
}

/// Passes everything on until the command has ended, and gives its exit code.
async fn attend(agent: &Agent, mut events: Events, attached: Attached) -> Result<u8> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut resizes = signal(SignalKind::window_change())?;
    // Pends for ever until there is an input, and again after its end.
    let mut input: Fuse<BoxFuture<'_, Result<()>>> = Fuse::terminated();
    let mut pid = None;
    let mut asked_to_end = false;
    loop {
        tokio::select! {
            event = events.next() => match event?.map(|event| event.event) {
                None => bail!("the command ended without an exit code"),
                Some(Some(Event::Start(StartEvent { pid: started }))) => {
                    pid = Some(started);
                    if attached.stdin {
                        input = pass_input(agent, started, attached.tty).boxed().fuse();
                    }
                }
                Some(Some(Event::Data(DataEvent { output: Some(output) }))) => {
                    if !pass_output(&output)? {
                        kill(agent, pid, Signal::Sigkill).await;
                        return Ok(128 + SIGPIPE);
                    }
                }
                Some(Some(Event::End(end))) => return Ok(exit_code(&end)),
                Some(Some(Event::Data(_) | Event::Keepalive(_)) | None) => {}
            },
            passed = &mut input => {
                // A command that closed its input or ended is no failure of this side's.
                if let Err(error) = passed {
                    tracing::debug!(error = %format!("{error:#}"), "standard input");
                }
            }
            Some(()) = resizes.recv(), if attached.tty => resize(agent, pid).await,
            Some(()) = interrupts.recv(), if !attached.raw => {
                let signal = if asked_to_end { Signal::Sigkill } else { Signal::Sigterm };
                asked_to_end = true;
                kill(agent, pid, signal).await;
            }
            Some(()) = terminations.recv() => {
                let signal = if asked_to_end { Signal::Sigkill } else { Signal::Sigterm };
                asked_to_end = true;
                kill(agent, pid, signal).await;
            }
        }
    }
}

async fn resize(agent: &Agent, pid: Option<u32>) {
    let Some(pid) = pid else { return };
    let update = UpdateRequest { process: Some(selector(pid)), pty: Some(pty()) };
    if let Err(error) = agent.update(&update).await {
        tracing::debug!(error = %format!("{error:#}"), "resize the terminal");
    }
}

async fn kill(agent: &Agent, pid: Option<u32>, signal: Signal) {
    let Some(pid) = pid else { return };
    if let Err(error) = agent.signal(pid, signal).await {
        output::note(&format!("the command could not be ended: {error:#}"));
    }
}

/// Until standard input ends; the command is told of the end.
async fn pass_input(agent: &Agent, pid: u32, tty: bool) -> Result<()> {
    let start = stream_input_request::StartEvent { process: Some(selector(pid)) };
    let first = envelope(stream_input_request::Event::Start(start));
    let pieces =
        stream::unfold((Some(first), read_stdin()), move |(first, mut pieces)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, io::Error>(first), (None, pieces)));
            }
            let piece = pieces.recv().await?;
            let bytes = piece.map(|bytes| {
                let input = if tty { Input::Pty(bytes) } else { Input::Stdin(bytes) };
                let input = Some(ProcessInput { input: Some(input) });
                let data = stream_input_request::DataEvent { input };
                envelope(stream_input_request::Event::Data(data))
            });
            Some((bytes, (None, pieces)))
        });
    agent.stream_input(Body::wrap_stream(pieces)).await?;
    if !tty {
        agent.close_stdin(pid).await?;
    }
    Ok(())
}

fn envelope(event: stream_input_request::Event) -> Bytes {
    Codec::Proto.envelop(&StreamInputRequest { event: Some(event) })
}

/// A thread of its own: a read of a terminal can't be called off, and the process does not wait
/// for this one at its end.
fn read_stdin() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut piece = vec![0; PIECE];
        loop {
            let read = match stdin.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => Ok(Bytes::copy_from_slice(piece.get(..length).unwrap_or_default())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// `false`: whoever read our output has left.
fn pass_output(output: &Output) -> io::Result<bool> {
    let written = match output {
        Output::Stdout(bytes) | Output::Pty(bytes) => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Output::Stderr(bytes) => io::stderr().lock().write_all(bytes),
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

const SIGPIPE: u8 = 13;

/// As a shell tells it: 128 and the signal's number for a command that a signal ended.
fn exit_code(end: &EndEvent) -> u8 {
    if end.exited {
        return u8::try_from(end.exit_code & 0xff).unwrap_or(u8::MAX);
    }
    let signal = match end.status.strip_prefix("signal: ").unwrap_or_default() {
        "hangup" => 1,
        "interrupt" => 2,
        "quit" => 3,
        "illegal instruction" => 4,
        "trace/breakpoint trap" => 5,
        "aborted" => 6,
        "bus error" => 7,
        "floating point exception" => 8,
        "killed" => 9,
        "segmentation fault" => 11,
        "broken pipe" => SIGPIPE,
        "alarm clock" => 14,
        "terminated" => 15,
        _ => return u8::MAX,
    };
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_a_shells() {
        let end = |exited, exit_code, status: &str| EndEvent {
            exited,
            exit_code,
            status: status.into(),
            error: None,
        };
        for (end, code) in [
            (end(true, 0, "exit status 0"), 0),
            (end(true, 3, "exit status 3"), 3),
            (end(true, 255, "exit status 255"), 255),
            (end(false, -1, "signal: killed"), 137),
            (end(false, -1, "signal: terminated"), 143),
            (end(false, -1, "signal: something new"), 255),
        ] {
            assert_eq!(exit_code(&end), code, "{end:?}");
        }
    }

    #[test]
    fn without_a_command_it_is_a_login_shell() {
        let exec = Exec {
            tty: true,
            no_stdin: false,
            user: None,
            workdir: None,
            env: vec![Pair("TERM".into(), "dumb".into())],
            timeout: None,
            id: String::new(),
            command: Vec::new(),
        };
        let process = request(exec).process.unwrap();
        assert_eq!((process.cmd.as_str(), process.args.len()), ("/bin/bash", 2));
        assert_eq!(process.envs.get("TERM").map(String::as_str), Some("dumb"));
    }
}
