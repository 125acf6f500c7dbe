//! The program `sudo`: options, the request, signals on, the exit code back.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
    sync::atomic::{AtomicI32, Ordering},
};

use nix::{
    libc,
    sys::{
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction},
        socket::{ControlMessage, MsgFlags, UnixCredentials, sendmsg},
    },
};

use super::{
    EXITED, Folder, REFUSED, Request, SIGNALED, address,
    terminal::{Terminal, follow_size},
};

const USAGE: &str = "usage: sudo [-EHins] [-u user] [VAR=value] [command [argument ...]]";

/// What a command keeps of its caller's environment without -E.
const KEPT: [&str; 6] = ["TERM", "COLORTERM", "LANG", "LANGUAGE", "DISPLAY", "TZ"];
/// The agent's to say, whatever the caller has.
const SET: [&str; 5] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL"];

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Run(Request),
    /// Nothing to do: there is no password to be asked for or forgotten.
    Nothing,
    Say(String),
}

/// Whether this program was called by that name.
pub(crate) fn is_meant() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&name).file_name().is_some_and(|name| name == "sudo")
}

pub(crate) fn run() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned()).collect();
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let folder = std::env::current_dir().map(|folder| folder.to_string_lossy().into_owned());
    let folder = folder.unwrap_or_else(|_gone| "/".to_owned());
    match parse(&arguments, &environment, folder) {
        Ok(Asked::Run(request)) => match ask(request) {
            Ok(code) => code,
            Err(error) => complain(&format!("the sandbox's agent does not answer: {error}")),
        },
        Ok(Asked::Nothing) => ExitCode::SUCCESS,
        Ok(Asked::Say(text)) => {
            if writeln!(io::stdout(), "{text}").is_err() { /* nobody listens */ }
            ExitCode::SUCCESS
        }
        Err(wrong) => complain(&wrong),
    }
}

fn complain(text: &str) -> ExitCode {
    if writeln!(io::stderr(), "sudo: {text}").is_err() { /* the exit code says it */ }
    ExitCode::FAILURE
}

