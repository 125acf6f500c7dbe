//! Secrets that control makes.

use std::fmt::Write as _;

use sandboxo_model::KeyMask;
use sandboxo_zone_protocol::{Random, Secret};

/// For an agent, or for traffic: 256 random bits in hex.
pub(crate) fn token(random: &dyn Random) -> Secret {
    Secret::new(hex::<32>(random))
}

/// `e2b_` and 40 hex digits, which is what old clients check for.
pub(crate) fn api_key(random: &dyn Random) -> Secret {
    Secret::new(format!("{}{}", KeyMask::PREFIX, hex::<20>(random)))
}

fn hex<const N: usize>(random: &dyn Random) -> String {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
        if write!(text, "{byte:02x}").is_err() { /* a String takes everything */ }
        text
    })
}
