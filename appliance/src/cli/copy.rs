//! `sandbox cp`: files by the agent's file routes, folders as a tar stream through a process.

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use reqwest::{Body, Method};
use sandboxo_agent_proto::{
    connect::Codec,
    process::{
        ProcessConfig, ProcessInput, StartRequest, StreamInputRequest,
        process_event::{DataEvent, Event, StartEvent, data_event::Output},
        process_input::Input,
        stream_input_request,
    },
};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};
use tokio_util::io::ReaderStream;

use super::{
    Context,
    agent::{Agent, Events, selector},
    api,
    target::Target,
    words::Place,
};
use crate::output::Progress;

const PIECE: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Cp {
    /// Copy as this user: new files are theirs [default: the template's]
    #[arg(short, long)]
    user: Option<String>,
    /// A file or folder: PATH here, or ID:PATH in a sandbox
    from: Place,
    /// Where to; an existing folder gets the copy inside it
    to: Place,
}

pub(crate) async fn cp(context: &Context, cp: Cp) -> Result<()> {
    let target = Target::find(context)?;
    match (cp.from, cp.to) {
        (Place::Here(from), Place::Sandbox { id, path }) => {
            let agent = Agent::find(&target, &id, cp.user).await?;
            upload(&agent, Path::new(&from), &path).await
        }
        (Place::Sandbox { id, path }, Place::Here(to)) => {
            let agent = Agent::find(&target, &id, cp.user).await?;
            download(&agent, &path, Path::new(&to)).await
        }
        (Place::Here(_), Place::Here(_)) => bail!("one of the two must be in a sandbox: ID:PATH"),
        (Place::Sandbox { .. }, Place::Sandbox { .. }) => {
            bail!("one of the two must be here; copy in two steps")
        }
    }
}

async fn upload(agent: &Agent, from: &Path, to: &str) -> Result<()> {
    let shown = from.display();
    let meta = tokio::fs::metadata(from).await.with_context(|| format!("read {shown}"))?;
    let into = kind(agent, to).await? == Kind::Folder;
    let name = name_of(from)?;
    let to = if into { format!("{}/{name}", to.trim_end_matches('/')) } else { to.to_owned() };
    if meta.is_dir() {
        return upload_folder(agent, from, &to).await;
    }
    let file = File::open(from).await.with_context(|| format!("open {shown}"))?;
    let progress = Progress::of_bytes(&format!("copy {shown}"), meta.len());
    let bar = progress.bar();
    let pieces = ReaderStream::with_capacity(file, PIECE)
        .inspect_ok(move |piece| bar.inc(piece.len() as u64));
    let answer = agent
        .file(Method::POST, &to)
        .header("Content-Type", "application/octet-stream")
        .body(Body::wrap_stream(pieces))
        .send()
        .await;
    api::good(api::reached(answer)?).await?;
    Ok(())
}

async fn download(agent: &Agent, from: &str, to: &Path) -> Result<()> {
    match kind(agent, from).await? {
        Kind::Missing => bail!("{from}: there is no such file in the sandbox"),
        Kind::Folder => return download_folder(agent, from, to).await,
        Kind::File => {}
    }
    let to = if to.is_dir() { to.join(last_segment(from)) } else { to.to_path_buf() };
    // Identity, so that the length is the file's.
    let answer = agent.file(Method::GET, from).header("Accept-Encoding", "identity").send().await;
    let mut answer = api::good(api::reached(answer)?).await?;
    let total = answer.content_length();
    let progress = Progress::of_bytes(&format!("copy {from}"), total.unwrap_or(0));
    // A copy that is cut leaves the old file as it was.
    let part = part_of(&to)?;
    let mut file = File::create(&part).await.with_context(|| format!("make {}", part.display()))?;
    let copied = async {
        while let Some(bytes) = answer.chunk().await.context("the connection was lost")? {
            file.write_all(&bytes).await?;
            progress.add(bytes.len() as u64);
        }
        file.flush().await?;
        anyhow::Ok(())
    };
    let copied = copied.await.with_context(|| format!("copy {from}"));
    match copied {
        Ok(()) => {
            tokio::fs::rename(&part, &to).await.with_context(|| format!("make {}", to.display()))
        }
        Err(error) => {
            if tokio::fs::remove_file(&part).await.is_err() { /* it is small harm */ }
            Err(error)
        }
    }
}

