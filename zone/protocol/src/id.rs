//! Identifiers. Each kind is its own type, so one can't be passed where another is wanted.
//!
//! A sandbox id has two spellings of one value: `sbx_ord_<20>` in records, and the host label
//! `sbx-ord-<20>` where DNS names are made of it. Parsers take both.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Random;

/// Digits and lowercase letters without the ones that look alike (i, l, o).
const ALPHABET: &[u8; 33] = b"0123456789abcdefghjkmnpqrstuvwxyz";
const TAIL: usize = 20;
const CODE: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind}")]
pub struct ParseIdError {
    kind: &'static str,
}

macro_rules! text_form {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

/// Three lowercase letters, such as `ord`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Region([u8; 3]);
text_form!(Region);

impl FromStr for Region {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(bytes) if bytes.iter().all(u8::is_ascii_lowercase) => Ok(Self(bytes)),
            _ => Err(ParseIdError { kind: "region (three lowercase letters)" }),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&self.0))
    }
}

/// The last three characters of every id that a zone was first asked for, so that an edge router
/// needs one suffix route per zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ZoneCode([u8; CODE]);
text_form!(ZoneCode);

impl ZoneCode {
    pub fn random(random: &dyn Random) -> Self {
        Self(characters(random))
    }
}

impl FromStr for ZoneCode {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        of_alphabet(text).map(Self).ok_or(ParseIdError { kind: "zone code" })
    }
}

impl fmt::Display for ZoneCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&self.0))
    }
}

macro_rules! regional_ids {
    ($($(#[$doc:meta])* $name:ident: $prefix:literal, $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name {
            region: Region,
            tail: [u8; TAIL],
        }
        text_form!($name);

        impl $name {
            pub fn random(region: Region, zone: ZoneCode, random: &dyn Random) -> Self {
                let mut tail: [u8; TAIL] = characters(random);
                if let Some(end) = tail.last_chunk_mut::<CODE>() {
                    *end = zone.0;
                }
                Self { region, tail }
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let parse = || {
                    let rest = text.strip_prefix($prefix)?;
                    let separator = rest.chars().next().filter(|c| matches!(c, '_' | '-'))?;
                    let (region, tail) = rest.get(1..)?.split_once(separator)?;
                    Some(Self { region: region.parse().ok()?, tail: of_alphabet(tail)? })
                };
                parse().ok_or(ParseIdError { kind: $kind })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}_{}"), self.region, ascii(&self.tail))
            }
        }
    )*};
}

regional_ids! {
    /// One sandbox, from create to kill; pause and resume keep it.
    SandboxId: "sbx", "sandbox id";
    /// One volume.
    VolumeId: "vol", "volume id";
}

impl SandboxId {
    pub fn region(&self) -> Region {
        self.region
    }

    /// The zone that was first asked for it.
    pub fn zone_code(&self) -> ZoneCode {
        ZoneCode(self.tail.last_chunk().copied().unwrap_or_default())
    }

    /// The spelling for host names and the E2B surface: `sbx-ord-<20>`.
    pub fn label(&self) -> String {
        format!("sbx-{}-{}", self.region, ascii(&self.tail))
    }
}

/// What a zone keeps of a sandbox at one moment, to start from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CheckpointId([u8; TAIL]);
text_form!(CheckpointId);

impl CheckpointId {
    pub fn random(random: &dyn Random) -> Self {
        Self(characters(random))
    }
}

impl FromStr for CheckpointId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        of_alphabet(text).map(Self).ok_or(ParseIdError { kind: "checkpoint id" })
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&self.0))
    }
}

/// A team's secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SecretId([u8; TAIL]);
text_form!(SecretId);

impl SecretId {
    pub const PREFIX: &str = "sec_";

    pub fn random(random: &dyn Random) -> Self {
        Self(characters(random))
    }
}

impl FromStr for SecretId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let tail = text.strip_prefix(Self::PREFIX).and_then(of_alphabet);
        tail.map(Self).ok_or(ParseIdError { kind: "secret id" })
    }
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, ascii(&self.0))
    }
}

/// What a sandbox starts from. The spelling has only letters and digits, as E2B's has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TemplateId([u8; TAIL]);
text_form!(TemplateId);

