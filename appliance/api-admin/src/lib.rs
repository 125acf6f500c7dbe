//! The operator's surface: the zone, templates, keys, and every team's sandboxes, dead ones too.
//!
//! `Authorization: Bearer <token>` with the token of the configuration; see [`Operator`].
#![forbid(unsafe_code)]

mod error;
mod identity;
mod keys;
mod operator;
mod sandboxes;
mod templates;
mod zone;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    routing::{delete, get, post},
};
use sandboxo_control::Control;
use sandboxo_zone_protocol::Secret;

pub use error::AdminError;
pub use operator::Operator;
pub use zone::ZoneFacts;

#[derive(Clone)]
pub(crate) struct Surface {
    control: Control,
    token: Arc<Secret>,
    zone: Arc<ZoneFacts>,
}

pub fn router(control: Control, token: Secret, zone: ZoneFacts) -> Router {
    // Only an import has a large body, and that one is a stream.
    let imports = Router::new()
        .route("/templates", get(templates::list).post(templates::import))
        .layer(DefaultBodyLimit::disable());
    let routes = imports
        .route("/zone", get(zone::show))
        .route("/templates/{name}", delete(templates::delete))
        .route("/sandboxes", get(sandboxes::list))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/{id}", delete(keys::revoke))
        .route("/identity/keys", post(identity::create))
        .method_not_allowed_fallback(error::wrong_method);
    Router::new().nest("/admin/v1", routes).with_state(Surface {
        control,
        token: Arc::new(token),
        zone: Arc::new(zone),
    })
}
