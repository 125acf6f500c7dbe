//! What a registry wants to see before it answers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, Uri, header::WWW_AUTHENTICATE};
use http_auth::ChallengeParser;
use sandboxo_zone_protocol::Credentials;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// What this place gives, to whom it knows or to anybody.
    Token(Uri),
}

/// `None`: nothing that is known here.
pub(crate) fn challenge(headers: &HeaderMap, repository: &str) -> Option<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<_> = texts.flat_map(ChallengeParser::new).filter_map(Result::ok).collect();
    let of = |scheme: &str| all.iter().find(|it| it.scheme.eq_ignore_ascii_case(scheme));
    let token = of("Bearer").and_then(|it| {
        let value = |name: &str| {
            let found = it.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        let realm = value("realm")?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(service) = value("service") {
            query.append_pair("service", &service);
        }
        query.append_pair("scope", &format!("repository:{repository}:pull"));
        let glue = if realm.contains('?') { '&' } else { '?' };
        format!("{realm}{glue}{}", query.finish()).parse().ok()
    });
    token.map(Challenge::Token).or_else(|| of("Basic").map(|_| Challenge::Basic))
}

pub(crate) fn basic(Credentials { user, password }: &Credentials) -> Option<HeaderValue> {
    let encoded = STANDARD.encode(format!("{user}:{}", password.expose()));
    secret(&format!("Basic {encoded}"))
}

pub(crate) fn bearer(answer: &[u8]) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Token {
        token: Option<String>,
        /// As OAuth calls it.
        access_token: Option<String>,
    }
    let Token { token, access_token } = serde_json::from_slice(answer).ok()?;
    secret(&format!("Bearer {}", token.or(access_token)?))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let token = |uri: &'static str| Some(Challenge::Token(Uri::from_static(uri)));
        for (headers, expected) in [
            (&["Basic realm=\"Registry\""][..], Some(Challenge::Basic)),
            (
                &["Bearer realm=\"https://auth.example/token\",service=\"a b\",scope=\"x\""],
                token("https://auth.example/token?service=a+b&scope=repository%3Aa%2Fb%3Apull"),
            ),
            (
                &["Bearer realm=\"https://auth.example/token?x=1\""],
                token("https://auth.example/token?x=1&scope=repository%3Aa%2Fb%3Apull"),
            ),
            (
                &["Basic realm=\"r\"", "Bearer realm=\"https://auth.example/\""],
                token("https://auth.example/?scope=repository%3Aa%2Fb%3Apull"),
            ),
            (&["Negotiate"], None),
            (&["Bearer service=\"x\""], None),
            (&[], None),
        ] {
            let mut map = HeaderMap::new();
            for header in headers {
                map.append(WWW_AUTHENTICATE, HeaderValue::from_static(header));
            }
            assert_eq!(challenge(&map, "a/b"), expected, "{headers:?}");
        }
    }

    #[test]
    fn tokens() {
        let bearer = |answer: &str| bearer(answer.as_bytes());
        assert_eq!(bearer("{\"token\":\"a\",\"access_token\":\"b\"}").unwrap(), "Bearer a");
        assert_eq!(bearer("{\"access_token\":\"b\",\"expires_in\":60}").unwrap(), "Bearer b");
        assert_eq!(bearer("{\"token\":\"a\\nb\"}"), None);
        assert_eq!(bearer("{}"), None);
        assert!(bearer("{\"token\":\"a\"}").unwrap().is_sensitive());
    }
}
