//! Signed file URLs: they name no sandbox, only prove that who made them knew its token. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::{Method, request};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a signed URL says, as far as it is signed. Whether it has expired is for the agent to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    path: String,
    user: String,
    expiration: Option<String>,
    operation: &'static str,
    signature: String,
}

impl Signed {
    /// `None`: not a signed file URL.
    pub(crate) fn of(parts: &request::Parts) -> Option<Self> {
        if parts.uri.path() != "/files" {
            return None;
        }
        let method = match parts.method {
            // The browser asks first whether it may.
            Method::OPTIONS => parts.headers.get("access-control-request-method")?.as_bytes(),
            ref method => method.as_str().as_bytes(),
        };
        let operation = match method {
            b"GET" | b"HEAD" => "read",
            b"POST" => "write",
            _ => return None,
        };
        let query = parts.uri.query()?;
        let value = |wanted: &str| {
            query
                .split('&')
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| decode(value))
        };
        Some(Self {
            signature: value("signature")?,
            path: value("path").unwrap_or_default(),
            user: value("username").unwrap_or_default(),
            expiration: value("signature_expiration").filter(|text| !text.is_empty()),
            operation,
        })
    }

    pub(crate) fn fits(&self, token: &str) -> bool {
        let mut hash = Sha256::new();
        for part in [&self.path, ":", self.operation, ":", &self.user, ":", token] {
            hash.update(part);
        }
        if let Some(expiration) = &self.expiration {
            hash.update(":");
            hash.update(expiration);
        }
        let expected = format!("v1_{}", STANDARD_NO_PAD.encode(hash.finalize()));
        expected.as_bytes().ct_eq(self.signature.as_bytes()).into()
    }
}

/// A form's decoding: `+` is a space; what isn't UTF-8 can't have been signed by a client.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let escaped = || {
            let mut ahead = rest.clone();
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(ahead.next())? * 16 + digit(ahead.next())?;
            Some((u8::try_from(value).ok()?, ahead))
        };
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match escaped() {
                Some((value, ahead)) => {
                    bytes.push(value);
                    rest = ahead;
                }
                None => bytes.push(b'%'),
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn signed(method: &str, uri: &str) -> Option<Signed> {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("access-control-request-method", "POST").body(()).unwrap();
        Signed::of(&request.into_parts().0)
    }

    fn sign(text: &str) -> String {
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        signature.replace('+', "%2B").replace('/', "%2F")
    }

    #[test]
    fn table() {
        for (why, method, query, signed_text, fits) in [
            ("read", "GET", "path=a%20b.txt", "a b.txt:read::token", true),
            ("a form's space", "GET", "path=a+b.txt", "a b.txt:read::token", true),
            ("head is a read", "HEAD", "path=x", "x:read::token", true),
            ("write", "POST", "path=x&username=root", "x:write:root:token", true),
            ("without a path", "POST", "username=user", ":write:user:token", true),
            ("asking first", "OPTIONS", "path=x", "x:write::token", true),
            ("with an end", "GET", "path=x&signature_expiration=99", "x:read::token:99", true),
            ("another end", "GET", "path=x&signature_expiration=98", "x:read::token:99", false),
            ("another operation", "POST", "path=x", "x:read::token", false),
            ("another token", "GET", "path=x", "x:read::other", false),
            ("a path is not resolved", "GET", "path=/home/x", "x:read::token", false),
        ] {
            let uri = format!("/files?{query}&signature={}", sign(signed_text));
            assert_eq!(signed(method, &uri).unwrap().fits("token"), fits, "{why}");
        }
    }

    #[test]
    fn what_is_not_signed() {
        assert_eq!(signed("GET", "/files?path=x"), None);
        assert_eq!(signed("GET", "/files"), None);
        assert_eq!(signed("DELETE", "/files?signature=x"), None);
        assert_eq!(signed("GET", "/filesystem?signature=x"), None);
        assert!(!signed("GET", "/files?path=%zz%4&signature=%").unwrap().fits("token"));
    }
}
