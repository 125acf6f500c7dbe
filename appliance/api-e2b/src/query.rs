//! Query strings of lists, metrics and logs.

use std::{collections::BTreeMap, ops::RangeInclusive};

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use percent_encoding::percent_decode_str;
use sandboxo_control::{ListError, ListQuery, SnapshotQuery};
use sandboxo_model::{Direction, LogQuery, PhaseKind, decide::list::Order};
use sandboxo_zone_protocol::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{ApiError, Surface, body::sandbox_id};

/// A query string; what is wrong is an [`ApiError`].
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Surface> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Surface) -> Result<Self, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(ApiError::Invalid(format!("query: {}", rejection.body_text()))),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List {
    state: Option<String>,
    metadata: Option<String>,
    started_after: Option<String>,
    template: Option<String>,
    order: Option<String>,
    limit: Option<String>,
    next_token: Option<String>,
}

/// What `GET /sandboxes` takes of it: no paging, running ones only.
#[derive(Deserialize)]
pub(crate) struct Running {
    pub(crate) metadata: Option<String>,
}

/// What clients know as paused: they can do nothing with the difference.
const PAUSED: [PhaseKind; 3] = [PhaseKind::Pausing, PhaseKind::Paused, PhaseKind::Resuming];

impl TryFrom<List> for ListQuery {
    type Error = ApiError;

    fn try_from(list: List) -> Result<Self, ApiError> {
        let List { state, metadata, started_after, template, order, limit, next_token } = list;
        let mut query = Self { template, ..Self::default() };
        query.phases.extend(PAUSED);
        if let Some(states) = state.filter(|it| !it.is_empty()) {
            query.phases.clear();
            for state in states.split(',') {
                match state {
                    "running" => drop(query.phases.insert(PhaseKind::Running)),
                    "paused" => query.phases.extend(PAUSED),
                    other => {
                        return invalid(
                            "state",
                            &format!("{other:?} is neither running nor paused"),
                        );
                    }
                }
            }
        }
        query.metadata = pairs(metadata.as_deref().unwrap_or_default());
        if let Some(text) = started_after {
            let Ok(at) = text.parse() else {
                return invalid("startedAfter", &format!("{text:?} is not an RFC 3339 time"));
            };
            query.started_after = Some(at);
        }
        match order.as_deref() {
            None | Some("" | "desc") => query.order = Order::Descending,
            Some("asc") => query.order = Order::Ascending,
            Some(other) => return invalid("order", &format!("{other:?} is neither asc nor desc")),
        }
        if let Some(text) = limit {
            let Ok(limit) = text.parse() else {
                return invalid("limit", &format!("{text:?} is not a number"));
            };
            query.limit = limit;
        }
        query.token = next_token.filter(|token| !token.is_empty());
        Ok(query)
    }
}

/// Of lists that are only cut into pages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Paging {
    limit: Option<String>,
    next_token: Option<String>,
}

impl Paging {
    /// How many, and behind what.
    pub(crate) fn split(self) -> Result<(usize, Option<String>), ApiError> {
        let limit = limit(self.limit)?;
        Ok((limit, self.next_token.filter(|token| !token.is_empty())))
    }
}

fn limit(asked: Option<String>) -> Result<usize, ApiError> {
    match asked.filter(|limit| !limit.is_empty()) {
        Some(text) => match text.parse() {
            Ok(limit) => Ok(limit),
            Err(_) => invalid("limit", &format!("{text:?} is not a number")),
        },
        None => Ok(ListError::MAX_LIMIT),
    }
}

/// `GET /snapshots`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshots {
    #[serde(rename = "sandboxID")]
    sandbox_id: Option<String>,
    name: Option<String>,
    limit: Option<String>,
    next_token: Option<String>,
}

impl Snapshots {
    /// `None`: of a sandbox that can't be.
    pub(crate) fn query(self) -> Result<Option<SnapshotQuery>, ApiError> {
        let Self { sandbox_id: asked, name, limit, next_token } = self;
        let sandbox = match asked.filter(|id| !id.is_empty()) {
            Some(text) => match sandbox_id(&text) {
                Some(id) => Some(id),
                None => return Ok(None),
            },
            None => None,
        };
        Ok(Some(SnapshotQuery {
            sandbox,
            name: name.filter(|name| !name.is_empty()),
            limit: self::limit(limit)?,
            token: next_token.filter(|token| !token.is_empty()),
        }))
    }
}