impl TemplateId {
    pub fn random(random: &dyn Random) -> Self {
        Self(characters(random))
    }
}

impl FromStr for TemplateId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        of_alphabet(text).map(Self).ok_or(ParseIdError { kind: "template id" })
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&self.0))
    }
}

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Uuid);
        text_form!($name);

        impl $name {
            /// Of nothing that anybody made.
            pub const NIL: Self = Self(Uuid::nil());

            pub fn random(random: &dyn Random) -> Self {
                let mut bytes = [0; 16];
                random.fill(&mut bytes);
                Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self).map_err(|_invalid| ParseIdError { kind: stringify!($name) })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    )*};
}

uuid_ids! {
    /// Owns records. Clients parse it as a UUID.
    TeamId;
    /// One API key; the key itself is never stored.
    ApiKeyId;
    /// One attempt to make a version of a template.
    BuildId;
    /// One life of a sandbox: from its start, or from a resume.
    ExecutionId;
}

/// A zone's name: a DNS label of at most 32 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ZoneName(String);
text_form!(ZoneName);

impl ZoneName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ZoneName {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=32).contains(&text.len())
            && text.bytes().all(label)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseIdError { kind: "zone name (a DNS label of at most 32 characters)" })
        }
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 of what an image was made from, in lowercase hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ImageDigest([u8; 32]);
text_form!(ImageDigest);

impl ImageDigest {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for ImageDigest {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut bytes = [0; 32];
            if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
                return None;
            }
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
            }
            Some(Self(bytes))
        };
        parse().ok_or(ParseIdError { kind: "image digest (64 lowercase hex digits)" })
    }
}

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn of_alphabet<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = <[u8; N]>::try_from(text.as_bytes()).ok()?;
    bytes.iter().all(|byte| ALPHABET.contains(byte)).then_some(bytes)
}

/// Uniform over the alphabet: bytes past the last whole multiple of 33 are drawn again.
fn characters<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut out = [0; N];
    for place in &mut out {
        *place = loop {
            let mut byte = [0];
            random.fill(&mut byte);
            let drawn = usize::from(byte[0]);
            if drawn < ALPHABET.len() * 7 {
                break ALPHABET.get(drawn % ALPHABET.len()).copied().unwrap_or(b'0');
            }
        };
    }
    out
}

fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    fn id(text: &str) -> Option<SandboxId> {
        text.parse().ok()
    }

    #[test]
    fn a_sandbox_id_has_two_spellings_of_one_value() {
        let zone: ZoneCode = "k7q".parse().unwrap();
        let one = SandboxId::random("ord".parse().unwrap(), zone, &SystemRandom);
        assert_eq!(id(&one.to_string()), Some(one));
        assert_eq!(id(&one.label()), Some(one));
        assert!(one.to_string().starts_with("sbx_ord_"));
        assert!(one.label().starts_with("sbx-ord-"));
        assert_eq!(one.zone_code(), zone);
        assert_eq!(one.region().to_string(), "ord");
    }

    #[test]
    fn what_is_not_a_sandbox_id() {
        for text in [
            "",
            "sbx",
            "nonexistingsandbox",
            "sbx_ord_0123456789abcdefghj",   // 19
            "sbx_ord_0123456789abcdefghjkm", // 21
            "sbx_ord_0123456789abcdefghil",  // i and l
            "sbx_ord-0123456789abcdefghjk",  // mixed separators
            "sbx_ORD_0123456789abcdefghjk",
            "sbx_ord_0123456789ABCDEFGHJK",
            "sbx_ord_0123456789abcdefghj\u{e9}",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
        assert!(id("sbx_ord_0123456789abcdefghjk").is_some());
    }

    #[test]
    fn other_ids_round_trip() {
        let template = TemplateId::random(&SystemRandom);
        assert_eq!(template.to_string().parse(), Ok(template));
        let team = TeamId::random(&SystemRandom);
        assert_eq!(team.to_string().parse(), Ok(team));
        let digest = ImageDigest::from_bytes([0xab; 32]);
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("local1".parse::<ZoneName>().is_ok());
        assert!("-x".parse::<ZoneName>().is_err());
        assert!("a".repeat(33).parse::<ZoneName>().is_err());
    }
}
