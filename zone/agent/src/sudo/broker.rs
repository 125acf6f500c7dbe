//! The agent's side: who asks, may they, run it, tell how it ended.

use std::{
    collections::BTreeMap,
    io::{self, IoSliceMut},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt},
    },
    unistd::{Gid, Pid, Uid, fchown, isatty},
};
use sandboxo_tasks::{Stop, Tasks};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use super::{EXITED, Folder, MAX_REQUEST, REFUSED, Request, SIGNALED, address};
use crate::{
    agent::Agent,
    process::{Exit, Launch, Reaper, Spawner, candidates, environment, pty, to_argument, to_block},
    users::{Accounts, User},
};

/// Members may become anybody, as on the systems that images are made of.
const GROUPS: [&str; 3] = ["sudo", "wheel", "admin"];
const SECURE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// For a request, whose bytes are all on their way.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn listen(agent: Arc<Agent>, reaper: Arc<Reaper>, tasks: &Tasks) -> io::Result<()> {
    let listener = std::os::unix::net::UnixListener::bind_addr(&address()?)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let connections = tasks.clone();
    tasks.spawn_critical("sudo", |stop| accept(listener, agent, reaper, connections, stop));
    Ok(())
}

async fn accept(
    listener: UnixListener,
    agent: Arc<Agent>,
    reaper: Arc<Reaper>,
    tasks: Tasks,
    stop: Stop,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _address)) => {
                let (agent, reaper) = (agent.clone(), reaper.clone());
                drop(tasks.spawn("sudo command", |_stop| async move {
                    let owner = agent
                        .identity()
                        .map(|it| Owner { accounts: it.accounts(), trust: it.trust.clone() });
                    if attend(stream, owner.as_ref(), &reaper).await.is_err() {
                        // The caller has gone.
                    }
                }));
            }
            // Out of descriptors; they come back when commands end.
            Err(_error) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What is known once the sandbox is somebody's.
