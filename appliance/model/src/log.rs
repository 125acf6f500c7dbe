//! A line of a sandbox's log, and which lines somebody asks for.

use std::{collections::BTreeMap, fmt, str::FromStr};

use sandboxo_zone_protocol::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub at: Timestamp,
    pub level: Level,
    /// Which part of the platform says it.
    pub logger: String,
    pub message: String,
    pub fields: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Forward: this moment and later. Backward: this moment and earlier.
    pub from: Option<Timestamp>,
    pub direction: Direction,
    pub limit: usize,
    /// Of this level and worse.
    pub level: Option<Level>,
    /// Part of the message.
    pub search: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// A program inside may say anything; more of one text than this is cut.
const MAX_TEXT: usize = 16 * 1024;
const MAX_FIELDS: usize = 32;

impl LogEntry {
    /// As it is kept.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut(&mut self.message);
        while self.fields.len() > MAX_FIELDS {
            self.fields.pop_last();
        }
        self.fields.values_mut().for_each(cut);
        self
    }
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

impl LogQuery {
    /// The time apart, which the order of lines answers.
    pub fn wants(&self, entry: &LogEntry) -> bool {
        let text = self.search.as_ref().is_none_or(|part| entry.message.contains(part.as_str()));
        text && self.level.is_none_or(|level| entry.level >= level)
    }
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a level (debug, info, warn or error)")]
pub struct NotALevel;

impl FromStr for Level {
    type Err = NotALevel;

    fn from_str(text: &str) -> Result<Self, NotALevel> {
        let levels = [Self::Debug, Self::Info, Self::Warn, Self::Error];
        levels.into_iter().find(|level| level.name() == text).ok_or(NotALevel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(level: Level, message: &str) -> LogEntry {
        LogEntry {
            at: Timestamp::UNIX_EPOCH,
            level,
            logger: "sandbox".into(),
            message: message.into(),
            fields: BTreeMap::new(),
        }
    }

    #[test]
    fn who_is_wanted() {
        let all = LogQuery {
            from: None,
            direction: Direction::Forward,
            limit: 1,
            level: None,
            search: None,
        };
        let of = |level| LogQuery { level: Some(level), ..all.clone() };
        let with = |part: &str| LogQuery { search: Some(part.to_owned()), ..all.clone() };
        for (query, entry, wanted) in [
            (all.clone(), entry(Level::Debug, ""), true),
            (of(Level::Info), entry(Level::Debug, ""), false),
            (of(Level::Info), entry(Level::Info, ""), true),
            (of(Level::Warn), entry(Level::Error, ""), true),
            (with("end"), entry(Level::Info, "sandbox ended"), true),
            (with("End"), entry(Level::Info, "sandbox ended"), false),
        ] {
            assert_eq!(query.wants(&entry), wanted, "{query:?} {entry:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let kept = entry(Level::Info, &"é".repeat(MAX_TEXT)).bounded().message;
        assert_eq!(kept.chars().filter(|c| *c == 'é').count(), MAX_TEXT / 2);
        assert!(kept.ends_with('…'));
        assert_eq!(entry(Level::Info, "short").bounded().message, "short");
    }

    #[test]
    fn levels_have_names() {
        for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert_eq!("INFO".parse::<Level>(), Err(NotALevel));
    }
}
