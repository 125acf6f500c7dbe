//! What a relying party reads to verify the tokens of sandboxes, as `OpenID` Connect has it.

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderName, header::CACHE_CONTROL},
    routing::get,
};
use sandboxo_control::{Identities, JwkSet};
use serde::Serialize;

use crate::Surface;

/// Asked without a key.
pub(crate) fn router() -> Router<Surface> {
    Router::new()
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/.well-known/jwks.json", get(keys))
}

/// Of what the standard requires, what there is: nobody signs in here.
#[derive(Serialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: [&'static str; 1],
    claims_supported: [&'static str; 10],
}

async fn configuration(
    State(surface): State<Surface>,
) -> ([(HeaderName, String); 1], Json<Configuration>) {
    let issuer = surface.control.identities.issuer();
    let configuration = Configuration {
        issuer: issuer.to_string(),
        jwks_uri: format!("{issuer}/.well-known/jwks.json"),
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["ES256"],
        claims_supported: [
            "iss",
            "sub",
            "aud",
            "iat",
            "exp",
            "jti",
            "team_id",
            "template_id",
            "sandbox_id",
            "execution_id",
        ],
    };
    (cached(), Json(configuration))
}

async fn keys(State(surface): State<Surface>) -> ([(HeaderName, String); 1], Json<JwkSet>) {
    (cached(), Json(surface.control.identities.keys()))
}

fn cached() -> [(HeaderName, String); 1] {
    [(CACHE_CONTROL, format!("public, max-age={}", Identities::CACHED.as_secs()))]
}
