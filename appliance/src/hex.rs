//! Bytes as lowercase hex digits.

use std::fmt::Write as _;

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        if write!(text, "{byte:02x}").is_err() { /* a String takes all that is written */ }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_a_byte() {
        assert_eq!(hex(&[0, 9, 0xab, 255]), "0009abff");
    }
}
