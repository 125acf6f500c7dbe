//! Who may ask: the access token, and signatures of file URLs.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Equal in a time that doesn't tell how much of it is.
pub(crate) fn same(given: &str, wanted: &str) -> bool {
    given.as_bytes().ct_eq(wanted.as_bytes()).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// What a file request says for itself. All texts are as given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileClaim<'a> {
    pub(crate) header: Option<&'a str>,
    pub(crate) path: &'a str,
    pub(crate) username: &'a str,
    pub(crate) operation: Operation,
    pub(crate) signature: Option<&'a str>,
    pub(crate) expiration: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileRefusal {
    #[error("access token present in header but does not match")]
    WrongToken,
    #[error("missing signature query parameter")]
    NoSignature,
    #[error("invalid signature")]
    WrongSignature,
    #[error("signature is already expired")]
    Expired,
}

/// A header decides alone; else the signature does, before its own end.
pub(crate) fn check_file_claim(
    claim: FileClaim<'_>,
    token: Option<&str>,
    now_seconds: i64,
) -> Result<(), FileRefusal> {
    let Some(token) = token else { return Ok(()) };
    if let Some(header) = claim.header {
        return if same(header, token) { Ok(()) } else { Err(FileRefusal::WrongToken) };
    }
    let signature = claim.signature.ok_or(FileRefusal::NoSignature)?;
    if !same(signature, &sign(claim, token)) {
        return Err(FileRefusal::WrongSignature);
    }
    // An expiration that is no number has no signature of a client's.
    match claim.expiration.map(str::parse::<i64>) {
        None => Ok(()),
        Some(Ok(end)) if end >= now_seconds => Ok(()),
        Some(_) => Err(FileRefusal::Expired),
    }
}

fn sign(claim: FileClaim<'_>, token: &str) -> String {
    let operation = match claim.operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let mut text = format!("{}:{operation}:{}:{token}", claim.path, claim.username);
    if let Some(expiration) = claim.expiration {
        text.push(':');
        text.push_str(expiration);
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: FileClaim<'_> = FileClaim {
        header: None,
        path: "/home/user/a b.txt",
        username: "user",
        operation: Operation::Read,
        signature: None,
        expiration: None,
    };

    #[test]
    fn signatures_are_those_of_the_clients() {
        // echo -n '/home/user/a b.txt:read:user:secret' | sha256sum | xxd -r -p | base64
        assert_eq!(sign(READ, "secret"), "v1_ae/PFK68iY0J3Y2sR1eBCM5nRuIgB8rBOQabN6OIhEQ");
        // echo -n ':write::secret:1700000000'
        let upload = FileClaim {
            path: "",
            username: "",
            operation: Operation::Write,
            expiration: Some("1700000000"),
            ..READ
        };
        assert_eq!(sign(upload, "secret"), "v1_1JnYqnXj+OdyydP5L5j9UXFlVwIQmbjrATVTGEkam2Q");
    }

    #[test]
    fn who_may_touch_files() {
        let signed = sign(READ, "t");
        let until = FileClaim { expiration: Some("100"), ..READ };
        let signed_until = sign(until, "t");
        let cases = [
            ("no token, no rule", READ, None, 0, Ok(())),
            ("nothing given", READ, Some("t"), 0, Err(FileRefusal::NoSignature)),
            ("right header", FileClaim { header: Some("t"), ..READ }, Some("t"), 0, Ok(())),
            (
                "a wrong header beats a right signature",
                FileClaim { header: Some("x"), signature: Some(&signed), ..READ },
                Some("t"),
                0,
                Err(FileRefusal::WrongToken),
            ),
            ("signed", FileClaim { signature: Some(&signed), ..READ }, Some("t"), 0, Ok(())),
            (
                "signed for reading",
                FileClaim { signature: Some(&signed), operation: Operation::Write, ..READ },
                Some("t"),
                0,
                Err(FileRefusal::WrongSignature),
            ),
            (
                "the last second counts",
                FileClaim { signature: Some(&signed_until), ..until },
                Some("t"),
                100,
                Ok(()),
            ),
            (
                "over",
                FileClaim { signature: Some(&signed_until), ..until },
                Some("t"),
                101,
                Err(FileRefusal::Expired),
            ),
            (
                "a wrong signature is told before its end",
                FileClaim { signature: Some("v1_x"), ..until },
                Some("t"),
                101,
                Err(FileRefusal::WrongSignature),
            ),
        ];
        for (why, claim, token, now, wanted) in cases {
            assert_eq!(check_file_claim(claim, token, now), wanted, "{why}");
        }
    }
}
