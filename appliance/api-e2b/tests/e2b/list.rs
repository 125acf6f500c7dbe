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

#[tokio::test(start_paused = true)]
async fn row_118_three_pages_of_many_have_each_once_while_more_come() {
    let world = World::new().await;
    let mut created = Vec::new();
    for _ in 0..180 {
        created.push(world.create().await);
    }
    let (mut listed, mut pages) = (Vec::new(), 0);
    let mut path = "GET /v2/sandboxes?limit=70".to_owned();
    loop {
        let page = world.ask(&path, "").await;
        let some = ids(&page.body);
        assert!(some.len() <= 70);
        listed.extend(some);
        pages += 1;
        let Some(next) = page.headers.get("x-next-token") else { break };
        path = format!("GET /v2/sandboxes?limit=70&nextToken={}", next.to_str().unwrap());
        // Of the same moment it might come behind what was seen.
        world.clock.advance(std::time::Duration::from_secs(1));
        world.create().await;
    }
    listed.sort_unstable();
    created.sort_unstable();
    assert_eq!((pages, listed), (3, created));
}

#[tokio::test(start_paused = true)]
async fn row_119_any_text_can_be_filtered_by() {
    let world = World::new().await;
    let quote = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        text.bytes().fold(String::new(), |all, byte| {
            if plain(byte) {
                all + &char::from(byte).to_string()
            } else {
                format!("{all}%{byte:02X}")
            }
        })
    };
    let values = ["a b&c=ü", "100%", "%41", "a+b", "=", "&", "\u{1f980}", "\"'\\", "", "a,b"];
    for (number, value) in values.iter().enumerate() {
        let body = serde_json::json!({
            "templateID": "base", "metadata": { "k": value, "n=&": number.to_string() },
        });
        let made = world.ask("POST /v2/sandboxes", &body.to_string()).await;
        assert_eq!(made.status, 201, "{value}");
        // As the clients send it: each part quoted, and the whole twice more.
        let number = number.to_string();
        for pair in [[("k", *value)], [("n=&", number.as_str())]].concat() {
            let pair = format!("{}={}", quote(&quote(pair.0)), quote(&quote(pair.1)));
            let path = format!("GET /v2/sandboxes?metadata={}", quote(&pair));
            let listed = world.ask(&path, "").await;
            assert_eq!(ids(&listed.body), [made.body["sandboxID"].as_str().unwrap()], "{pair}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn row_119_a_filter_that_makes_no_sense_is_no_fault_of_the_server() {
    let world = World::new().await;
    world.create().await;
    for filter in ["%25", "%25ZZ", "=", "&&&", "k", "k%253D%25FF", "%00=%00", "a=b&a=c"] {
        for path in ["/v2/sandboxes", "/sandboxes"] {
            let answer = world.ask(&format!("GET {path}?metadata={filter}"), "").await;
            assert!(answer.status == 200 || answer.status == 400, "{filter}: {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn row_132_the_order_is_that_of_creation_and_stays() {
    let world = World::new().await;
    let mut created = Vec::new();
    for name in ["b", "B", "ä", "10", "9", "a"] {
        let body = serde_json::json!({ "templateID": "base", "metadata": { "name": name } });
        let made = world.ask("POST /v2/sandboxes", &body.to_string()).await;
        created.insert(0, made.body["sandboxID"].as_str().unwrap().to_owned());
        world.clock.advance(Duration::from_millis(5));
    }
    for path in ["/v2/sandboxes", "/sandboxes"] {
        for _ in 0..3 {
            assert_eq!(ids(&world.ask(&format!("GET {path}"), "").await.body), created, "{path}");
        }
    }
}
