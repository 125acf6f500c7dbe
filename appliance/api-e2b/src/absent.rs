//! Routes of the contract whose feature this version does not have: 501, so that a client can tell
//! them from what it misspelled and from a sandbox that is gone.

use axum::{Router, routing::get};

use crate::{Surface, error::not_offered};

pub(crate) fn router() -> Router<Surface> {
    Router::new().route("/teams", get(not_offered))
}
