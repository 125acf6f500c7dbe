//! Which part of a file is asked for, and whether it is wanted at all (RFC 9110, sections 13, 14).
//! Files have a date and no entity tag.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Part {
        first: u64,
        length: u64,
    },
    /// The client has it already.
    Nothing,
    /// It is not what the client thinks it is.
    Refused,
    /// The file ends before that part begins.
    OutOfRange,
}

pub(crate) fn is_partial_or_conditional(headers: &HeaderMap) -> bool {
    [
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ]
    .iter()
    .any(|name| headers.contains_key(name))
}

/// `modified` and dates of headers are seconds since the epoch.
pub(crate) fn wanted(headers: &HeaderMap, size: u64, modified: i64) -> Wanted {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let date = |name| text(name).and_then(parse_date);
    if let Some(tags) = text(header::IF_MATCH) {
        if tags.trim() != "*" {
            return Wanted::Refused;
        }
    } else if date(header::IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since) {
        return Wanted::Refused;
    }
    if let Some(tags) = text(header::IF_NONE_MATCH) {
        if tags.trim() == "*" {
            return Wanted::Nothing;
        }
    } else if date(header::IF_MODIFIED_SINCE).is_some_and(|since| modified <= since) {
        return Wanted::Nothing;
    }
    let same = match text(header::IF_RANGE) {
        None => true,
        Some(value) => parse_date(value) == Some(modified),
    };
    match text(header::RANGE).filter(|_| same) {
        Some(range) => part(range, size),
        None => Wanted::All,
    }
}

/// Several parts, or what is no range of bytes, may be answered with the whole.
fn part(range: &str, size: u64) -> Wanted {
    let Some(range) = range.trim().strip_prefix("bytes=") else { return Wanted::All };
    let Some((first, last)) = range.split_once('-') else { return Wanted::All };
    let (first, last) = (first.trim(), last.trim());
    if range.contains(',') {
        return Wanted::All;
    }
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        // More digits than fit are past any end.
        (digits && !text.is_empty()).then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (first.is_empty(), number(first), number(last)) {
        (true, _, Some(0)) => Wanted::OutOfRange,
        (true, _, Some(_)) if size == 0 => Wanted::OutOfRange,
        (true, _, Some(suffix)) => {
            let length = suffix.min(size);
            Wanted::Part { first: size - length, length }
        }
        (false, Some(first), _) if !last.is_empty() && number(last).is_none_or(|l| l < first) => {
            Wanted::All
        }
        (false, Some(first), _) if first >= size => Wanted::OutOfRange,
        (false, Some(first), last) => {
            let end = last.map_or(size, |last| last.saturating_add(1).min(size));
            Wanted::Part { first, length: end - first }
        }
        (_, None, _) | (true, ..) => Wanted::All,
    }
}

fn parse_date(value: &str) -> Option<i64> {
    let date = httpdate::parse_http_date(value).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// Before the epoch there is no date.
pub(crate) fn format_date(modified: i64) -> Option<String> {
    let since = Duration::from_secs(u64::try_from(modified).ok()?);
    // The library's last is the year 9999.
    let date: SystemTime = UNIX_EPOCH.checked_add(since)?;
    (since.as_secs() < 253_402_300_800).then(|| httpdate::fmt_http_date(date))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: &str = "Thu, 01 Jan 1970 00:01:40 GMT";
    const BEFORE: &str = "Thu, 01 Jan 1970 00:01:39 GMT";

    fn ask(pairs: &[(&str, &str)], size: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(
                http::HeaderName::try_from(*name).unwrap(),
                http::HeaderValue::try_from(*value).unwrap(),
            );
        }
        assert_eq!(is_partial_or_conditional(&headers), !pairs.is_empty());
        wanted(&headers, size, 100)
    }

    #[test]
    fn parts_of_files() {
        let part = |first, length| Wanted::Part { first, length };
        for (range, size, wanted) in [
            ("bytes=0-0", 10, part(0, 1)),
            ("bytes=2-4", 10, part(2, 3)),
            ("bytes=2-", 10, part(2, 8)),
            ("bytes=2-99", 10, part(2, 8)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=-30", 10, part(0, 10)),
            ("bytes=10-", 10, Wanted::OutOfRange),
            ("bytes=99999999999999999999999-", 10, Wanted::OutOfRange),
            ("bytes=-0", 10, Wanted::OutOfRange),
            ("bytes=0-", 0, Wanted::OutOfRange),
            ("bytes=-1", 0, Wanted::OutOfRange),
            ("bytes=4-2", 10, Wanted::All),
            ("bytes=0-1,3-4", 10, Wanted::All),
            ("bytes=x-", 10, Wanted::All),
            ("bytes=1-x", 10, Wanted::All),
            ("bytes=-", 10, Wanted::All),
            ("lines=1-2", 10, Wanted::All),
        ] {
            assert_eq!(ask(&[("range", range)], size), wanted, "{range} of {size}");
        }
    }

    #[test]
    fn dates_decide() {
        assert_eq!(format_date(100).as_deref(), Some(DAY));
        assert_eq!(format_date(-1), None);
        let part = Wanted::Part { first: 0, length: 1 };
        for (pairs, wanted) in [
            (&[][..], Wanted::All),
            (&[("if-modified-since", DAY)], Wanted::Nothing),
            (&[("if-modified-since", BEFORE)], Wanted::All),
            (&[("if-modified-since", "yesterday")], Wanted::All),
            (&[("if-unmodified-since", DAY)], Wanted::All),
            (&[("if-unmodified-since", BEFORE)], Wanted::Refused),
            (&[("if-match", "*")], Wanted::All),
            (&[("if-match", "\"x\"")], Wanted::Refused),
            (&[("if-none-match", "*")], Wanted::Nothing),
            (&[("if-none-match", "\"x\""), ("if-modified-since", DAY)], Wanted::All),
            (&[("range", "bytes=0-0"), ("if-range", DAY)], part),
            (&[("range", "bytes=0-0"), ("if-range", BEFORE)], Wanted::All),
            (&[("range", "bytes=0-0"), ("if-range", "\"x\"")], Wanted::All),
        ] {
            assert_eq!(ask(pairs, 10), wanted, "{pairs:?}");
        }
    }
}
