//! The arguments of `sandboxo keeper`. They are few and come from a program.

use std::{ffi::OsString, os::fd::RawFd, path::PathBuf};

pub(crate) const USAGE: &str = "usage: sandboxo keeper --socket PATH --log PATH --build NAME \
     [--hide-proc-sys-net] [--cgroup DIR]... [--resume DESCRIPTOR] | --reads FORMAT";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Serve(Args),
    /// Whether this program takes over what a keeper hands over in this format.
    Reads(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
    /// The zone's name for this program; the keeper only keeps it.
    pub(crate) build: String,
    /// In a mount namespace of its own.
    pub(crate) hide_proc_sys_net: bool,
    /// Control groups to live in.
    pub(crate) cgroups: Vec<PathBuf>,
    /// What the program before, in this same process, has handed over.
    pub(crate) resume: Option<RawFd>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{0} needs a number")]
    NoNumber(String),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is not an argument of the keeper")]
    Unknown(String),
}

impl Args {
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, ArgsError> {
        let (mut socket, mut log, mut build, mut hide) = (None, None, None, false);
        let (mut cgroups, mut resume) = (Vec::new(), None);
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let name = name.to_string_lossy().into_owned();
            let mut value = || args.next().ok_or_else(|| ArgsError::NoValue(name.clone()));
            let no_number = |_error| ArgsError::NoNumber(name.clone());
            match name.as_str() {
                "--socket" => socket = Some(value()?.into()),
                "--log" => log = Some(value()?.into()),
                "--build" => build = Some(value()?.to_string_lossy().into_owned()),
                "--hide-proc-sys-net" => hide = true,
                "--cgroup" => cgroups.push(value()?.into()),
                "--resume" => {
                    resume = Some(value()?.to_string_lossy().parse().map_err(no_number)?);
                }
                "--reads" => {
                    let format = value()?.to_string_lossy().parse().map_err(no_number)?;
                    return Ok(Asked::Reads(format));
                }
                _ => return Err(ArgsError::Unknown(name)),
            }
        }
        Ok(Asked::Serve(Self {
            socket: socket.ok_or(ArgsError::Missing("--socket"))?,
            log: log.ok_or(ArgsError::Missing("--log"))?,
            build: build.ok_or(ArgsError::Missing("--build"))?,
            hide_proc_sys_net: hide,
            cgroups,
            resume,
        }))
    }

    /// What `parse` makes the same of.
    pub(crate) fn line(&self) -> Vec<OsString> {
        let Self { socket, log, build, hide_proc_sys_net, cgroups, resume } = self;
        let mut line: Vec<OsString> = ["--socket".into(), socket.into()].into();
        line.extend(["--log".into(), log.into(), "--build".into(), build.into()]);
        if *hide_proc_sys_net {
            line.push("--hide-proc-sys-net".into());
        }
        line.extend(cgroups.iter().flat_map(|dir| ["--cgroup".into(), dir.into()]));
        if let Some(descriptor) = resume {
            line.extend(["--resume".into(), descriptor.to_string().into()]);
        }
        line
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
            build: "b".into(),
            hide_proc_sys_net: true,
            cgroups: vec!["/c".into(), "/d".into()],
            resume: Some(9),
        };
        let least = Args {
            hide_proc_sys_net: false,
            cgroups: vec![],
            resume: None,
            socket: "/s".into(),
            log: "/l".into(),
            build: "b".into(),
        };
        for args in [&full, &least] {
            assert_eq!(Args::parse(args.line()), Ok(Asked::Serve(args.clone())));
        }
        for (line, expected) in [
            (
                "--socket /s --log /l --build b --hide-proc-sys-net --cgroup /c --cgroup /d --resume 9",
                Ok(Asked::Serve(full)),
            ),
            ("--log /l --build b --socket /s", Ok(Asked::Serve(least))),
            ("--reads 3", Ok(Asked::Reads(3))),
            ("--log /l --build b", Err(ArgsError::Missing("--socket"))),
            ("--socket /s --build b", Err(ArgsError::Missing("--log"))),
            ("--socket /s --log /l", Err(ArgsError::Missing("--build"))),
            ("--socket", Err(ArgsError::NoValue("--socket".into()))),
            ("--resume x", Err(ArgsError::NoNumber("--resume".into()))),
            ("--reads -1", Err(ArgsError::NoNumber("--reads".into()))),
            ("--socket /s --verbose", Err(ArgsError::Unknown("--verbose".into()))),
        ] {
            assert_eq!(Args::parse(line.split(' ').map(OsString::from)), expected, "{line}");
        }
    }
}
