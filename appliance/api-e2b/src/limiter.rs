//! Budgets of requests: one for each team, method and route. What is kept of one is when it will be
//! full again, and nothing of a full one.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header::RETRY_AFTER},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use parking_lot::Mutex;
use sandboxo_model::decide::rate::{self, Turn};
use sandboxo_zone_protocol::{TeamId, Timestamp};

use crate::{ApiError, Surface};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Beyond so many budgets those that are full are forgotten.
const MANY: usize = 4096;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateMode {
    #[default]
    Off,
    /// What would be refused is logged, and served.
    Shadow,
    Enabled,
}

/// Requests per second, and as many at once; `None`: as many as come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub mode: RateMode,
    pub list: Option<NonZeroU32>,
    pub delete: Option<NonZeroU32>,
}

pub(crate) struct Limiter {
    limits: RateLimits,
    full_at: Mutex<HashMap<Budget, Timestamp>>,
}

type Budget = (TeamId, Method, String);

impl Limiter {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self { limits, full_at: Mutex::default() }
    }

    fn ask(&self, rate: NonZeroU32, budget: Budget, now: Timestamp) -> Turn {
        let mut budgets = self.full_at.lock();
        if budgets.len() >= MANY {
            budgets.retain(|_, full_at| *full_at > now);
        }
        let (full_at, turn) = rate::ask(rate, budgets.get(&budget).copied(), now);
        budgets.insert(budget, full_at);
        turn
    }
}

/// The rate of the group that a route is in; most are in none.
fn rate(limits: &RateLimits, method: &Method, route: &str) -> Option<NonZeroU32> {
    match (method.as_str(), route) {
        (
            "GET",
            "/sandboxes" | "/v2/sandboxes" | "/templates" | "/v2/templates" | "/snapshots"
            | "/secrets" | "/volumes",
        ) => limits.list,
        (
            "DELETE",
            "/sandboxes/{id}" | "/templates/{id}" | "/secrets/{secret}" | "/volumes/{id}",
        ) => limits.delete,
        _ => None,
    }
}

pub(crate) async fn limit(
    State(surface): State<Surface>,
    route: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let limits = &surface.limiter.limits;
    let rate = match limits.mode {
        RateMode::Off => None,
        RateMode::Shadow | RateMode::Enabled => rate(limits, request.method(), route.as_str()),
    };
    // Whoever has no key is turned away behind this.
    let asked = rate.and_then(|rate| Some((rate, surface.team(request.headers())?)));
    let Some((rate, team)) = asked else { return next.run(request).await };
    let budget = (team, request.method().clone(), route.as_str().to_owned());
    let turn = surface.limiter.ask(rate, budget, surface.control.sandboxes.now());
    if !turn.allowed {
        let shadow = limits.mode == RateMode::Shadow;
        tracing::info!(%team, method = %request.method(), route = route.as_str(), shadow, "too often");
    }
    if limits.mode == RateMode::Shadow {
        return next.run(request).await;
    }
    let mut response = if turn.allowed {
        next.run(request).await
    } else {
        ApiError::TooOften(rate).into_response()
    };
    tell(response.headers_mut(), rate, turn);
    response
}

fn tell(headers: &mut HeaderMap, rate: NonZeroU32, turn: Turn) {
    headers.insert(LIMIT, rate.get().into());
    headers.insert(REMAINING, turn.remaining.into());
    headers.insert(RESET, seconds(turn.full_in));
    if !turn.allowed {
        headers.insert(RETRY_AFTER, seconds(turn.retry_in));
    }
}

/// Whole ones, and not too few.
fn seconds(time: Duration) -> HeaderValue {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_budgets_are_forgotten_when_there_are_many() {
        let limiter = Limiter::new(RateLimits::default());
        let rate = NonZeroU32::new(10).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let team = "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse::<TeamId>().unwrap();
        let budget = |n: usize| (team, Method::GET, format!("/{n}"));
        for n in 0..MANY {
            limiter.ask(rate, budget(n), at(0));
        }
        limiter.ask(rate, budget(0), at(10));
        assert_eq!(limiter.full_at.lock().len(), 1);
    }
}
