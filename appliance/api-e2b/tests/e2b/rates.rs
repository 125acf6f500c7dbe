//! How often a team may ask.

use std::{num::NonZeroU32, time::Duration};

use sandboxo_api_e2b::{RateLimits, RateMode};

use crate::world::{Answer, World};

fn limits(mode: RateMode) -> RateLimits {
    RateLimits { mode, list: NonZeroU32::new(2), delete: NonZeroU32::new(1) }
}

fn told(answer: &Answer, name: &str) -> Option<String> {
    answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_ask_again() {
    let world = World::with(limits(RateMode::Enabled)).await;
    for remaining in ["1", "0"] {
        let answer = world.ask("GET /v2/sandboxes", "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(told(&answer, "ratelimit-limit").as_deref(), Some("2"));
        assert_eq!(told(&answer, "ratelimit-remaining").as_deref(), Some(remaining));
        assert_eq!(told(&answer, "retry-after"), None);
    }
    let refused = world.ask("GET /v2/sandboxes?limit=1", "").await;
    assert_eq!((refused.status, &refused.body["error_code"]), (429, &"rate_limited".into()));
    for (name, value) in
        [("retry-after", "1"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "1")]
    {
        assert_eq!(told(&refused, name).as_deref(), Some(value), "{name}");
    }
    // Each route has its own budget, and most have none.
    assert_eq!(world.ask("GET /templates", "").await.status, 200);
    for _ in 0..3 {
        let id = world.create().await;
        let detail = world.ask(&format!("GET /sandboxes/{id}"), "").await;
        assert_eq!((detail.status, told(&detail, "ratelimit-limit")), (200, None));
    }
    assert_eq!(world.ask("DELETE /sandboxes/sbx-loc-00000000000000000000", "").await.status, 404);
    let id = world.create().await;
    assert_eq!(world.ask(&format!("DELETE /sandboxes/{id}"), "").await.status, 429);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.ask(&format!("DELETE /sandboxes/{id}"), "").await.status, 204);
    assert_eq!(world.ask("GET /v2/sandboxes", "").await.status, 200);
    // Who has no key spends nothing.
    assert_eq!(world.ask_with("GET /templates", "", &[]).await.status, 401);
}

#[tokio::test]
async fn a_shadow_refuses_nothing_and_says_nothing() {
    for mode in [RateMode::Off, RateMode::Shadow] {
        let world = World::with(limits(mode)).await;
        for _ in 0..5 {
            let answer = world.ask("GET /templates", "").await;
            assert_eq!((answer.status, told(&answer, "ratelimit-limit")), (200, None));
        }
    }
}
