//! Tokens for the files of one volume: JSON web tokens, signed with HMAC-SHA-256 and nothing else.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use sandboxo_zone_protocol::{Secret, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};

const AUDIENCE: &str = "volumecontent";

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    exp: i64,
    iat: i64,
    sub: String,
}

#[expect(clippy::expect_used, reason = "a key is as long as we made it, and claims are JSON")]
pub(super) fn issue(key: &Secret, volume: VolumeId, now: Timestamp, life: Duration) -> String {
    let iat = now.as_second();
    let claims = Claims {
        aud: AUDIENCE.to_owned(),
        exp: iat.saturating_add(i64::try_from(life.as_secs()).unwrap_or(0)),
        iat,
        sub: volume.to_string(),
    };
    let key = EncodingKey::from_secret(key.expose().as_bytes());
    let signed = key.and_then(|key| encode(&Header::new(Algorithm::HS256), &claims, &key));
    signed.expect("a key and claims")
}

pub(super) fn verify(key: &Secret, token: &str, now: Timestamp) -> Option<VolumeId> {
    let mut rules = Validation::new(Algorithm::HS256);
    rules.set_required_spec_claims(&["aud", "exp", "sub"]);
    rules.set_audience(&[AUDIENCE]);
    // By the clock that we are given, below.
    rules.validate_exp = false;
    let key = DecodingKey::from_secret(key.expose().as_bytes()).ok()?;
    let Claims { exp, sub, .. } = decode::<Claims>(token, &key, &rules).ok()?.claims;
    if now.as_second() < exp { sub.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const VOLUME: &str = "vol_loc_0123456789abcdefgk7q";

    fn signed(algorithm: Algorithm, key: &str, claims: &Value) -> String {
        let key = EncodingKey::from_secret(key.as_bytes()).unwrap();
        encode(&Header::new(algorithm), claims, &key).unwrap()
    }

    #[test]
    fn a_token_is_good_for_one_volume_and_a_while() {
        let key = Secret::new("key");
        let volume: VolumeId = VOLUME.parse().unwrap();
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let token = issue(&key, volume, now, Duration::from_mins(1));
        let later = |seconds| Timestamp::from_second(now.as_second() + seconds).unwrap();
        assert_eq!(verify(&key, &token, now), Some(volume));
        assert_eq!(verify(&key, &token, later(59)), Some(volume));
        assert_eq!(verify(&key, &token, later(60)), None);
        assert_eq!(verify(&Secret::new("another"), &token, now), None);
        for forged in ["", ".", "..", "a.b.c", &token[..token.len() - 2]] {
            assert_eq!(verify(&key, forged, now), None, "{forged:?}");
        }
        // Without a signature, under a header that says so.
        let (_, unsigned) = token.split_once('.').unwrap();
        let (claims, _) = unsigned.split_once('.').unwrap();
        assert_eq!(verify(&key, &format!("eyJhbGciOiJub25lIn0.{claims}."), now), None);
    }

    #[test]
    fn what_we_signed_is_no_token_unless_all_of_it_is_there() {
        let key = Secret::new("key");
        let now = Timestamp::from_second(1000).unwrap();
        let whole = json!({ "aud": AUDIENCE, "exp": 1060, "iat": 1000, "sub": VOLUME });
        assert!(verify(&key, &signed(Algorithm::HS256, "key", &whole), now).is_some());
        assert_eq!(verify(&key, &signed(Algorithm::HS512, "key", &whole), now), None);
        for (claim, value) in [
            ("aud", Value::Null),
            ("aud", json!("another")),
            ("exp", Value::Null),
            ("exp", json!("1060")),
            ("sub", Value::Null),
            ("sub", json!("vol")),
        ] {
            let mut claims = whole.clone();
            let claims_of = claims.as_object_mut().unwrap();
            claims_of.remove(claim);
            if !value.is_null() {
                claims_of.insert(claim.to_owned(), value.clone());
            }
            let token = signed(Algorithm::HS256, "key", &claims);
            assert_eq!(verify(&key, &token, now), None, "{claim}: {value}");
        }
    }

    /// As other libraries sign it.
    #[test]
    fn golden() {
        let now = Timestamp::from_second(1000).unwrap();
        let volume = VOLUME.parse().unwrap();
        let token = issue(&Secret::new("key"), volume, now, Duration::from_mins(1));
        assert_eq!(
            token,
            "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJhdWQiOiJ2b2x1bWVjb250ZW50IiwiZXhwIjoxMDYwLCJpYXQiOjEwMDAsInN1YiI6InZvbF9sb2NfMDEyMzQ1Njc4OWFiY2RlZmdrN3EifQ.pFhsgmzJDvorb2x7L9aAFzvq7By3kvwE18oSLbiPelo"
        );
    }
}
