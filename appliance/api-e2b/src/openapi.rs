//! `GET /openapi.json`: what this surface takes and answers, for programs.

use std::sync::LazyLock;

use axum::{
    Router,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use sandboxo_zone_protocol::ImageDigest;
use sha2::{Digest as _, Sha256};

use crate::Surface;

const DOCUMENT: &str = include_str!("../openapi.json");

static TAG: LazyLock<String> = LazyLock::new(|| {
    let digest = ImageDigest::from_bytes(Sha256::digest(DOCUMENT).into());
    format!("\"{digest}\"")
});

/// Asked without a key.
pub(crate) fn router() -> Router<Surface> {
    Router::new().route("/openapi.json", get(document))
}

async fn document(headers: HeaderMap) -> Response {
    let tag = [(ETAG, TAG.as_str())];
    if is_known(&headers) {
        return (StatusCode::NOT_MODIFIED, tag).into_response();
    }
    (tag, [(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

fn is_known(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = asked.flat_map(|value| value.split(',')).map(str::trim);
    // Weak or not: it is compared as a whole anyway.
    tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == *TAG)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use serde_json::Value;

    use super::*;

    const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

    fn written(document: &Value) -> BTreeSet<String> {
        let paths = document["paths"].as_object().unwrap();
        let all = paths.iter().flat_map(|(path, operations)| {
            let methods = operations.as_object().unwrap().keys();
            methods.map(move |method| format!("{method} {path}"))
        });
        all.collect()
    }

    /// The routes of these files, as they are written there.
    fn served(files: &[&str]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for file in files {
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
            let source = std::fs::read_to_string(place).unwrap();
            for route in source.split(".route(\"").skip(1) {
                let (path, rest) = route.split_once('"').unwrap();
                let end = rest.find("\n        ").unwrap_or(rest.len());
                let handlers = &rest[..end];
                for method in METHODS {
                    if handlers.contains(&format!(" {method}("))
                        || handlers.contains(&format!(".{method}("))
                    {
                        found.insert(format!("{method} {path}"));
                    }
                }
            }
        }
        found
    }

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let files = [
            "lib.rs",
            "openapi.rs",
            "sandboxes.rs",
            "templates.rs",
            "builds.rs",
            "snapshots.rs",
            "volumes.rs",
            "secrets.rs",
            "identity.rs",
            "volume_content.rs",
        ];
        assert_eq!(written(&document), served(&files), "openapi.json and the routers differ");
    }

    #[test]
    fn what_the_document_refers_to_is_in_it() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        for part in DOCUMENT.split("\"$ref\": \"#").skip(1) {
            let pointer = part.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