fn parse(
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    folder: String,
) -> Result<Asked, String> {
    let (mut user, mut keep_all, mut login, mut shell, mut only_validate) =
        ("root".to_owned(), false, false, false, false);
    let mut rest = arguments.iter();
    let mut words: Vec<String> = Vec::new();
    while let Some(argument) = rest.next() {
        let value = |attached: &str, rest: &mut std::slice::Iter<'_, String>| {
            if attached.is_empty() { rest.next().cloned() } else { Some(attached.to_owned()) }
        };
        match argument.as_str() {
            "--" => {
                words.extend(rest.by_ref().cloned());
                break;
            }
            "--user" => user = rest.next().cloned().ok_or("--user needs a name")?,
            "--preserve-env" => keep_all = true,
            "--login" => login = true,
            "--shell" => shell = true,
            "--validate" | "--reset-timestamp" | "--remove-timestamp" => only_validate = true,
            "--non-interactive" | "--set-home" | "--stdin" | "--background" => {}
            "--help" => return Ok(Asked::Say(USAGE.to_owned())),
            "--version" => return Ok(Asked::Say("sudo of the sandbox's agent".to_owned())),
            long if long.starts_with("--user=") => {
                long.trim_start_matches("--user=").clone_into(&mut user);
            }
            // Which ones does not matter: more than asked for is kept.
            long if long.starts_with("--preserve-env=") => keep_all = true,
            long if long.starts_with("--") => {
                return Err(format!("{long}: no such option\n{USAGE}"));
            }
            short if short.starts_with('-') && short.len() > 1 => {
                for (at, letter) in short.char_indices().skip(1) {
                    let attached = short.get(at + letter.len_utf8()..).unwrap_or_default();
                    match letter {
                        'u' => {
                            user = value(attached, &mut rest).ok_or("-u needs a name")?;
                            break;
                        }
                        // Groups come with the user; a prompt is never shown.
                        'g' | 'p' | 'C' | 'T' | 'r' | 't' => {
                            value(attached, &mut rest).ok_or("the option needs a value")?;
                            break;
                        }
                        'E' => keep_all = true,
                        'i' => login = true,
                        's' => shell = true,
                        'v' | 'k' | 'K' => only_validate = true,
                        'n' | 'H' | 'S' | 'b' | 'P' | 'A' => {}
                        'h' => return Ok(Asked::Say(USAGE.to_owned())),
                        'V' => return Ok(Asked::Say("sudo of the sandbox's agent".to_owned())),
                        other => return Err(format!("-{other}: no such option\n{USAGE}")),
                    }
                }
            }
            _ => {
                words.push(argument.clone());
                words.extend(rest.by_ref().cloned());
                break;
            }
        }
    }
    // `#1000` is a number in sudo's words.
    if user.is_empty() {
        return Err("-u needs a name".to_owned());
    }
    let mut kept: BTreeMap<String, String> = environment
        .iter()
        .filter(|(name, _)| keep_all || KEPT.contains(&name.as_str()) || name.starts_with("LC_"))
        .filter(|(name, _)| !SET.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    while let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) {
        if name.is_empty() || name.contains('/') {
            break;
        }
        kept.insert(name.to_owned(), value.to_owned());
        words.remove(0);
    }
    if words.is_empty() && only_validate && !login && !shell {
        return Ok(Asked::Nothing);
    }
    if words.is_empty() && !login && !shell {
        return Err(USAGE.to_owned());
    }
    let command = if login {
        in_shell("/bin/bash", &["-l"], &words)
    } else if shell {
        in_shell(environment.get("SHELL").map_or("/bin/bash", String::as_str), &[], &words)
    } else {
        words
    };
    let folder = if login { Folder::Home } else { Folder::At(folder) };
    Ok(Asked::Run(Request { user, command, folder, environment: kept, terminal: false }))
}

fn in_shell(shell: &str, options: &[&str], words: &[String]) -> Vec<String> {
    let mut command = vec![shell.to_owned()];
    command.extend(options.iter().map(|option| (*option).to_owned()));
    if !words.is_empty() {
        let quoted: Vec<String> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        command.push("-c".to_owned());
        command.push(quoted.join(" "));
    }
    command
}

/// Where the handler writes signals to.
static AGENT: AtomicI32 = AtomicI32::new(-1);

extern "C" fn pass_on(signal: libc::c_int) {
    if signal == libc::SIGWINCH {
        follow_size();
    }
    let byte = u8::try_from(signal).unwrap_or(0);
    #[expect(unsafe_code, reason = "only bare calls are allowed in a handler")]
    // SAFETY: one byte that lives here, to a descriptor that stays open while handlers are set.
    unsafe {
        libc::write(AGENT.load(Ordering::Relaxed), (&raw const byte).cast(), 1);
    }
}

