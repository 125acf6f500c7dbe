//! An API key, without the key.

use sandboxo_zone_protocol::{ApiKeyId, TeamId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    pub id: ApiKeyId,
    pub team: TeamId,
    pub name: String,
    /// SHA-256 of the whole key. A key has 160 random bits, so no salt and no slow hash.
    pub hash: [u8; 32],
    pub mask: KeyMask,
    pub created_at: Timestamp,
}

/// What may be shown of a key after it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMask {
    pub prefix: String,
    pub value_length: u32,
    pub first: String,
    pub last: String,
}

impl KeyMask {
    pub const PREFIX: &str = "e2b_";

    /// Of the part behind the prefix.
    pub fn of(value: &str) -> Self {
        let shown = 4.min(value.len() / 4);
        Self {
            prefix: Self::PREFIX.to_owned(),
            value_length: u32::try_from(value.len()).unwrap_or(u32::MAX),
            first: value.chars().take(shown).collect(),
            last: value.chars().skip(value.chars().count().saturating_sub(shown)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_shows_eight_characters_of_forty() {
        let mask = KeyMask::of("0123456789abcdef0123456789abcdef01234567");
        assert_eq!((mask.first.as_str(), mask.last.as_str()), ("0123", "4567"));
        assert_eq!(mask.value_length, 40);
        assert_eq!(KeyMask::of("abc").first, "");
    }
}