/// `tar` here packs, `tar` there unpacks.
async fn upload_folder(agent: &Agent, from: &Path, to: &str) -> Result<()> {
    let progress = Progress::of_bytes(&format!("copy {}", from.display()), 0);
    let script = r#"mkdir -p -- "$1" && exec tar -x --no-same-owner -f - -C "$1""#;
    let mut events = agent.start(&shell(script, to, true), None).await?;
    let pid = started(&mut events).await?;
    let mut tar = Command::new("tar")
        .args(["-c", "-f", "-", "-C"])
        .arg(from)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start tar")?;
    let out = tar.stdout.take().context("tar's output")?;
    let start = stream_input_request::StartEvent { process: Some(selector(pid)) };
    let first = envelope(stream_input_request::Event::Start(start));
    let bar = progress.bar();
    let pieces = stream::unfold((Some(first), out), move |(first, mut out)| {
        let bar = bar.clone();
        async move {
            if let Some(first) = first {
                return Some((Ok(first), (None, out)));
            }
            let mut piece = vec![0; PIECE];
            match out.read(&mut piece).await {
                Ok(0) => None,
                Ok(length) => {
                    piece.truncate(length);
                    bar.inc(length as u64);
                    let input = Some(ProcessInput { input: Some(Input::Stdin(piece.into())) });
                    let data = stream_input_request::DataEvent { input };
                    let data = envelope(stream_input_request::Event::Data(data));
                    Some((Ok::<_, io::Error>(data), (None, out)))
                }
                Err(error) => Some((Err(error), (None, out))),
            }
        }
    });
    let feed = async {
        agent.stream_input(Body::wrap_stream(pieces)).await?;
        agent.close_stdin(pid).await
    };
    // If the other side ended, its words say why; the feed's error only says that it did.
    let (sent, ended) = tokio::join!(feed, drain(&mut events, None));
    ended.with_context(|| format!("unpack in {to}"))?;
    sent?;
    let status = tar.wait().await.context("wait for tar")?;
    if status.success() { Ok(()) } else { Err(anyhow!("tar failed here: {status}")) }
}

