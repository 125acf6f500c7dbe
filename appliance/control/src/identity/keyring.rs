//! The keys that sign tokens, as values: which one signs, and which ones are shown, at a moment.
//!
//! A new key is shown before it signs, and an old one as long as a token of it may be good, so that
//! a relying party that keeps what it was shown never meets a token of a key that it does not know.

use std::time::Duration;

use jsonwebtoken::{
    Algorithm, EncodingKey,
    jwk::{Jwk, JwkSet, PublicKeyUse, ThumbprintHash},
};
use sandboxo_model::rules;
use sandboxo_zone_protocol::{Random, Secret, Timestamp};
use serde::{Deserialize, Serialize};

use super::token::LIFE;

/// How long whoever asks for the keys may keep them.
pub(super) const CACHED: Duration = Duration::from_mins(5);
/// From when a key is shown until it signs. Some keep keys a little longer than they were told.
const AHEAD: Duration = CACHED.saturating_mul(2);
/// From when a key signs no more until it is shown no more. Some have a clock that is late.
const BEHIND: Duration = LIFE.saturating_mul(2);

/// At least one, oldest first.
#[derive(Debug, Clone)]
pub struct Keyring {
    first: Key,
    later: Vec<Key>,
}

#[derive(Clone)]
pub(super) struct Key {
    scalar: Secret,
    /// From when it signs. The first signs before that too.
    from: Timestamp,
    pub(super) signs: EncodingKey,
    pub(super) shown: Jwk,
    /// Its RFC 7638 thumbprint.
    pub(super) id: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("these are no keys for tokens of identities: {0}")]
pub struct NotAKeyring(String);

/// A new key that does not sign yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a new key already, {id}, which signs from {from} on")]
pub struct NewKey {
    pub id: String,
    pub from: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Row {
    key: Secret,
    from: Timestamp,
}

impl Keyring {
    const FORMAT: &str = "1";

    pub fn new(random: &dyn Random, now: Timestamp) -> Self {
        Self { first: Key::random(random, now), later: Vec::new() }
    }

    #[expect(clippy::expect_used, reason = "the literal is a key; a test of each that uses it")]
    pub(super) fn of_nobody() -> Self {
        let key = Key::of(&Secret::new("1".repeat(64)), Timestamp::UNIX_EPOCH);
        Self { first: key.expect("a P-256 key"), later: Vec::new() }
    }

    /// A line with the number of the format, and JSON.
    pub fn read(text: &str) -> Result<Self, NotAKeyring> {
        let (format, json) = text.split_once('\n').unwrap_or((text, ""));
        if format != Self::FORMAT {
            return Err(NotAKeyring(format!("format {format:.10?} is not known")));
        }
        // What is wrong with the JSON may quote a key.
        let rows: Vec<Row> =
            serde_json::from_str(json).map_err(|_unread| NotAKeyring("not its JSON".into()))?;
        let mut keys = rows.iter().map(|Row { key, from }| {
            Key::of(key, *from).ok_or_else(|| NotAKeyring("one is not a P-256 key".into()))
        });
        let first = keys.next().ok_or_else(|| NotAKeyring("there is none".into()))??;
        Ok(Self { first, later: keys.collect::<Result<_, _>>()? })
    }

    #[expect(clippy::expect_used, reason = "rows are texts and moments")]
    pub fn text(&self) -> Secret {
        let row = |key: &Key| Row { key: key.scalar.clone(), from: key.from };
        let rows: Vec<Row> = self.keys().map(row).collect();
        let json = serde_json::to_string(&rows).expect("rows serialize");
        Secret::new(format!("{}\n{json}", Self::FORMAT))
    }

    fn keys(&self) -> impl DoubleEndedIterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.later)
    }

    pub(super) fn signing(&self, now: Timestamp) -> &Key {
        self.later.iter().rev().find(|key| key.from <= now).unwrap_or(&self.first)
    }

    pub(super) fn shown(&self, now: Timestamp) -> JwkSet {
        let kept = self.kept(now);
        JwkSet { keys: kept.keys().map(|key| key.shown.clone()).collect() }
    }

    /// Without those that nobody needs any more.
    fn kept(&self, now: Timestamp) -> Self {
        let is_over = |next: &Key| rules::after(next.from, BEHIND) <= now;
        match self.later.iter().rposition(is_over) {
            None => self.clone(),
            Some(at) => {
                let mut later = self.later.iter().skip(at).cloned();
                let first = later.next().unwrap_or_else(|| self.first.clone());
                Self { first, later: later.collect() }
            }
        }
    }

    /// With another key, which signs later. `Err`: there is one already.
    pub(super) fn with_another(
        &self,
        random: &dyn Random,
        now: Timestamp,
    ) -> Result<(Self, NewKey), NewKey> {
        if let Some(key) = self.later.last().filter(|key| key.from > now) {
            return Err(NewKey { id: key.id.clone(), from: key.from });
        }
        let mut next = self.kept(now);
        let key = Key::random(random, rules::after(now, AHEAD));
        let new = NewKey { id: key.id.clone(), from: key.from };
        next.later.push(key);
        Ok((next, new))
    }
}