/// `a%20b=c%26d`: the SDKs quote keys and values before they make a form of them, which they then
/// put into the query as one value. The query's own decoding is done already.
pub(crate) fn pairs(metadata: &str) -> BTreeMap<String, String> {
    let unquote = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    form_urlencoded::parse(metadata.as_bytes())
        .map(|(key, value)| (unquote(&key), unquote(&value)))
        .collect()
}

#[derive(Deserialize)]
pub(crate) struct Range {
    start: Option<String>,
    end: Option<String>,
}

impl TryFrom<Range> for RangeInclusive<Timestamp> {
    type Error = ApiError;

    fn try_from(range: Range) -> Result<Self, ApiError> {
        let start = second(range.start, "start", Timestamp::MIN)?;
        // A whole second belongs to the range until it is over.
        let end = second(range.end, "end", Timestamp::MAX)?;
        let end = sandboxo_model::rules::after(end, std::time::Duration::from_millis(999));
        if start > end {
            return invalid("start", "is after end");
        }
        Ok(start..=end)
    }
}

fn second(text: Option<String>, field: &str, missing: Timestamp) -> Result<Timestamp, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(missing) };
    let at = text.parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    at.map_or_else(|| invalid(field, &format!("{text:?} is not a Unix time in seconds")), Ok)
}

/// `GET /sandboxes/{id}/logs`.
#[derive(Deserialize)]
pub(crate) struct LogsSince {
    start: Option<String>,
    limit: Option<String>,
}

/// `GET /v2/sandboxes/{id}/logs`.
#[derive(Deserialize)]
pub(crate) struct Logs {
    cursor: Option<String>,
    limit: Option<String>,
    direction: Option<String>,
    level: Option<String>,
    search: Option<String>,
}

const MAX_LINES: usize = 1000;

impl TryFrom<LogsSince> for LogQuery {
    type Error = ApiError;

    fn try_from(LogsSince { start, limit }: LogsSince) -> Result<Self, ApiError> {
        Ok(Self {
            from: millisecond(start, "start")?,
            direction: Direction::Forward,
            limit: lines(limit)?,
            level: None,
            search: None,
        })
    }
}

impl TryFrom<Logs> for LogQuery {
    type Error = ApiError;

    fn try_from(asked: Logs) -> Result<Self, ApiError> {
        let Logs { cursor, limit, direction, level, search } = asked;
        let direction = match direction.as_deref() {
            None | Some("" | "forward") => Direction::Forward,
            Some("backward") => Direction::Backward,
            Some(other) => {
                return invalid("direction", &format!("{other:?} is neither forward nor backward"));
            }
        };
        let from = millisecond(cursor, "cursor")?.map(|at| match direction {
            Direction::Forward => at,
            // A whole millisecond belongs to the page until it is over.
            Direction::Backward => {
                sandboxo_model::rules::after(at, std::time::Duration::from_micros(999))
            }
        });
        let level = match level.filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => match text.parse() {
                Ok(level) => Some(level),
                Err(error) => return invalid("level", &format!("{text:?} is {error}")),
            },
        };
        let search = search.filter(|text| !text.is_empty());
        Ok(Self { from, direction, limit: lines(limit)?, level, search })
    }
}

fn lines(text: Option<String>) -> Result<usize, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(MAX_LINES) };
    let limit = text.parse().ok().filter(|limit| *limit <= MAX_LINES);
    limit.map_or_else(
        || invalid("limit", &format!("{text:?} is not a number from 0 to {MAX_LINES}")),
        Ok,
    )
}

fn millisecond(text: Option<String>, field: &str) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let at = text.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    at.map_or_else(
        || invalid(field, &format!("{text:?} is not a Unix time in milliseconds")),
        |at| Ok(Some(at)),
    )
}

fn invalid<T>(field: &str, rule: &str) -> Result<T, ApiError> {
    Err(ApiError::Invalid(format!("{field}: {rule}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_to_the_end() {
        let map = |list: &[(&str, &str)]| {
            list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        for (text, expected) in [
            ("", map(&[])),
            ("a=b", map(&[("a", "b")])),
            ("a%2520b=c%2526d", map(&[("a b", "c&d")])),
            ("k=a+b%2526c%253D%25C3%25BC", map(&[("k", "a b&c=ü")])),
            ("a=1&b=2", map(&[("a", "1"), ("b", "2")])),
            ("bad=%25zz", map(&[("bad", "%zz")])),
        ] {
            assert_eq!(pairs(text), expected, "{text}");
        }
    }
}
