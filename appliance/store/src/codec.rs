//! A value is one byte, the number of its format, and then JSON in that format.

use serde::{Serialize, de::DeserializeOwned};

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("the value is empty")]
    Empty,
    #[error("format {0} is not known")]
    Format(u8),
    #[error("parse the value")]
    Json(#[from] serde_json::Error),
    #[error("the value is not of its key")]
    Key,
    #[error("the value makes no sense: {0}")]
    Value(String),
}

#[expect(clippy::expect_used, reason = "rows are structs of text, numbers and maps keyed by text")]
pub(crate) fn encode<R: Serialize>(format: u8, row: &R) -> Vec<u8> {
    let mut bytes = vec![format];
    serde_json::to_writer(&mut bytes, row).expect("a row serializes, and a Vec takes it");
    bytes
}

/// The format, and the rest.
pub(crate) fn split(bytes: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    bytes.split_first().map(|(format, json)| (*format, json)).ok_or(DecodeError::Empty)
}

/// For a record that has had one format only.
pub(crate) fn decode_only<R: DeserializeOwned>(format: u8, bytes: &[u8]) -> Result<R, DecodeError> {
    match split(bytes)? {
        (found, json) if found == format => Ok(serde_json::from_slice(json)?),
        (found, _) => Err(DecodeError::Format(found)),
    }
}
