//! Volumes: folders that outlive sandboxes.

use std::{fmt, str::FromStr};

use sandboxo_zone_protocol::{TeamId, Timestamp, VolumeId, ZoneName};

const MAX_LENGTH: usize = 128;

/// Letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a volume's name has 1 to {MAX_LENGTH} letters, digits, '-' and '_'")]
pub struct NotAVolumeName;

impl FromStr for VolumeName {
    type Err = NotAVolumeName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let fits = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(of_a_name);
        fits.then(|| Self(text.to_owned())).ok_or(NotAVolumeName)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    pub id: VolumeId,
    pub team: TeamId,
    /// Unique in its team.
    pub name: VolumeName,
    /// Where it lies.
    pub zone: ZoneName,
    pub size_mib: u32,
    pub created_at: Timestamp,
    pub phase: VolumePhase,
}

/// Only a ready one is seen by anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumePhase {
    /// Nobody was answered. If the process ends here, it is removed.
    Making,
    Ready,
    /// Removed, now or at the next start.
    Doomed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let (longest, longer) = ("n".repeat(128), "n".repeat(129));
        for (text, fits) in [
            ("my-data_2", true),
            ("Data", true),
            (&longest, true),
            (&longer, false),
            ("", false),
            ("a/b", false),
            ("..", false),
            ("a b", false),
            ("ü", false),
        ] {
            assert_eq!(text.parse::<VolumeName>().is_ok(), fits, "{text:?}");
        }
    }
}
