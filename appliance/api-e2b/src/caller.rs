//! Who asks. Having a [`Caller`] proves that the key was checked.

use axum::{extract::FromRequestParts, http::request::Parts};
use sandboxo_zone_protocol::TeamId;

use crate::{ApiError, Surface};

pub(crate) struct Caller {
    pub(crate) team: TeamId,
}

impl FromRequestParts<Surface> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Surface,
    ) -> Result<Self, Self::Rejection> {
        let key = parts.headers.get("x-api-key").and_then(|value| value.to_str().ok());
        let caller = key.and_then(|key| surface.control.keys.authenticate(key));
        caller.map(|caller| Self { team: caller.team }).ok_or(ApiError::Unauthenticated)
    }
}
