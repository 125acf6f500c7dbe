//! `/identity/keys`: what signs the tokens of sandboxes.

use axum::{Json, extract::State, http::StatusCode};
use sandboxo_control::NewIdentityKey;
use sandboxo_zone_protocol::Timestamp;
use serde::Serialize;

use crate::{AdminError, Operator, Surface};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    /// As the `kid` of tokens and of the public keys.
    kid: String,
    signs_from: Timestamp,
}

pub(crate) async fn create(
    State(surface): State<Surface>,
    _: Operator,
) -> Result<(StatusCode, Json<View>), AdminError> {
    let NewIdentityKey { id, from } = surface.control.identities.new_key().await?;
    Ok((StatusCode::CREATED, Json(View { kid: id, signs_from: from })))
}