struct Owner {
    accounts: Arc<Accounts>,
    trust: Vec<(&'static str, String)>,
}

async fn attend(mut stream: UnixStream, owner: Option<&Owner>, reaper: &Reaper) -> io::Result<()> {
    // Credentials that come with a message: gVisor answers a question after the peer's with the
    // asker's own.
    setsockopt(&stream, sockopt::PassCred, &true)?;
    let received = match timeout(PATIENCE, receive(&stream)).await {
        Ok(received) => received?,
        Err(_elapsed) => return Ok(()),
    };
    let Received { request, files, caller } = received;
    let started = start(&request, &files, caller, owner).map(|pid| (pid, reaper.expect(pid)));
    // The command has its own.
    drop(files);
    let (pid, exit) = match started {
        Ok(started) => started,
        Err(why) => {
            stream.write_u8(REFUSED).await?;
            return stream.write_all(why.as_bytes()).await;
        }
    };
    let (mut signals, mut answer) = stream.split();
    tokio::pin!(exit);
    loop {
        tokio::select! {
            exit = &mut exit => {
                let (kind, number) = match exit {
                    Ok(Exit::Code(code)) => (EXITED, code),
                    Ok(Exit::Signal { number, .. }) => (SIGNALED, number),
                    Err(_stopping) => return Ok(()),
                };
                answer.write_u8(kind).await?;
                return answer.write_i32(number).await;
            }
            signal = signals.read_u8() => {
                let number = signal.as_ref().map_or(Signal::SIGHUP as i32, |byte| i32::from(*byte));
                pass_on(pid, number);
                if signal.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn pass_on(pid: Pid, number: i32) {
    match Signal::try_from(number) {
        Ok(Signal::SIGWINCH) => pty::tell_size_to(pid),
        Ok(signal) => {
            // It leads its session, so its number is its group's.
            if killpg(pid, signal).is_err() {
                // It has ended; its exit is on the way.
            }
        }
        Err(_no_signal) => {}
    }
}

struct Received {
    request: Request,
    files: Vec<OwnedFd>,
    /// Checked by the kernel when they were sent.
    caller: Option<UnixCredentials>,
}

#[derive(Default)]
struct Attached {
    files: Vec<OwnedFd>,
    caller: Option<UnixCredentials>,
}

async fn receive(stream: &UnixStream) -> io::Result<Received> {
    let mut attached = Attached::default();
    let mut text: Vec<u8> = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream
            .async_io(Interest::READABLE, || receive_piece(stream, &mut piece, &mut attached))
            .await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.extend_from_slice(piece.get(..read).unwrap_or_default());
        let Some((length, body)) = text.split_first_chunk::<4>() else { continue };
        let length = u32::from_be_bytes(*length);
        if length > MAX_REQUEST || attached.files.len() > 3 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Some(body) = body.get(..length as usize) {
            let request = serde_json::from_slice(body)?;
            let Attached { files, caller } = attached;
            return Ok(Received { request, files, caller });
        }
    }
}

fn receive_piece(
    stream: &UnixStream,
    piece: &mut [u8],
    attached: &mut Attached,
) -> io::Result<usize> {
    let mut control = cmsg_space!([i32; 3], UnixCredentials);
    let mut slices = [IoSliceMut::new(piece)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut control), flags) {
        Err(Errno::EAGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
        other => other?,
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmCredentials(caller) = control {
            // What comes later without any is nobody's in gVisor.
            attached.caller.get_or_insert(caller);
        } else if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                #[expect(unsafe_code, reason = "descriptors that come as numbers")]
                // SAFETY: the kernel has just made it for us.
                attached.files.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
    Ok(message.bytes)
}

fn start(
    request: &Request,
    files: &[OwnedFd],
    caller: Option<UnixCredentials>,
    owner: Option<&Owner>,
) -> Result<Pid, String> {
    let Request { user, command, folder, environment: kept, terminal } = request;
    let Owner { accounts, trust } = owner.ok_or("the sandbox is nobody's yet")?;
    let caller = caller.ok_or("the kernel does not say who asks")?;
    let caller_name = accounts.user_name(caller.uid());
    if !allowed(caller.uid(), accounts) {
        return Err(format!("{caller_name} is not in the group sudo"));
    }
    let [stdin, stdout, stderr] = files else { return Err("it takes three files".to_owned()) };
    let user = find(user, accounts).ok_or_else(|| format!("unknown user {user}"))?;
    let folder = match folder {
        Folder::At(folder) => folder,
        Folder::Home => &user.home,
    };
    let first = command.first().ok_or("it takes a command")?;
    let told = BTreeMap::from([
        ("SHELL".to_owned(), "/bin/bash".to_owned()),
        ("SUDO_USER".to_owned(), caller_name),
        ("SUDO_UID".to_owned(), caller.uid().to_string()),
        ("SUDO_GID".to_owned(), caller.gid().to_string()),
        ("SUDO_COMMAND".to_owned(), command.join(" ")),
    ]);
    let variables = environment(SECURE_PATH, &user, trust, kept, &told);
    let bad = |error: crate::process::BadText| error.to_string();
    let texts = |texts: &[String]| texts.iter().map(|text| to_argument(text)).collect();
    let programs: Result<Vec<_>, _> = texts(&candidates(first, SECURE_PATH));
    let arguments: Result<Vec<_>, _> = texts(command);
    let launch = Launch {
        programs: &programs.map_err(bad)?,
        arguments: &arguments.map_err(bad)?,
        environment: &to_block(&variables).map_err(bad)?,
        folder: &to_argument(folder).map_err(bad)?,
        user: &user,
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        terminal: *terminal,
    };
    if *terminal {
        give(stdin, &user).map_err(|errno| format!("the terminal: {}", errno.desc()))?;
    }
    Spawner::new().spawn(&launch).map_err(|error| format!("{first}: {error}"))
}

/// Some programs look whose the terminal is. Of other files this is no way to become the owner.
fn give(terminal: &OwnedFd, user: &User) -> Result<(), Errno> {
    if !isatty(terminal)? {
        return Err(Errno::ENOTTY);
    }
    fchown(terminal, Some(Uid::from_raw(user.uid)), None::<Gid>)
}

/// By name, or by number after a hash sign, as sudo has it.
fn find(user: &str, accounts: &Accounts) -> Option<User> {
    let name = match user.strip_prefix('#') {
        Some(number) => accounts.user_name(number.parse().ok()?),
        None => user.to_owned(),
    };
    accounts.user(&name).ok()
}

fn allowed(uid: u32, accounts: &Accounts) -> bool {
    let member = |user: User| {
        user.groups.iter().any(|gid| GROUPS.contains(&accounts.group_name(*gid).as_str()))
    };
    uid == 0 || accounts.user(&accounts.user_name(uid)).is_ok_and(member)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/tmp:/bin/bash\nother:x:1001:1001::/tmp:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:user\nuser:x:1000:\nother:x:1001:\n";

    #[test]
    fn members_of_the_group_may() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        assert!(allowed(0, &accounts));
        assert!(allowed(1000, &accounts));
        assert!(!allowed(1001, &accounts));
        assert!(!allowed(4242, &accounts));
        assert_eq!(find("#1000", &accounts).unwrap().name, "user");
        assert!(find("nobody", &accounts).is_none());
    }

    /// Runs as root, as the agent does: changing the user needs it.
    async fn sudo(request: &Request) -> (Vec<u8>, String) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut output, into) = std::io::pipe().unwrap();
        let text = serde_json::to_vec(request).unwrap();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        let files = [into.as_raw_fd(); 3];
        let own = UnixCredentials::new();
        let control = [ControlMessage::ScmRights(&files), ControlMessage::ScmCredentials(&own)];
        let message = [IoSlice::new(&length), IoSlice::new(&text)];
        sendmsg::<()>(ours.as_raw_fd(), &message, &control, MsgFlags::empty(), None).unwrap();
        drop(into);
        let tasks = Tasks::new();
        let reaper = Arc::new(Reaper::default());
        let deaths = Reaper::listen().unwrap();
        let same = reaper.clone();
        tasks.spawn_critical("reaper", |stop| same.run(deaths, stop));
        let trust = vec![("TRUSTS", "whom it is told to".to_owned())];
        let owner = Owner { accounts: Arc::new(Accounts::parse(PASSWD, GROUP)), trust };
        attend(theirs, Some(&owner), &reaper).await.unwrap();
        let mut answer = Vec::new();
        let mut ours = ours;
        ours.read_to_end(&mut answer).await.unwrap();
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        (answer, said)
    }

    fn request(user: &str, script: &str) -> Request {
        Request {
            user: user.into(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            folder: Folder::At("/usr".into()),
            environment: [("FOO".to_owned(), "bar".to_owned())].into(),
            terminal: false,
        }
    }

    #[tokio::test]
    async fn a_command_runs_as_the_one_it_is_for() {
        let (answer, said) =
            sudo(&request("user", "id -u; pwd; echo $FOO $HOME $SUDO_USER, $TRUSTS; exit 3")).await;
        assert_eq!(said, "1000\n/usr\nbar /tmp root, whom it is told to\n");
        assert_eq!(answer, [EXITED, 0, 0, 0, 3]);
    }

    #[tokio::test]
    async fn a_signal_is_told() {
        let (answer, _) = sudo(&request("root", "kill -TERM $$")).await;
        assert_eq!(answer, [SIGNALED, 0, 0, 0, 15]);
    }

    #[tokio::test]
    async fn refusals_say_why() {
        let (answer, said) = sudo(&request("ghost", "id")).await;
        assert_eq!((answer.first(), said.as_str()), (Some(&REFUSED), ""));
        assert_eq!(&answer[1..], b"unknown user ghost");
        let mut gone = request("root", "id");
        gone.command = vec!["no-such-program".into()];
        let (answer, _) = sudo(&gone).await;
        assert_eq!(&answer[1..], b"no-such-program: No such file or directory");
    }
}
