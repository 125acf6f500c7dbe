//! 32 bytes as text.

use crate::DecodeError;

pub(crate) fn print(bytes: &[u8; 32]) -> String {
    sandboxo_zone_protocol::ImageDigest::from_bytes(*bytes).to_string()
}

pub(crate) fn parse(text: &str) -> Result<[u8; 32], DecodeError> {
    let bad = || DecodeError::Value("not 64 hex digits".into());
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return Err(bad());
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2).ok_or_else(bad)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_not_hex| bad())?;
    }
    Ok(bytes)
}
