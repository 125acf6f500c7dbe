//! What stands in the value of a header for something that sandboxes must not know, and that is
//! put there on the request's way out: `${e2b.secrets.NAME}`, `${e2b.identity.tokens.NAME}`.

use async_trait::async_trait;

use crate::{EgressProxy, SandboxId, Secret};

const OPENING: &str = "${e2b.";
const SECRET: &str = "secrets.";
const TOKEN: &str = "identity.tokens.";

/// A piece of such a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Text(&'a str),
    /// By its name.
    Secret(&'a str),
    /// A new one of those that the sandbox has, by its name.
    Token(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no placeholder: ${{e2b.secrets.NAME}} and ${{e2b.identity.tokens.NAME}} are")]
pub struct NotAPlaceholder(pub String);

/// Whatever does not begin like a placeholder is text.
pub fn parts(value: &str) -> Result<Vec<Part<'_>>, NotAPlaceholder> {
    let (mut parts, mut rest) = (Vec::new(), value);
    while let Some((text, more)) = rest.split_once(OPENING) {
        let wrong = || {
            let end = more.find('}').map_or(more.len(), |end| end + 1);
            NotAPlaceholder(format!("{OPENING}{}", more.get(..end).unwrap_or_default()))
        };
        let (inside, behind) = more.split_once('}').ok_or_else(wrong)?;
        let secret = inside.strip_prefix(SECRET).map(|name| (name, Part::Secret(name)));
        let token = || inside.strip_prefix(TOKEN).map(|name| (name, Part::Token(name)));
        let (_, part) =
            secret.or_else(token).filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        parts.push(part);
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    Ok(parts)
}

/// Who knows what placeholders stand for, and the passwords of proxies. Asked each time, so that what it says is of now
/// and is kept nowhere else.
#[async_trait]
pub trait Vault: Send + Sync {
    /// `None`: the sandbox's team has no such secret, or there is no such sandbox.
    async fn secret(&self, sandbox: SandboxId, name: &str) -> Option<Secret>;

    /// By which that sandbox's connections are let into its proxy. `None`: it was sealed for
    /// another team or proxy, or there is no such sandbox.
    async fn password(&self, sandbox: SandboxId, proxy: &EgressProxy) -> Option<Secret>;

    /// One that is signed now. `None`: the sandbox has none of this name, or there is no such
    /// sandbox.
    async fn token(&self, sandbox: SandboxId, name: &str) -> Option<Secret>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_apart() {
        use Part::{Secret, Text, Token};
        for (value, expected) in [
            ("", Ok(vec![])),
            ("Bearer abc", Ok(vec![Text("Bearer abc")])),
            ("${e2b.secrets.a}", Ok(vec![Secret("a")])),
            (
                "Bearer ${e2b.secrets.my-key}${e2b.secrets.b};",
                Ok(vec![Text("Bearer "), Secret("my-key"), Secret("b"), Text(";")]),
            ),
            (
                "Bearer ${e2b.identity.tokens.aws}${e2b.secrets.b}",
                Ok(vec![Text("Bearer "), Token("aws"), Secret("b")]),
            ),
            ("${e2b.identity.tokens. a key }", Ok(vec![Token(" a key ")])),
            ("${e2b.identity.tokens.}", Err("${e2b.identity.tokens.}")),
            ("${e2b.identity.tokens.a", Err("${e2b.identity.tokens.a")),
            ("${e2b.identity.a}", Err("${e2b.identity.a}")),
            ("$${HOME} ${other.a}", Ok(vec![Text("$${HOME} ${other.a}")])),
            ("a ${e2b.secrets.}", Err("${e2b.secrets.}")),
            ("a ${e2b.other.b} c", Err("${e2b.other.b}")),
            ("${e2b.secrets.a", Err("${e2b.secrets.a")),
        ] {
            let expected = expected.map_err(|text: &str| NotAPlaceholder(text.to_owned()));
            assert_eq!(parts(value), expected, "{value:?}");
        }
    }
}
