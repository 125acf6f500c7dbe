//! Who asks. Having a [`Caller`] proves that the key was checked.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
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
        surface.team(&parts.headers).map(|team| Self { team }).ok_or(ApiError::Unauthenticated)
    }
}

impl Surface {
    /// Whose key came with a request.
    pub(crate) fn team(&self, headers: &HeaderMap) -> Option<TeamId> {
        let key = headers.get("x-api-key")?.to_str().ok()?;
        Some(self.control.keys.authenticate(key)?.team)
    }
}
