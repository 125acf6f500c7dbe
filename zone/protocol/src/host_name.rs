//! Names of hosts, as rules and connections have them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A name in ASCII and lower case, without the dot at its end; never an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a host")]
pub struct NotHostName;

/// Which names a rule means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NamePattern {
    Any,
    One(HostName),
    /// All that end in it, at any depth; not the name itself.
    Below(HostName),
}

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = NotHostName;

    /// In any case, with or without the dot at its end.
    fn from_str(text: &str) -> Result<Self, NotHostName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // Whatever ends in a number is taken for an address somewhere.
        let last = text.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|it| it.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .is_some_and(|hex| hex.bytes().all(|it| it.is_ascii_hexdigit()));
        if text.len() > LONGEST || is_number || !text.split('.').all(is_label) {
            return Err(NotHostName);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl NamePattern {
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => one == name,
            Self::Below(above) => {
                let below = name.0.strip_suffix(&above.0);
                below.is_some_and(|it| it.ends_with('.'))
            }
        }
    }
}

impl FromStr for NamePattern {
    type Err = NotHostName;

    fn from_str(text: &str) -> Result<Self, NotHostName> {
        match text.strip_prefix("*.") {
            Some(above) => above.parse().map(Self::Below),
            None if text == "*" => Ok(Self::Any),
            None => text.parse().map(Self::One),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(name) => name.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

impl TryFrom<String> for HostName {
    type Error = NotHostName;

    fn try_from(text: String) -> Result<Self, NotHostName> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl TryFrom<String> for NamePattern {
    type Error = NotHostName;

    fn try_from(text: String) -> Result<Self, NotHostName> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_names_a_pattern_means() {
        for (pattern, name, expected) in [
            ("example.com", "example.com", true),
            ("example.com", "EXAMPLE.com.", true),
            ("Example.COM.", "example.com", true),
            ("example.com", "www.example.com", false),
            ("example.com", "notexample.com", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "notexample.com", false),
            ("*.example.com", "example.com.evil.org", false),
            ("*", "anything.at.all", true),
            ("xn--bcher-kva.example", "xn--bcher-kva.example", true),
            ("_dmarc.example.com", "_dmarc.example.com", true),
        ] {
            let pattern: NamePattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_name() {
        let long = format!("{}.com", "a".repeat(64));
        let whole = "abcdefg.".repeat(32);
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "1.2.3.4",
            "1.2.3.4.",
            "127.1",
            "2130706433",
            "0x7f.0x1",
            "::1",
            "[::1]",
            "a b",
            "a/b",
            "a:80",
            "bücher.example",
            "-a.b",
            "a-.b",
            "a\0.b",
            &long,
            &whole,
        ] {
            assert_eq!(text.parse::<HostName>(), Err(NotHostName), "{text:?}");
        }
        for text in ["*.", "**", "*a.b", "a.*.b", "*.*", "*.1.2.3.4", "*.0.0.0.0/0"] {
            assert_eq!(text.parse::<NamePattern>(), Err(NotHostName), "{text:?}");
        }
    }
}
