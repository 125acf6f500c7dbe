//! Tokens that say who a sandbox is: which it may have, and for whom.

use std::{collections::BTreeMap, fmt, str::FromStr};

use sandboxo_zone_protocol::ExecutionId;

/// Exactly as given; placeholders in headers of rules name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token's name has 1 to {} bytes, and no '{{', '}}' or control characters",
    TokenName::MAX_BYTES
)]
pub struct NotATokenName;

/// Whom a token is for, exactly as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an audience has 1 to {} bytes", Audience::MAX_BYTES)]
pub struct NotAnAudience;

/// The tokens of one sandbox, each with its audience.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tokens(BTreeMap<TokenName, Audience>);

/// In the words of E2B's own server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too many tokens: {0} (max {max})", max = Tokens::MAX)]
pub struct TooManyTokens(pub usize);

/// What the tokens of a sandbox are made of, beside its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub tokens: Tokens,
    /// Another one from each resume on.
    pub execution: ExecutionId,
}

/// The first part of each subject: whoever shares it shares one set of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDomain(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not 1 to 255 lowercase letters, digits, '.', '-' and '_'")]
pub struct NotATrustDomain;

/// Who signs: the URL below which relying parties find the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an https:// or http:// URL without a query and without a slash at its end")]
pub struct NotAnIssuer;

impl TokenName {
    /// As many as a secret's name has.
    pub const MAX_BYTES: usize = 128;
}

impl FromStr for TokenName {
    type Err = NotATokenName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A brace would end a placeholder, or begin another.
        let wrong = |it: char| it.is_control() || matches!(it, '{' | '}');
        let fits = (1..=Self::MAX_BYTES).contains(&text.len()) && !text.contains(wrong);
        fits.then(|| Self(text.to_owned())).ok_or(NotATokenName)
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Audience {
    /// Longer than any that a relying party is known to have, and short beside what a server takes
    /// of headers.
    pub const MAX_BYTES: usize = 1024;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Audience {
    type Err = NotAnAudience;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len());
        fits.then(|| Self(text.to_owned())).ok_or(NotAnAudience)
    }
}

impl Tokens {
    /// As many as E2B's own server takes.
    pub const MAX: usize = 5;

    pub fn new(tokens: BTreeMap<TokenName, Audience>) -> Result<Self, TooManyTokens> {
        if tokens.len() > Self::MAX {
            return Err(TooManyTokens(tokens.len()));
        }
        Ok(Self(tokens))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn audience(&self, name: &TokenName) -> Option<&Audience> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TokenName, &Audience)> {
        self.0.iter()
    }
}

impl FromStr for TrustDomain {
    type Err = NotATrustDomain;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let can_be = |it: u8| {
            it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'.' | b'-' | b'_')
        };
        let fits = (1..=255).contains(&text.len()) && text.bytes().all(can_be);
        fits.then(|| Self(text.to_owned())).ok_or(NotATrustDomain)
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Issuer {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Issuer {
    type Err = NotAnIssuer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let can_be = |it: u8| it.is_ascii_graphic() && !b"?#@\\\"".contains(&it);
        let fits = rest.is_some_and(|rest| {
            let begins = rest.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '[');
            begins && rest.bytes().all(can_be) && !rest.ends_with('/') && text.len() <= 1024
        });
        fits.then(|| Self(text.to_owned())).ok_or(NotAnIssuer)
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_audiences() {
        let (longest, longer) = ("n".repeat(128), "n".repeat(129));
        for (text, fits) in [
            ("aws", true),
            ("AWS.prod-1_x", true),
            (" token key ", true),
            ("ü", true),
            (&longest, true),
            (&longer, false),
            ("", false),
            ("a}b", false),
            ("a{b", false),
            ("a\nb", false),
            ("a\u{85}", false),
        ] {
            let name = text.parse::<TokenName>().ok().map(|name| name.to_string());
            assert_eq!(name.as_deref(), fits.then_some(text), "{text:?}");
        }
        let (longest, longer) = ("a".repeat(1024), "a".repeat(1025));
        for (text, fits) in [
            ("sts.amazonaws.com", true),
            (" Exactly / as\tgiven ", true),
            (&longest, true),
            (&longer, false),
            ("", false),
        ] {
            let audience = text.parse::<Audience>().ok();
            assert_eq!(audience.as_ref().map(Audience::as_str), fits.then_some(text), "{text:?}");
        }
    }

    #[test]
    fn five_at_most() {
        let many = |count: usize| {
            let token = |at: usize| (format!("t{at}").parse().unwrap(), "a".parse().unwrap());
            Tokens::new((0..count).map(token).collect())
        };
        assert!(many(0).unwrap().is_empty());
        assert_eq!(many(5).unwrap().len(), 5);
        assert_eq!(many(6), Err(TooManyTokens(6)));
    }

    #[test]
    fn issuers_and_trust_domains() {
        for (text, fits) in [
            ("https://api.example.com", true),
            ("https://example.com:8443/sandboxes", true),
            ("http://127.0.0.1:8000", true),
            ("http://[::1]:8000", true),
            ("", false),
            ("https://", false),
            ("https:///a", false),
            ("https://example.com/", false),
            ("https://example.com?a", false),
            ("https://example.com#a", false),
            ("https://me@example.com", false),
            ("https://a b", false),
            ("ftp://example.com", false),
            ("example.com", false),
        ] {
            assert_eq!(text.parse::<Issuer>().is_ok(), fits, "{text:?}");
        }
        let longest = "d".repeat(255);
        for (text, fits) in [
            ("example.com", true),
            ("a_b-1", true),
            (&longest, true),
            (&format!("{longest}d"), false),
            ("", false),
            ("Example.com", false),
            ("example.com/a", false),
            ("example.com:1", false),
        ] {
            assert_eq!(text.parse::<TrustDomain>().is_ok(), fits, "{text:?}");
        }
    }
}
