//! One token: a JWT-SVID, which is a JSON web token whose subject is a SPIFFE id.

use std::time::Duration;

use jsonwebtoken::{Algorithm, Header, encode};
use sandboxo_model::{Audience, Issuer, TrustDomain};
use sandboxo_zone_protocol::{ExecutionId, SandboxId, Secret, TeamId, TemplateId, Timestamp};
use serde::Serialize;

use super::keyring::Key;

/// Each request has a new one, so it needs to last for one exchange; the rest is for clocks that
/// differ, and for what a relying party does before it looks.
pub(super) const LIFE: Duration = Duration::from_mins(5);

/// Whose it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) team: TeamId,
    pub(super) template: TemplateId,
    pub(super) sandbox: SandboxId,
    pub(super) execution: ExecutionId,
}

impl Subject {
    /// From what lasts longest to what is soon over, so that whoever trusts a team or a template
    /// compares a beginning.
    fn spiffe_id(&self, domain: &TrustDomain) -> String {
        let Self { team, template, sandbox, execution } = self;
        let sandbox = sandbox.label();
        format!(
            "spiffe://{domain}/team/{team}/template/{template}/sandbox/{sandbox}/execution/{execution}"
        )
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: String,
    aud: &'a str,
    iat: i64,
    exp: i64,
    jti: &'a str,
    // The subject's parts, for those who compare claims whole, or bound a subject's length.
    team_id: String,
    template_id: String,
    sandbox_id: String,
    execution_id: String,
}

#[expect(clippy::expect_used, reason = "a key that was read signs, and claims are JSON")]
pub(super) fn sign(
    key: &Key,
    (issuer, domain): (&Issuer, &TrustDomain),
    subject: &Subject,
    audience: &Audience,
    now: Timestamp,
    id: &Secret,
) -> Secret {
    let iat = now.as_second();
    let claims = Claims {
        iss: issuer.as_str(),
        sub: subject.spiffe_id(domain),
        aud: audience.as_str(),
        iat,
        exp: iat.saturating_add(i64::try_from(LIFE.as_secs()).unwrap_or(0)),
        jti: id.expose(),
        team_id: subject.team.to_string(),
        template_id: subject.template.to_string(),
        sandbox_id: subject.sandbox.label(),
        execution_id: subject.execution.to_string(),
    };
    let header = Header { kid: Some(key.id.clone()), ..Header::new(Algorithm::ES256) };
    Secret::new(encode(&header, &claims, &key.signs).expect("a key and claims"))
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
    use sandboxo_zone_protocol::SystemRandom;
    use serde_json::{Value, json};

    use super::{super::keyring::Keyring, *};

    #[test]
    fn a_token_says_who_it_is_and_for_whom() {
        let now = Timestamp::from_second(1000).unwrap();
        let ring = Keyring::new(&SystemRandom, now);
        let (issuer, domain) =
            ("https://api.example.com".parse().unwrap(), "example.com".parse().unwrap());
        let subject = Subject {
            team: "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse().unwrap(),
            template: "0123456789abcdefghjk".parse().unwrap(),
            sandbox: "sbx_loc_0123456789abcdefgk7q".parse().unwrap(),
            execution: "0d9e1f2a-3b4c-4d5e-8f60-718293a4b5c6".parse().unwrap(),
        };
        let audience = "a \"b\" é".parse().unwrap();
        let key = ring.signing(now);
        let token = sign(key, (&issuer, &domain), &subject, &audience, now, &Secret::new("once"));

        let shown = ring.shown(now);
        let header = decode_header(token.expose()).unwrap();
        assert_eq!((header.alg, header.typ.as_deref()), (Algorithm::ES256, Some("JWT")));
        let key = shown.find(&header.kid.unwrap()).unwrap();
        let mut rules = Validation::new(Algorithm::ES256);
        rules.validate_exp = false;
        rules.set_audience(&["a \"b\" é"]);
        let key = DecodingKey::from_jwk(key).unwrap();
        let claims = decode::<Value>(token.expose(), &key, &rules).unwrap().claims;
        assert_eq!(
            claims,
            json!({
                "iss": "https://api.example.com",
                "sub": "spiffe://example.com/team/8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d/template/0123456789abcdefghjk/sandbox/sbx-loc-0123456789abcdefgk7q/execution/0d9e1f2a-3b4c-4d5e-8f60-718293a4b5c6",
                "aud": "a \"b\" é",
                "iat": 1000,
                "exp": 1300,
                "jti": "once",
                "team_id": "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d",
                "template_id": "0123456789abcdefghjk",
                "sandbox_id": "sbx-loc-0123456789abcdefgk7q",
                "execution_id": "0d9e1f2a-3b4c-4d5e-8f60-718293a4b5c6",
            })
        );
        let other = Keyring::new(&SystemRandom, now).shown(now);
        let other = DecodingKey::from_jwk(&other.keys[0]).unwrap();
        decode::<Value>(token.expose(), &other, &rules).unwrap_err();
    }
}
