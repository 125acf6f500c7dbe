//! Scripts of any origin may call: what lets them in is the API key, never a cookie.

use axum::{
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
            ACCESS_CONTROL_REQUEST_METHOD,
        },
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};

const ANY: (HeaderName, &str) = (ACCESS_CONTROL_ALLOW_ORIGIN, "*");
const METHODS: (HeaderName, &str) = (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE");
/// The star leaves this one out.
const HEADERS: (HeaderName, &str) = (ACCESS_CONTROL_ALLOW_HEADERS, "*, Authorization");
/// As long as browsers remember it.
const MAX_AGE: (HeaderName, &str) = (ACCESS_CONTROL_MAX_AGE, "7200");
/// Pages can't be turned without the first.
const EXPOSED: (HeaderName, &str) = (
    ACCESS_CONTROL_EXPOSE_HEADERS,
    "X-Next-Token, X-Total-Running, Retry-After, Should-Retry, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset",
);

pub(crate) async fn share(request: Request, next: Next) -> Response {
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if asks_first {
        let mut response = StatusCode::NO_CONTENT.into_response();
        add(response.headers_mut(), [ANY, METHODS, HEADERS, MAX_AGE]);
        return response;
    }
    let mut response = next.run(request).await;
    add(response.headers_mut(), [ANY, EXPOSED]);
    response
}

fn add<const N: usize>(headers: &mut HeaderMap, list: [(HeaderName, &'static str); N]) {
    for (name, value) in list {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
