//! Routes of the contract whose feature this version does not have: 501, so that a client can tell
//! them from what it misspelled and from a sandbox that is gone.

use axum::{
    Router,
    routing::{any, get, patch, post},
};

use crate::{Surface, error::not_offered};

pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/v2/templates/{id}", patch(not_offered))
        .route("/v3/templates", post(not_offered))
        .route("/templates/{id}/files/{hash}", get(not_offered))
        .route("/v2/templates/{id}/builds/{build}", post(not_offered))
        .route("/templates/{id}/builds/{build}/status", get(not_offered))
        .route("/templates/{id}/builds/{build}/logs", get(not_offered))
        .route("/templates/tags", post(not_offered).delete(not_offered))
        .route("/templates/{id}/tags", get(not_offered))
        .route("/volumes", any(not_offered))
        .route("/volumes/{*rest}", any(not_offered))
        .route("/volumecontent/{*rest}", any(not_offered))
        .route("/secrets", any(not_offered))
        .route("/secrets/{*rest}", any(not_offered))
        .route("/teams", get(not_offered))
}
