//! `iam` of a create: which tokens the sandbox has. A field that is not known may be one that
//! somebody relies on for where a token goes, so it is refused, as nowhere else in the body.

use std::collections::BTreeMap;

use sandboxo_model::{Audience, NotATokenName, NotAnAudience, TokenName, Tokens};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Iam {
    tokens: Option<BTreeMap<String, Token>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Token {
    audience: Option<String>,
    #[serde(rename = "tokenType")]
    kind: Option<String>,
    /// Nothing is delivered into a sandbox.
    file_path: Option<serde_json::Value>,
}

const JWT_SVID: &str = "JWT-SVID";

impl Iam {
    /// What is wrong names its field, where E2B's own server has a sentence for it in its words.
    pub(crate) fn tokens(self) -> Result<Tokens, String> {
        let tokens = self.tokens.unwrap_or_default();
        let tokens = tokens.into_iter().map(token).collect::<Result<_, String>>()?;
        Tokens::new(tokens).map_err(|error| format!("iam.tokens: {error}"))
    }
}

fn token((name, token): (String, Token)) -> Result<(TokenName, Audience), String> {
    let Token { audience, kind, file_path } = token;
    if name.is_empty() {
        return Err("iam.tokens: token name must not be empty".to_owned());
    }
    let wrong = |field: &str, why: &str| format!("iam.tokens.{name}.{field}: {why}");
    let audience = audience.unwrap_or_default();
    if audience.is_empty() {
        return Err(wrong("audience", "audience is required"));
    }
    if kind.as_deref() != Some(JWT_SVID) {
        return Err(wrong("tokenType", &format!("only {JWT_SVID:?} is supported")));
    }
    if file_path.is_some() {
        return Err(wrong("filePath", "tokens are not delivered as files"));
    }
    let audience =
        audience.parse().map_err(|error: NotAnAudience| wrong("audience", &error.to_string()))?;
    let name = name
        .parse()
        .map_err(|error: NotATokenName| format!("iam.tokens: {error}, unlike {name:?}"))?;
    Ok((name, audience))
}