impl Key {
    fn random(random: &dyn Random, from: Timestamp) -> Self {
        loop {
            let scalar = crate::tokens::token(random);
            // One in four thousand million is none.
            if let Some(key) = Self::of(&scalar, from) {
                return key;
            }
        }
    }

    /// `scalar`: 32 bytes in hex.
    fn of(scalar: &Secret, from: Timestamp) -> Option<Self> {
        let signs = EncodingKey::from_ec_der(&pkcs8(&bytes(scalar.expose())?));
        let mut shown = Jwk::from_encoding_key(&signs, Algorithm::ES256).ok()?;
        let id = shown.thumbprint(ThumbprintHash::SHA256).ok()?;
        shown.common.key_id = Some(id.clone());
        shown.common.public_key_use = Some(PublicKeyUse::Signature);
        Some(Self { scalar: scalar.clone(), from, signs, shown, id })
    }
}

fn bytes(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// RFC 5958 around RFC 5915: a private key of P-256, without its public half.
fn pkcs8(scalar: &[u8; 32]) -> Vec<u8> {
    const HEAD: [u8; 35] = [
        0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02,
        0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x27, 0x30, 0x25,
        0x02, 0x01, 0x01, 0x04, 0x20,
    ];
    [&HEAD[..], scalar].concat()
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::SystemRandom;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn shown(ring: &Keyring, second: i64) -> Vec<String> {
        let keys = ring.shown(at(second)).keys;
        keys.into_iter().map(|key| key.common.key_id.unwrap()).collect()
    }

    /// As another implementation has them (RFC 7517, A.2, with RFC 7638).
    #[test]
    fn golden() {
        let text = "1\n[{\"key\":\"f3bd0c07a81fb932781ed52752f60cc89a6be5e51934fe01938ddb55d8f77801\",\"from\":\"2026-01-02T03:04:05Z\"}]";
        let ring = Keyring::read(text).unwrap();
        assert_eq!(ring.text().expose(), text);
        let key = serde_json::to_value(&ring.shown(at(0)).keys[0]).unwrap();
        assert_eq!(
            key,
            serde_json::json!({
                "kty": "EC",
                "crv": "P-256",
                "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
                "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
                "use": "sig",
                "alg": "ES256",
                "kid": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
            })
        );
        assert!(!format!("{ring:?}").contains("f3bd"));
    }

    #[test]
    fn a_new_key_is_shown_before_it_signs_and_an_old_one_after() {
        let ring = Keyring::new(&SystemRandom, at(1000));
        let old = ring.first.id.clone();
        // Also where the clock was set back.
        assert_eq!((&ring.signing(at(0)).id, shown(&ring, 0)), (&old, vec![old.clone()]));
        let (ring, new) = ring.with_another(&SystemRandom, at(2000)).unwrap();
        assert_eq!(new.from, at(2600));
        let ring = Keyring::read(ring.text().expose()).unwrap();
        assert_eq!(ring.with_another(&SystemRandom, at(2599)).unwrap_err(), new);
        let both = vec![old.clone(), new.id.clone()];
        for (second, signs, all) in [
            (2000, &old, &both),
            (2599, &old, &both),
            (2600, &new.id, &both),
            (3199, &new.id, &both),
            (3200, &new.id, &both[1..].to_vec()),
        ] {
            assert_eq!((&ring.signing(at(second)).id, &shown(&ring, second)), (signs, all));
        }
        let (ring, newer) = ring.with_another(&SystemRandom, at(2700)).unwrap();
        assert_eq!(shown(&ring, 2700), [old, new.id.clone(), newer.id.clone()]);
        assert_eq!(shown(&ring, 3300), [new.id.clone(), newer.id.clone()]);
        let (ring, _) = ring.with_another(&SystemRandom, at(10_000)).unwrap();
        assert_eq!(ring.keys().count(), 2, "what nobody needs is gone");
    }

    #[test]
    fn what_is_no_keyring() {
        let key =
            |hex: &str| format!("1\n[{{\"key\":\"{hex}\",\"from\":\"2026-01-02T03:04:05Z\"}}]");
        assert!(Keyring::read(&key(&"1".repeat(64))).is_ok());
        for text in [
            "",
            "1",
            "2\n[]",
            "1\n[]",
            "1\n{}",
            &key(&"0".repeat(64)),
            &key(&"f".repeat(64)),
            &key(&"1".repeat(63)),
            &key(&"+1".repeat(32)),
            &key(&"é".repeat(32)),
        ] {
            let error = Keyring::read(text).unwrap_err().to_string();
            assert!(!error.contains("1111"), "{error}");
        }
    }
}
