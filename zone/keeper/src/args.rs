//! The arguments of `sandboxo keeper`. They are few and come from a program.

use std::{ffi::OsString, path::PathBuf};

pub(crate) const USAGE: &str = "usage: sandboxo keeper --socket PATH --log PATH \
     [--hide-proc-sys-net] [--cgroup DIR]...";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
    /// In a mount namespace of its own.
    pub(crate) hide_proc_sys_net: bool,
    /// Control groups to live in.
    pub(crate) cgroups: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is not an argument of the keeper")]
    Unknown(String),
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, ArgsError> {
        let (mut socket, mut log, mut hide) = (None, None, false);
        let mut cgroups = Vec::new();
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy().into_owned();
            let mut value =
                || args.next().map(PathBuf::from).ok_or_else(|| ArgsError::NoValue(name.clone()));
            match name.as_str() {
                "--socket" => socket = Some(value()?),
                "--log" => log = Some(value()?),
                "--hide-proc-sys-net" => hide = true,
                "--cgroup" => cgroups.push(value()?),
                _ => return Err(ArgsError::Unknown(name)),
            }
        }
        Ok(Self {
            socket: socket.ok_or(ArgsError::Missing("--socket"))?,
            log: log.ok_or(ArgsError::Missing("--log"))?,
            hide_proc_sys_net: hide,
            cgroups,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let full = Args {
            socket: "/s".into(),
            log: "/l".into(),
            hide_proc_sys_net: true,
            cgroups: vec!["/c".into(), "/d".into()],
        };
        let least = Args {
            hide_proc_sys_net: false,
            cgroups: vec![],
            socket: "/s".into(),
            log: "/l".into(),
        };
        for (line, expected) in [
            ("--socket /s --log /l --hide-proc-sys-net --cgroup /c --cgroup /d", Ok(full)),
            ("--log /l --socket /s", Ok(least)),
            ("--log /l", Err(ArgsError::Missing("--socket"))),
            ("--socket /s", Err(ArgsError::Missing("--log"))),
            ("--socket", Err(ArgsError::NoValue("--socket".into()))),
            ("--socket /s --verbose", Err(ArgsError::Unknown("--verbose".into()))),
        ] {
            assert_eq!(Args::parse(line.split(' ').map(OsString::from)), expected, "{line}");
        }
    }
}