fn ask(mut request: Request) -> io::Result<ExitCode> {
    let mut agent = UnixStream::connect_addr(&address()?)?;
    let (terminal, end) = Terminal::open()?.unzip();
    request.terminal = terminal.is_some();
    let text = serde_json::to_vec(&request)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes();
    let files = [0, 1, 2].map(|fd| match &end {
        Some(end) if is_terminal(fd) => end.as_raw_fd(),
        _ if is_open(fd) => fd,
        _ => agent.as_raw_fd(),
    });
    let message = [IoSlice::new(&length)];
    let own = UnixCredentials::new();
    let control = [ControlMessage::ScmRights(&files), ControlMessage::ScmCredentials(&own)];
    let sent = sendmsg::<()>(agent.as_raw_fd(), &message, &control, MsgFlags::empty(), None)?;
    agent.write_all(length.get(sent..).unwrap_or_default())?;
    agent.write_all(&text)?;
    drop(end);
    AGENT.store(agent.as_raw_fd(), Ordering::Relaxed);
    for signal in
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH]
    {
        let action =
            SigAction::new(SigHandler::Handler(pass_on), SaFlags::SA_RESTART, SigSet::empty());
        #[expect(unsafe_code, reason = "signal handlers")]
        // SAFETY: the handler makes one bare call.
        unsafe { sigaction(signal, &action) }?;
    }
    if let Some(terminal) = terminal {
        terminal.relay(agent.as_fd())?;
    }
    let mut kind = [0; 1];
    agent.read_exact(&mut kind)?;
    let [kind] = kind;
    if kind == REFUSED {
        let mut why = String::new();
        agent.read_to_string(&mut why)?;
        return Ok(complain(&why));
    }
    let mut number = [0; 4];
    agent.read_exact(&mut number)?;
    let number = i32::from_be_bytes(number);
    match kind {
        EXITED => Ok(ExitCode::from(u8::try_from(number & 0xff).unwrap_or(u8::MAX))),
        SIGNALED => {
            // As if it had been this process.
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            if let Ok(signal) = Signal::try_from(number) {
                #[expect(unsafe_code, reason = "signal handlers")]
                // SAFETY: the default action runs no code of ours.
                if unsafe { sigaction(signal, &default) }.is_ok() && raise(signal).is_err() {
                    // Then the number alone tells.
                }
            }
            Ok(ExitCode::from(u8::try_from(128 + (number & 0x7f)).unwrap_or(u8::MAX)))
        }
        _ => Err(io::Error::other("it said what was not asked")),
    }
}

fn is_terminal(fd: i32) -> bool {
    #[expect(unsafe_code, reason = "a number that may stand for no file")]
    // SAFETY: asks about the process's own table.
    let answer = unsafe { libc::isatty(fd) };
    answer == 1
}

fn is_open(fd: i32) -> bool {
    #[expect(unsafe_code, reason = "a number that may stand for no file")]
    // SAFETY: reads flags of the process's own table.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        let arguments: Vec<String> =
            line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let environment =
            [("FOO", "bar"), ("TERM", "dumb"), ("HOME", "/home/user"), ("PATH", "/x")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        parse(&arguments, &environment.into(), "/work".to_owned())
    }

    fn request(line: &str) -> (String, Vec<String>, Vec<String>, bool) {
        let Ok(Asked::Run(Request { user, command, folder, environment, .. })) = asked(line) else {
            panic!("{line} is no command");
        };
        let environment = environment.iter().map(|(name, value)| format!("{name}={value}"));
        (user, command, environment.collect(), folder == Folder::Home)
    }

    #[test]
    fn options_are_sudos() {
        for (line, user, command, environment, home) in [
            ("id -u", "root", &["id", "-u"][..], &["TERM=dumb"][..], false),
            ("-u www id", "www", &["id"], &["TERM=dumb"], false),
            ("-uwww -- -id", "www", &["-id"], &["TERM=dumb"], false),
            ("-nEu www id", "www", &["id"], &["FOO=bar", "TERM=dumb"], false),
            (
                "--user=www -H A=b C=d id E=f",
                "www",
                &["id", "E=f"],
                &["A=b", "C=d", "TERM=dumb"],
                false,
            ),
            ("-i", "root", &["/bin/bash", "-l"], &["TERM=dumb"], true),
            (
                "-i echo a'b",
                "root",
                &["/bin/bash", "-l", "-c", r"'echo' 'a'\''b'"],
                &["TERM=dumb"],
                true,
            ),
            ("-s", "root", &["/bin/bash"], &["TERM=dumb"], false),
        ] {
            let owned =
                |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let expected = (user.to_owned(), owned(command), owned(environment), home);
            assert_eq!(request(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_command() {
        assert_eq!(asked("-v"), Ok(Asked::Nothing));
        assert_eq!(asked("-n -v"), Ok(Asked::Nothing));
        for line in ["", "-u", "-Z id", "--what id"] {
            assert!(asked(line).is_err(), "{line}");
        }
    }
}
