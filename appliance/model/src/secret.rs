//! Secrets: values that only the hosts they are meant for ever see.

use std::{collections::BTreeMap, fmt, str::FromStr};

use sandboxo_zone_protocol::{SecretId, TeamId, Timestamp};

use crate::{Field, Invalid};

const MAX_NAME: usize = 128;
const MAX_VALUE_BYTES: usize = 64 << 10;
const MAX_METADATA: usize = 32;
const MAX_METADATA_KEY: usize = 128;
const MAX_METADATA_VALUE: usize = 1024;
const MAX_METADATA_BYTES: usize = 8192;

/// Lowercase letters, digits, `-` and `_`; capitals are made small.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to {MAX_NAME} letters, digits, '-' and '_', and does not begin with 'sec_'"
)]
pub struct NotASecretName;

impl FromStr for SecretName {
    type Err = NotASecretName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.to_ascii_lowercase();
        let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let fits = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(of_a_name)
            && !name.starts_with(SecretId::PREFIX);
        fits.then_some(Self(name)).ok_or(NotASecretName)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    pub id: SecretId,
    pub team: TeamId,
    /// Unique in its team.
    pub name: SecretName,
    /// Grows by one with each new value.
    pub version: u64,
    pub metadata: BTreeMap<String, String>,
    /// The value of this version, of use only with the appliance's key.
    pub sealed: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// It goes into headers of HTTP requests, so it holds nothing that ends one.
pub fn value(value: &str) -> Result<(), Invalid> {
    let wrong = |rule: String| Err(Invalid::new(Field::Value, rule));
    if !(1..=MAX_VALUE_BYTES).contains(&value.len()) {
        return wrong(format!("must have between 1 and {MAX_VALUE_BYTES} bytes"));
    }
    if value.contains(|character: char| character.is_control() && character != '\t') {
        return wrong("can't hold control characters, since it goes into headers".to_owned());
    }
    Ok(())
}

pub fn metadata(metadata: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let wrong = |rule: String| Err(Invalid::new(Field::Metadata, rule));
    if metadata.len() > MAX_METADATA {
        return wrong(format!("can't have more than {MAX_METADATA} entries"));
    }
    if !metadata.keys().all(|key| (1..=MAX_METADATA_KEY).contains(&key.len())) {
        return wrong(format!("must have keys of 1 to {MAX_METADATA_KEY} bytes"));
    }
    if metadata.values().any(|value| value.len() > MAX_METADATA_VALUE) {
        return wrong(format!("can't have values of more than {MAX_METADATA_VALUE} bytes"));
    }
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        return wrong(format!("can't have more than {MAX_METADATA_BYTES} bytes in all"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let (longest, longer) = ("n".repeat(128), "n".repeat(129));
        for (text, stored) in [
            ("Api_Key-2", Some("api_key-2")),
            ("sec", Some("sec")),
            (&longest, Some(longest.as_str())),
            (&longer, None),
            ("", None),
            ("sec_a", None),
            ("SEC_a", None),
            ("a.b", None),
            ("a b", None),
            ("ä", None),
        ] {
            let name = text.parse::<SecretName>().ok().map(|name| name.to_string());
            assert_eq!(name.as_deref(), stored, "{text:?}");
        }
    }

    #[test]
    fn values() {
        let (longest, longer) = ("v".repeat(65_536), "v".repeat(65_537));
        for (text, fits) in [
            ("Bearer a\tb", true),
            ("ü", true),
            (&longest, true),
            (&longer, false),
            ("", false),
            ("a\nb", false),
            ("a\rb", false),
            ("a\0", false),
            ("a\u{7f}", false),
        ] {
            assert_eq!(value(text).is_ok(), fits, "{:.9}", text.escape_debug().to_string());
        }
    }

    #[test]
    fn metadata_is_bounded() {
        let many = |count: usize, key: usize, value: usize| {
            let entry = |at: usize| (format!("{at:0>key$}"), "v".repeat(value));
            (0..count).map(entry).collect::<BTreeMap<_, _>>()
        };
        for (count, key, value, fits) in [
            (0, 1, 0, true),
            (32, 2, 0, true),
            (33, 2, 0, false),
            (1, 128, 1024, true),
            (1, 129, 0, false),
            (1, 1, 1025, false),
            (8, 1, 1023, true),
            (8, 2, 1023, false),
        ] {
            let entries = many(count, key, value);
            assert_eq!(metadata(&entries).is_ok(), fits, "{count} × {key} + {value}");
        }
        assert!(metadata(&BTreeMap::from([(String::new(), String::new())])).is_err());
    }
}
