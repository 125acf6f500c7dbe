//! What a sandbox starts from, and how it is called.
//!
//! A reference is `id`, `alias`, `alias:tag`, `team/alias` or `team/alias:tag`. The only tag that
//! exists is `default`, which is also what a missing one means.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use sandboxo_zone_protocol::{
    BuildId, ImageDigest, NetworkPolicy, Platform, Resources, Shape, TeamId, TemplateId, Timestamp,
};

use crate::ImageName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRecord {
    pub id: TemplateId,
    pub team: TeamId,
    /// Unique in the team; stays with the id when the image is replaced.
    pub name: TemplateName,
    /// Other teams may use it.
    pub public: bool,
    pub image: ImageDigest,
    pub image_bytes: u64,
    /// What recipes call the image.
    pub image_names: BTreeSet<ImageName>,
    /// Of the image: a new one with each import.
    pub build: BuildId,
    pub resources: Resources,
    pub platform: Platform,
    /// What every process finds, where nobody says otherwise.
    pub env: BTreeMap<String, String>,
    pub user: String,
    /// `None`: the user's home.
    pub workdir: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl TemplateRecord {
    /// Of a sandbox for which nobody asks anything else; egress rules are no part of it.
    pub fn shape(&self) -> Shape {
        let Self { image, resources, platform, .. } = *self;
        Shape { image, resources, platform, mode: NetworkPolicy::OPEN.mode }
    }
}

/// An alias: 1 to 128 lowercase letters, digits, `-` and `_`. Parsing lowers capitals.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateName(String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRef {
    /// The name before the slash.
    pub team: Option<String>,
    /// Without team and tag. May also be the text of an id.
    pub name: TemplateName,
    pub tag: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateNameError {
    #[error(
        "{0:?} is not a template name: it has 1 to 128 letters, digits, dashes and underscores"
    )]
    Name(String),
    #[error(
        "{0:?} is not a template tag: it has 1 to 128 letters, digits, dashes, underscores and dots, and is no UUID"
    )]
    Tag(String),
}

const MAX_LENGTH: usize = 128;

impl TemplateName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateName {
    type Err = TemplateNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.to_ascii_lowercase();
        let fits = (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(of_a_name);
        if fits { Ok(Self(name)) } else { Err(TemplateNameError::Name(text.to_owned())) }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TemplateRef {
    pub const DEFAULT_TAG: &str = "default";
}

impl FromStr for TemplateRef {
    type Err = TemplateNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (team, rest) = match text.split_once('/') {
            Some((team, rest)) => (Some(team.parse::<TemplateName>()?.0), rest),
            None => (None, text),
        };
        let (name, tag) = match rest.split_once(':') {
            Some((name, tag)) => (name, parse_tag(tag)?),
            None => (rest, Self::DEFAULT_TAG.to_owned()),
        };
        Ok(Self { team, name: name.parse()?, tag })
    }
}

fn parse_tag(text: &str) -> Result<String, TemplateNameError> {
    let tag = text.to_ascii_lowercase();
    let fits = (1..=MAX_LENGTH).contains(&tag.len())
        && tag.bytes().all(|b| of_a_name(b) || b == b'.')
        // A build's id is a tag of its own kind.
        && tag.parse::<BuildId>().is_err();
    if fits { Ok(tag) } else { Err(TemplateNameError::Tag(text.to_owned())) }
}

fn of_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let name = |text: &str| Err(TemplateNameError::Name(text.to_owned()));
        let tag = |text: &str| Err(TemplateNameError::Tag(text.to_owned()));
        for (text, expected) in [
            ("base", Ok((None, "base", "default"))),
            ("Base_1-x", Ok((None, "base_1-x", "default"))),
            ("base:v1.2", Ok((None, "base", "v1.2"))),
            ("acme/base", Ok((Some("acme"), "base", "default"))),
            ("acme/base:v1", Ok((Some("acme"), "base", "v1"))),
            ("", name("")),
            ("/base", name("")),
            ("a/b/c", name("b/c")),
            (":x", name("")),
            ("b\u{e9}", name("b\u{e9}")),
            ("base.x", name("base.x")),
            ("base:", tag("")),
            ("base:a b", tag("a b")),
            (
                "base:0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11",
                tag("0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11"),
            ),
        ] {
            let parsed = text.parse::<TemplateRef>();
            let parsed = parsed
                .as_ref()
                .map(|parsed| (parsed.team.as_deref(), parsed.name.as_str(), parsed.tag.as_str()));
            assert_eq!(parsed, expected.as_ref().copied(), "{text:?}");
        }
        assert!("a".repeat(129).parse::<TemplateName>().is_err());
    }
}
