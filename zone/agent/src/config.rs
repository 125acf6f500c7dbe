//! How the agent is started. The only reader of its arguments and environment.

use std::{collections::BTreeMap, net::SocketAddr, os::fd::OwnedFd};

use nix::{
    libc,
    sys::socket::{SockType, getsockopt, sockopt},
};
use sandboxo_channel::Claim;

const USAGE: &str = "usage: sandboxo-agent [--listen ADDRESS:PORT [--token TOKEN] [--user NAME] \
                     [--workdir PATH]]; without --listen, standard input is the channel to a zone";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) struct Config {
    pub(crate) mode: Mode,
    /// Given to every process.
    pub(crate) path: String,
}

pub(crate) enum Mode {
    /// In a sandbox: standard input is the channel.
    Channel(OwnedFd),
    /// On a host, for itself: no zone, and claimed at once.
    Listen { address: SocketAddr, claim: Box<Claim> },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{0}\n{USAGE}")]
    Argument(String),
    #[error("standard input is not a SEQPACKET socket\n{USAGE}")]
    NoChannel,
}

impl Config {
    #[expect(clippy::disallowed_methods, reason = "this is the one that reads the environment")]
    pub(crate) fn from_process() -> Result<Self, ConfigError> {
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        let mode = match Options::parse(std::env::args().skip(1))?.into_listen()? {
            Some(mode) => mode,
            None => Mode::Channel(channel().ok_or(ConfigError::NoChannel)?),
        };
        Ok(Self { mode, path: path.unwrap_or_else(|| DEFAULT_PATH.to_owned()) })
    }
}

#[expect(unsafe_code, reason = "a descriptor that comes as a number")]
fn channel() -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: nothing else in the program uses standard input, and a closed one is told by the
    // next call.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) };
    let is_channel = getsockopt(&fd, sockopt::SockType) == Ok(SockType::SeqPacket);
    is_channel.then_some(fd)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    listen: Option<String>,
    token: Option<String>,
    user: Option<String>,
    workdir: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            let place = match name.as_str() {
                "--listen" => &mut options.listen,
                "--token" => &mut options.token,
                "--user" => &mut options.user,
                "--workdir" => &mut options.workdir,
                _ => return Err(ConfigError::Argument(format!("unknown argument {name}"))),
            };
            let missing = || ConfigError::Argument(format!("{name} needs a value"));
            *place = Some(arguments.next().ok_or_else(missing)?);
        }
        Ok(options)
    }

    fn into_listen(self) -> Result<Option<Mode>, ConfigError> {
        let Some(listen) = self.listen else {
            return match (&self.token, &self.user, &self.workdir) {
                (None, None, None) => Ok(None),
                _ => Err(ConfigError::Argument("these arguments need --listen".into())),
            };
        };
        let bad = |_error| ConfigError::Argument(format!("{listen} is no address with a port"));
        let address = listen.parse().map_err(bad)?;
        let claim = Claim {
            sandbox_id: "local".into(),
            template_id: "local".into(),
            env: BTreeMap::new(),
            hostname: String::new(),
            agent_token: self.token,
            user: self.user.unwrap_or_else(|| "root".into()),
            workdir: self.workdir,
            nameservers: Vec::new(),
            pids: 0,
            authority: None,
        };
        Ok(Some(Mode::Listen { address, claim: Box::new(claim) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Option<Mode>, String> {
        let options = Options::parse(arguments.iter().map(|argument| (*argument).to_owned()));
        options.and_then(Options::into_listen).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_read() {
        assert!(parse(&[]).unwrap().is_none());
        let Ok(Some(Mode::Listen { address, claim })) =
            parse(&["--listen", "127.0.0.1:0", "--token", "t", "--user", "u"])
        else {
            panic!("listens")
        };
        assert_eq!(address.to_string(), "127.0.0.1:0");
        assert_eq!((claim.agent_token.as_deref(), claim.user.as_str()), (Some("t"), "u"));
        for (arguments, wanted) in [
            (&["--listen"][..], "--listen needs a value"),
            (&["--listen", "here"], "here is no address"),
            (&["--token", "t"], "need --listen"),
            (&["--what"], "unknown argument --what"),
        ] {
            let error = parse(arguments).err().unwrap();
            assert!(error.contains(wanted) && error.contains("usage:"), "{error}");
        }
    }
}
