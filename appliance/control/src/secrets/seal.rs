//! Values of secrets at rest: XChaCha20-Poly1305, with a nonce of its own for each, bound to the
//! secret and version, or the proxy, that it was sealed for.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use sandboxo_zone_protocol::{Random, Secret};
use sha2::{Digest as _, Sha256};

const NONCE: usize = 24;

fn cipher(key: &Secret) -> XChaCha20Poly1305 {
    // The key's text has 256 random bits, so no slow hash and no salt.
    XChaCha20Poly1305::new(&Sha256::digest(key.expose()))
}

#[expect(clippy::expect_used, reason = "only a text of 256 GiB can't be sealed")]
pub(super) fn seal(key: &Secret, bound_to: &str, value: &str, random: &dyn Random) -> String {
    let mut nonce = [0; NONCE];
    random.fill(&mut nonce);
    let payload = Payload { msg: value.as_bytes(), aad: bound_to.as_bytes() };
    let sealed = cipher(key).encrypt(&XNonce::from(nonce), payload).expect("a value of 64 KiB");
    STANDARD.encode([&nonce[..], &sealed].concat())
}

/// `None`: sealed with another key, or for something else.
pub(super) fn open(key: &Secret, bound_to: &str, sealed: &str) -> Option<Secret> {
    let bytes = STANDARD.decode(sealed).ok()?;
    let (nonce, msg) = bytes.split_first_chunk::<NONCE>()?;
    let payload = Payload { msg, aad: bound_to.as_bytes() };
    let value = cipher(key).decrypt(&XNonce::from(*nonce), payload).ok()?;
    String::from_utf8(value).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::SystemRandom;

    use super::*;

    #[test]
    fn what_is_sealed_opens_for_what_it_was_sealed_for() {
        let (key, other) = (Secret::new("key"), Secret::new("kez"));
        let sealed = seal(&key, "it 1", "hello", &SystemRandom);
        assert_eq!(open(&key, "it 1", &sealed), Some(Secret::new("hello")));
        assert!(!sealed.contains("hello"));
        assert_ne!(seal(&key, "it 1", "hello", &SystemRandom), sealed, "one nonce for two");
        for (key, bound_to) in [(&other, "it 1"), (&key, "another 1"), (&key, "it 2")] {
            assert_eq!(open(key, bound_to, &sealed), None);
        }
        for bad in ["", "?", "AAAA", &sealed[..sealed.len() - 4], &sealed.replace('A', "B")] {
            if bad != sealed {
                assert_eq!(open(&key, "it 1", bad), None, "{bad:?}");
            }
        }
    }

    /// As other libraries seal it.
    #[test]
    fn golden() {
        let sealed = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXR1umHCs/6cAG4bmTaeRgm98zlXL2";
        let bound_to = "sec_0123456789abcdefghjk 1";
        assert_eq!(open(&Secret::new("key"), bound_to, sealed), Some(Secret::new("hello")));
    }
}
