//! Who asks. Having an [`Operator`] proves that the token was checked.

use axum::{
    extract::FromRequestParts,
    http::{HeaderValue, header::AUTHORIZATION, request::Parts},
};
use subtle::ConstantTimeEq as _;

use crate::{AdminError, Surface};

pub struct Operator(());

impl FromRequestParts<Surface> for Operator {
    type Rejection = AdminError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Surface,
    ) -> Result<Self, Self::Rejection> {
        let given = parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
        let same =
            given.is_some_and(|given| bool::from(given.ct_eq(surface.token.expose().as_bytes())));
        if same { Ok(Self(())) } else { Err(AdminError::Unauthenticated) }
    }
}
