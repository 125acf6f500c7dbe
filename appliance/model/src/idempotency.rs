//! One create per key: what a repeat is answered from.

use std::{fmt, str::FromStr};

use sandboxo_zone_protocol::{SandboxId, TeamId, Timestamp};

/// Kept for a while after the create, whatever becomes of the sandbox. The outcome is the
/// sandbox's own record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub team: TeamId,
    pub key: IdempotencyKey,
    /// SHA-256 of what was asked.
    pub fingerprint: [u8; 32],
    pub sandbox: SandboxId,
    pub expires_at: Timestamp,
}

/// 1 to 255 lowercase letters, digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to 255 lowercase letters, digits and dashes")]
pub struct NotAnIdempotencyKey;

impl IdempotencyKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IdempotencyKey {
    type Err = NotAnIdempotencyKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=255).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        fits.then(|| Self(text.to_owned())).ok_or(NotAnIdempotencyKey)
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_key() {
        for (text, fits) in [
            ("a", true),
            ("0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11", true),
            (&"a".repeat(255), true),
            (&"a".repeat(256), false),
            ("", false),
            ("A", false),
            ("a b", false),
            ("a_b", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(text.parse::<IdempotencyKey>().is_ok(), fits, "{text:?}");
        }
    }
}
