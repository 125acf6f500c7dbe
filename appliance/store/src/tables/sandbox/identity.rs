//! The tokens of a sandbox in its row.

use std::collections::BTreeMap;

use sandboxo_model::{Audience, Identity, TokenName, Tokens};
use sandboxo_zone_protocol::ExecutionId;
use serde::{Deserialize, Serialize};

use crate::DecodeError;

#[derive(Serialize, Deserialize)]
pub(super) struct IdentityRow {
    /// Audiences, by the names of their tokens.
    tokens: BTreeMap<String, String>,
    execution: ExecutionId,
}

impl From<&Identity> for IdentityRow {
    fn from(Identity { tokens, execution }: &Identity) -> Self {
        let text = |(name, audience): (&TokenName, &Audience)| {
            (name.to_string(), audience.as_str().to_owned())
        };
        Self { tokens: tokens.iter().map(text).collect(), execution: *execution }
    }
}

impl TryFrom<IdentityRow> for Identity {
    type Error = DecodeError;

    fn try_from(IdentityRow { tokens, execution }: IdentityRow) -> Result<Self, DecodeError> {
        let wrong = |what: String| DecodeError::Value(what);
        let token = |(name, audience): (String, String)| {
            let name = name.parse().map_err(|_bad| wrong(format!("token {name:?}")))?;
            let audience = audience.parse().map_err(|_bad| wrong(format!("for {audience:?}")))?;
            Ok((name, audience))
        };
        let tokens = tokens.into_iter().map(token).collect::<Result<_, DecodeError>>()?;
        let tokens = Tokens::new(tokens).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { tokens, execution })
    }
}
