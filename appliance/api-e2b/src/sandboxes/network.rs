//! `PUT /sandboxes/{id}/network`: replaces the whole egress set at once.

use axum::{extract::State, http::StatusCode};

use crate::{
    ApiError, Surface,
    body::{Body, Id},
    caller::Caller,
    view::{NetworkBody, Unsupported as _},
};

pub(super) async fn replace(
    State(surface): State<Surface>,
    caller: Caller,
    Id(id): Id,
    Body(body): Body<NetworkBody>,
) -> Result<StatusCode, ApiError> {
    if let Some(field) = body.unsupported() {
        return Err(ApiError::Invalid(format!("{field}: not supported by this version")));
    }
    let internet = body.allow_internet_access;
    surface.control.sandboxes.set_network(caller.team, id, body.into(), internet).await?;
    Ok(StatusCode::NO_CONTENT)
}