async fn download_folder(agent: &Agent, from: &str, to: &Path) -> Result<()> {
    let to = if to.is_dir() { to.join(last_segment(from)) } else { to.to_path_buf() };
    tokio::fs::create_dir_all(&to).await.with_context(|| format!("make {}", to.display()))?;
    let progress = Progress::of_bytes(&format!("copy {from}"), 0);
    let mut events =
        agent.start(&shell(r#"exec tar -c -f - -C "$1" ."#, from, false), None).await?;
    started(&mut events).await?;
    // tar strips leading slashes, refuses `..` and makes links last: what a sandbox packs cannot
    // leave the folder.
    let mut tar = Command::new("tar")
        .args(["-x", "--no-same-owner", "--no-overwrite-dir", "-f", "-", "-C"])
        .arg(&to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start tar")?;
    let mut input = tar.stdin.take().context("tar's input")?;
    drain(&mut events, Some((&mut input, &progress)))
        .await
        .with_context(|| format!("pack {from}"))?;
    drop(input);
    let status = tar.wait().await.context("wait for tar")?;
    if status.success() { Ok(()) } else { Err(anyhow!("tar failed here: {status}")) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Missing,
    File,
    Folder,
}

async fn kind(agent: &Agent, path: &str) -> Result<Kind> {
    let script =
        r#"if [ -d "$1" ]; then exit 10; elif [ -e "$1" ]; then exit 11; else exit 12; fi"#;
    let mut events = agent.start(&shell(script, path, false), None).await?;
    while let Some(event) = events.next().await? {
        if let Some(Event::End(end)) = event.event {
            return match end.exit_code {
                10 => Ok(Kind::Folder),
                11 => Ok(Kind::File),
                12 => Ok(Kind::Missing),
                _ => Err(anyhow!("look at {path} in the sandbox: {}", end.status)),
            };
        }
    }
    bail!("look at {path} in the sandbox: no answer")
}

/// A path is an argument, never a part of the script. A path that begins with a tilde is the
/// home's, as with the file routes.
fn shell(script: &str, path: &str, stdin: bool) -> StartRequest {
    let path = match path.strip_prefix("~/") {
        Some(rest) => rest.to_owned(),
        None if path == "~" => ".".to_owned(),
        None if path.starts_with('-') => format!("./{path}"),
        None => path.to_owned(),
    };
    let args = ["-c", script, "cp", &path].map(str::to_owned).to_vec();
    let process = ProcessConfig {
        cmd: "/bin/sh".into(),
        args,
        envs: std::collections::BTreeMap::new(),
        cwd: None,
    };
    StartRequest { process: Some(process), pty: None, tag: None, stdin: Some(stdin) }
}

async fn started(events: &mut Events) -> Result<u32> {
    match events.next().await?.and_then(|event| event.event) {
        Some(Event::Start(StartEvent { pid })) => Ok(pid),
        _ => bail!("the agent did not start the command"),
    }
}

/// Until the command ends; its output goes to `into`, its complaints into the error.
async fn drain(
    events: &mut Events,
    mut into: Option<(&mut tokio::process::ChildStdin, &Progress)>,
) -> Result<()> {
    let mut complaints = Vec::new();
    while let Some(event) = events.next().await? {
        match event.event {
            Some(Event::Data(DataEvent { output: Some(Output::Stdout(bytes)) })) => {
                if let Some((to, progress)) = &mut into {
                    to.write_all(&bytes).await.context("tar stopped reading here")?;
                    progress.add(bytes.len() as u64);
                }
            }
            Some(Event::Data(DataEvent { output: Some(Output::Stderr(bytes)) })) => {
                if complaints.len() < 4096 {
                    complaints.extend_from_slice(&bytes);
                }
            }
            Some(Event::End(end)) if end.exited && end.exit_code == 0 => return Ok(()),
            Some(Event::End(end)) => {
                let said = String::from_utf8_lossy(&complaints).trim().to_owned();
                return Err(anyhow!("{}", if said.is_empty() { end.status } else { said }));
            }
            Some(Event::Data(_) | Event::Start(_) | Event::Keepalive(_)) | None => {}
        }
    }
    bail!("the command ended without an exit code")
}

fn envelope(event: stream_input_request::Event) -> Bytes {
    Codec::Proto.envelop(&StreamInputRequest { event: Some(event) })
}

fn name_of(path: &Path) -> Result<String> {
    let whole = std::fs::canonicalize(path).with_context(|| format!("read {}", path.display()))?;
    let name = whole.file_name().unwrap_or_else(|| OsStr::new(""));
    name.to_str().map(str::to_owned).ok_or_else(|| anyhow!("{}: not UTF-8", path.display()))
}

fn last_segment(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit('/').next() {
        None | Some("" | "." | ".." | "~") => "sandbox",
        Some(name) => name,
    }
}

fn part_of(to: &Path) -> Result<PathBuf> {
    let name = to.file_name().ok_or_else(|| anyhow!("{}: not a file's name", to.display()))?;
    let mut part = name.to_owned();
    part.push(".part");
    Ok(to.with_file_name(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_never_read_as_a_script_or_an_option() {
        let arg = |path: &str| {
            let process = shell("true", path, false).process.unwrap();
            process.args.last().cloned().unwrap()
        };
        assert_eq!(arg("/tmp/$(id)"), "/tmp/$(id)");
        assert_eq!(arg("-rf"), "./-rf");
        assert_eq!(arg("~"), ".");
        assert_eq!(arg("~/x"), "x");
    }

    #[test]
    fn names_of_copies() {
        for (path, name) in [
            ("/tmp/a", "a"),
            ("/tmp/a/", "a"),
            ("a", "a"),
            ("/", "sandbox"),
            (".", "sandbox"),
            ("..", "sandbox"),
        ] {
            assert_eq!(last_segment(path), name, "{path}");
        }
        assert_eq!(part_of(Path::new("/x/y.txt")).unwrap(), Path::new("/x/y.txt.part"));
        assert!(part_of(Path::new("/")).is_err());
    }
}
