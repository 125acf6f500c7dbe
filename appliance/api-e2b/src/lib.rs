//! The E2B surface: what the published `e2b` SDKs and CLI ask of the control plane.
//!
//! A handler takes typed arguments, makes one call to `control` and turns the answer into a view.
//! Status codes, field names and sentences are the clients' contract: they look into bodies.
#![forbid(unsafe_code)]

mod absent;
mod body;
mod builds;
mod caller;
mod cors;
mod error;
mod identity;
mod limiter;
mod openapi;
mod query;
mod sandboxes;
mod secrets;
mod snapshots;
mod templates;
mod view;
mod volume_content;
mod volumes;

use std::sync::Arc;

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode, middleware, routing::get};
use sandboxo_control::Control;

use limiter::Limiter;

pub use error::ApiError;
pub use limiter::{RateLimits, RateMode};

/// The agent version whose whole contract is served. Clients switch features on by it.
pub const ENVD_VERSION: &str = "0.6.13";

/// Room for the largest environment and metadata that `control` takes.
const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub(crate) struct Surface {
    control: Control,
    /// Of sandboxes' own host names; `None` where there are none.
    domain: Option<String>,
    limiter: Arc<Limiter>,
}

pub fn router(control: Control, domain: Option<String>, rates: RateLimits) -> Router {
    let surface = Surface { control, domain, limiter: Arc::new(Limiter::new(rates)) };
    Router::new()
        .route("/health", get(|| async { StatusCode::NO_CONTENT }))
        .merge(sandboxes::router())
        .merge(templates::router())
        .merge(builds::router())
        .merge(snapshots::router())
        .merge(volumes::router())
        .merge(volume_content::router())
        .merge(secrets::router())
        .merge(identity::router())
        .merge(absent::router())
        .merge(openapi::router())
        .route_layer(middleware::from_fn_with_state(surface.clone(), limiter::limit))
        .fallback(error::unknown_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(cors::share))
        .with_state(surface)
}
