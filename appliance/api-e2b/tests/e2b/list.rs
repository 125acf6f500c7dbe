//! Listing: order, filters, pages.

use std::time::Duration;

use serde_json::Value;

use crate::world::World;

fn ids(body: &Value) -> Vec<String> {
    body.as_array().unwrap().iter().map(|it| it["sandboxID"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn newest_first_in_pages_without_loss() {
    let world = World::new().await;
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(world.create().await);
        world.clock.advance(Duration::from_secs(1));
    }
    let (mut listed, mut path) = (Vec::new(), "GET /v2/sandboxes?limit=2".to_owned());
    loop {
        let page = world.ask(&path, "").await;
        assert_eq!(page.headers["x-total-running"], "5");
        listed.extend(ids(&page.body));
        let Some(next) = page.headers.get("x-next-token") else { break };
        // New ones come in front of what is read already.
        world.create().await;
        world.create().await;
        for id in world.zone.running() {
            if !created.contains(&id.label()) {
                world.ask(&format!("DELETE /sandboxes/{id}"), "").await;
            }
        }
        path = format!("GET /v2/sandboxes?limit=2&nextToken={}", next.to_str().unwrap());
    }
    created.reverse();
    assert_eq!(listed, created);
    let ascending = world.ask("GET /v2/sandboxes?order=asc", "").await;
    created.reverse();
    assert_eq!(ids(&ascending.body), created);
    assert_eq!(ids(&world.ask("GET /sandboxes", "").await.body).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn filters() {
    let world = World::new().await;
    let body = r#"{"templateID":"base","metadata":{"k":"a b&c=ü"}}"#;
    let marked = world.ask("POST /v2/sandboxes", body).await.body["sandboxID"].clone();
    world.clock.advance(Duration::from_secs(10));
    let later = world.create().await;
    for (query, expected) in [
        ("state=running", 2),
        ("state=running,paused", 2),
        ("state=paused", 0),
        ("metadata=k%3Da%252520b%252526c%25253D%2525C3%2525BC", 1),
        ("metadata=k%3Dother", 0),
        ("template=base", 2),
        ("template=nowhere", 0),
        ("startedAfter=2026-01-01T00:00:10Z", 1),
        ("startedAfter=2026-01-01T00:00:11Z", 0),
    ] {
        let listed = world.ask(&format!("GET /v2/sandboxes?{query}"), "").await;
        assert_eq!(ids(&listed.body).len(), expected, "{query}");
    }
    let old =
        world.ask("GET /sandboxes?metadata=k%3Da%252520b%252526c%25253D%2525C3%2525BC", "").await;
    assert_eq!(old.body[0]["sandboxID"], marked);
    assert_ne!(marked, later.as_str());
    for bad in [
        "state=dead",
        "limit=0",
        "limit=101",
        "limit=x",
        "order=up",
        "startedAfter=now",
        "nextToken=zz",
    ] {
        let answer = world.ask(&format!("GET /v2/sandboxes?{bad}"), "").await;
        let field = bad.split('=').next().unwrap();
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.body["message"].as_str().unwrap().starts_with(field), "{}", answer.body);
    }
}
