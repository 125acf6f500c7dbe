//! Who is let in.

use axum::body::Body;

use crate::world::{TOKEN, World};

const ROUTES: [&str; 8] = [
    "GET /zone",
    "GET /templates",
    "POST /templates?name=x",
    "DELETE /templates/base",
    "GET /sandboxes",
    "GET /keys",
    "POST /keys",
    "DELETE /keys/x",
];

#[tokio::test]
async fn every_route_asks_for_the_operators_token() {
    let world = World::new().await;
    let key = world.control.keys.create(world.team, "k").await.unwrap();
    let key = format!("Bearer {}", key.secret.expose());
    let longer = format!("Bearer {TOKEN}x");
    let basic = format!("Basic {TOKEN}");
    for line in ROUTES {
        for who in [None, Some(""), Some("Bearer "), Some(&key), Some(&longer), Some(&basic)] {
            let answer = world.ask_as(who, line, Body::empty()).await;
            assert_eq!(answer.status, 401, "{line} {who:?}");
            assert!(answer.message().contains("token"), "{line} {who:?}");
        }
        assert_ne!(world.ask(line, "").await.status, 401, "{line}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told() {
    let world = World::new().await;
    let answer = world.ask("PATCH /keys", "").await;
    assert_eq!((answer.status, answer.message()), (405, "/admin/v1/keys does not take PATCH"));
}
