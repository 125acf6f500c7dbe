//! The name of a file in `Content-Disposition`, as RFC 6266 and RFC 5987 have it.

use std::fmt::Write;

/// Names of other alphabets go in twice: in a form for old readers, and whole.
pub(crate) fn inline(name: &str) -> String {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !name.is_empty() && name.chars().all(token) {
        return format!("inline; filename={name}");
    }
    let mut value = "inline; filename=\"".to_owned();
    for c in name.chars() {
        match c {
            '"' | '\\' => value.extend(['\\', c]),
            ' '..='~' => value.push(c),
            _ => value.push('_'),
        }
    }
    value.push('"');
    if !name.chars().all(|c| (' '..='~').contains(&c)) {
        value.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
                value.push(char::from(byte));
            } else if write!(value, "%{byte:02X}").is_err() {
                // A String takes all.
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for (name, wanted) in [
            ("a.txt", "inline; filename=a.txt"),
            ("a b.txt", "inline; filename=\"a b.txt\""),
            ("a\"b\\.txt", "inline; filename=\"a\\\"b\\\\.txt\""),
            (
                "日本 \"x\".txt",
                "inline; filename=\"__ \\\"x\\\".txt\"; \
                 filename*=UTF-8''%E6%97%A5%E6%9C%AC%20%22x%22.txt",
            ),
            ("a\nb", "inline; filename=\"a_b\"; filename*=UTF-8''a%0Ab"),
            ("", "inline; filename=\"\""),
        ] {
            assert_eq!(inline(name), wanted);
        }
    }
}
