//! Request bodies and paths: what is wrong is told with the field's name.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request, rejection::BytesRejection},
    http::request::Parts,
};
use sandboxo_zone_protocol::SandboxId;
use serde::de::DeserializeOwned;

use crate::{ApiError, Surface};

/// JSON, whatever its content type says. No body is an empty object.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Surface> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, surface: &Surface) -> Result<Self, Self::Rejection> {
        let bytes =
            Bytes::from_request(request, surface).await.map_err(|rejection| unread(&rejection))?;
        parse(if bytes.is_empty() { b"{}" } else { &bytes }).map(Self)
    }
}

fn unread(rejection: &BytesRejection) -> ApiError {
    match rejection.status().as_u16() {
        413 => ApiError::TooLarge("the body is larger than this route takes".into()),
        _ => ApiError::Invalid(format!("the body can't be read: {}", rejection.body_text())),
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let text = match path.as_str() {
            "." | "?" => format!("the body is not what this route takes: {inner}"),
            path => format!("{path}: {inner}"),
        };
        ApiError::Invalid(text)
    })?;
    reader.end().map_err(|_more| ApiError::Invalid("the body goes on after its JSON".into()))?;
    Ok(value)
}

/// A sandbox's id in a path, in either spelling. The older form `<id>-<client>` is cut.
#[derive(Clone, Copy)]
pub(crate) struct Id(pub(crate) SandboxId);

impl FromRequestParts<Surface> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Surface) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|_not_text| no_sandbox("with such an id"))?;
        sandbox_id(&text).map(Self).ok_or_else(|| no_sandbox(&format!("'{text}'")))
    }
}

pub(crate) fn sandbox_id(text: &str) -> Option<SandboxId> {
    let parsed = text.parse().ok();
    parsed.or_else(|| text.rsplit_once('-').and_then(|(id, _client)| id.parse().ok()))
}

pub(crate) fn no_sandbox(which: &str) -> ApiError {
    ApiError::NotFound(format!("sandbox {which} not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_and_the_older_form() {
        let id = "sbx_ord_0123456789abcdefghjk".parse().ok();
        for text in [
            "sbx_ord_0123456789abcdefghjk",
            "sbx-ord-0123456789abcdefghjk",
            "sbx-ord-0123456789abcdefghjk-client",
        ] {
            assert_eq!(sandbox_id(text), id, "{text}");
        }
        for text in ["", "nonexistingsandbox", "sbx-ord-0123456789abcdefghjk-a-b", "-"] {
            assert_eq!(sandbox_id(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        #[derive(Debug, serde::Deserialize)]
        struct Outer {
            #[expect(dead_code, reason = "only its parsing matters")]
            inner: Inner,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Inner {
            #[expect(dead_code, reason = "only its parsing matters")]
            number: u32,
        }
        for (json, expected) in [
            (r#"{"inner":{"number":"x"}}"#, "inner.number: invalid type"),
            (r#"{"inner":{}}"#, "inner: missing field `number`"),
            (r#"{"inner":{"number":1}} x"#, "the body goes on"),
            ("{", "the body is not what this route takes: EOF"),
            ("\u{e9}", "the body is not what this route takes: expected value"),
        ] {
            let error = parse::<Outer>(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
