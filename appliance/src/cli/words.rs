//! Small things that are written on a command line.

use std::{str::FromStr, time};

/// `90`, `90s`, `5m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duration(pub(crate) time::Duration);

impl FromStr for Duration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = "must be a number of seconds, or a number with s, m, h or d";
        let (number, unit) = match text.char_indices().last() {
            Some((at, 's')) => (text.get(..at), 1),
            Some((at, 'm')) => (text.get(..at), 60),
            Some((at, 'h')) => (text.get(..at), 3600),
            Some((at, 'd')) => (text.get(..at), 86_400),
            _ => (Some(text), 1),
        };
        let number: u64 = number.and_then(|number| number.parse().ok()).ok_or(bad)?;
        number
            .checked_mul(unit)
            .map(|seconds| Self(time::Duration::from_secs(seconds)))
            .ok_or("is too long")
    }
}

/// `NAME=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) String, pub(crate) String);

impl FromStr for Pair {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self(name.into(), value.into())),
            _ => Err("must be NAME=VALUE"),
        }
    }
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) volume: String,
    pub(crate) path: String,
}

impl FromStr for Mount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some((volume, path)) if !volume.is_empty() && path.starts_with('/') => {
                Ok(Self { volume: volume.into(), path: path.into() })
            }
            _ => Err("must be VOLUME:/PATH"),
        }
    }
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Here(String),
    Sandbox { id: String, path: String },
}

impl FromStr for Place {
    type Err = &'static str;

    /// As with scp, a colon before the first slash makes it a path in a sandbox.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("", _)) => Err("must be PATH or ID:PATH"),
            Some((id, path)) if !id.contains('/') => {
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Sandbox { id: id.into(), path: path.into() })
            }
            _ if text.is_empty() => Err("must be PATH or ID:PATH"),
            _ => Ok(Self::Here(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("5m", Some(300)),
            ("2h", Some(7200)),
            ("1d", Some(86_400)),
            ("0", Some(0)),
            ("", None),
            ("m", None),
            ("-1", None),
            ("1.5h", None),
            ("99999999999999999999", None),
            ("18446744073709551615d", None),
        ] {
            let parsed: Result<Duration, _> = text.parse();
            assert_eq!(
                parsed.ok(),
                seconds.map(|s| Duration(time::Duration::from_secs(s))),
                "{text}"
            );
        }
    }

    #[test]
    fn places() {
        let inside = |id: &str, path: &str| Place::Sandbox { id: id.into(), path: path.into() };
        for (text, place) in [
            ("a/b", Some(Place::Here("a/b".into()))),
            ("./a:b", Some(Place::Here("./a:b".into()))),
            ("sbx-loc-x:/tmp/a:b", Some(inside("sbx-loc-x", "/tmp/a:b"))),
            ("sbx-loc-x:", Some(inside("sbx-loc-x", "."))),
            (":/x", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), place, "{text}");
        }
    }

    #[test]
    fn mounts() {
        let mount = Mount { volume: "data".into(), path: "/a:b".into() };
        assert_eq!("data:/a:b".parse(), Ok(mount));
        for wrong in ["data", "data:", "data:a", ":/a", ""] {
            assert!(wrong.parse::<Mount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!("A=b=c".parse(), Ok(Pair("A".into(), "b=c".into())));
        assert_eq!("A=".parse(), Ok(Pair("A".into(), String::new())));
        assert!("A".parse::<Pair>().is_err());
        assert!("=b".parse::<Pair>().is_err());
    }
}
