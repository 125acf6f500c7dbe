//! What a client says of a file beside its bytes, in headers.

use std::collections::BTreeMap;

use http::HeaderMap;

const HEADER: &str = "x-metadata-";
/// Of the attribute that it becomes.
const PREFIX_LENGTH: usize = "user.e2b.".len();
/// An attribute's name has 255 bytes at most.
const LONGEST_KEY: usize = 255 - PREFIX_LENGTH;
/// What common file systems have room for, of one file.
const LARGEST: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadMetadata {
    #[error("metadata key must not be empty")]
    EmptyKey,
    #[error("metadata key '{0}' is longer than {LONGEST_KEY} bytes")]
    LongKey(String),
    #[error("metadata value of '{0}' must be printable ASCII")]
    Value(String),
    #[error("metadata of {0} bytes is more than {LARGEST}")]
    TooLarge(usize),
}

/// Keys in lower case; of one that is repeated, the first.
pub(crate) fn from_headers(headers: &HeaderMap) -> Result<BTreeMap<String, String>, BadMetadata> {
    let mut metadata = BTreeMap::new();
    let mut size = 0;
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(HEADER) else { continue };
        let value = headers.get(name).map_or(&[][..], |value| value.as_bytes());
        if key.is_empty() {
            return Err(BadMetadata::EmptyKey);
        }
        if key.len() > LONGEST_KEY {
            return Err(BadMetadata::LongKey(key.to_owned()));
        }
        let printable = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        let value = std::str::from_utf8(value).ok().filter(|_| printable);
        let value = value.ok_or_else(|| BadMetadata::Value(key.to_owned()))?;
        size += PREFIX_LENGTH + key.len() + value.len();
        metadata.insert(key.to_owned(), value.to_owned());
    }
    if size > LARGEST {
        return Err(BadMetadata::TooLarge(size));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&str, &[u8])]) -> Result<BTreeMap<String, String>, BadMetadata> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        from_headers(&headers)
    }

    #[test]
    fn metadata_is_read_from_headers() {
        let long = "x-metadata-".to_owned() + &"k".repeat(LONGEST_KEY);
        let longer = long.clone() + "k";
        let big = vec![b'v'; LARGEST - PREFIX_LENGTH - 1];
        let bigger = vec![b'v'; LARGEST - PREFIX_LENGTH];
        let one = |key: &str, value: &str| Ok([(key.to_owned(), value.to_owned())].into());
        for (pairs, wanted) in [
            (&[("Content-Type", &b"x"[..])][..], Ok(BTreeMap::new())),
            (&[("X-Metadata-Author", b"m i")], one("author", "m i")),
            (&[("x-metadata-a", b"1"), ("X-Metadata-A", b"2")], one("a", "1")),
            (&[("x-metadata-a", b"")], one("a", "")),
            (&[("x-metadata-", b"1")], Err(BadMetadata::EmptyKey)),
            (&[(&long, b"")], one(&"k".repeat(LONGEST_KEY), "")),
            (&[(&longer, b"")], Err(BadMetadata::LongKey("k".repeat(LONGEST_KEY + 1)))),
            (&[("x-metadata-a", b"\xff")], Err(BadMetadata::Value("a".into()))),
            (&[("x-metadata-a", b"x\ty")], Err(BadMetadata::Value("a".into()))),
            (&[("x-metadata-a", &big)], one("a", std::str::from_utf8(&big).unwrap())),
            (&[("x-metadata-a", &bigger)], Err(BadMetadata::TooLarge(LARGEST + 1))),
        ] {
            assert_eq!(read(pairs), wanted);
        }
    }
}
