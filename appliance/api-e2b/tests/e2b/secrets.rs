//! Secrets go in and never come out.

use serde_json::{Value, json};

use crate::world::{Answer, World};

const ALL: &str = "GET /secrets";
const NEW: &str = "POST /secrets";

fn new(name: &str) -> String {
    json!({ "name": name, "value": "s3cr3t", "metadata": { "owner": "me" } }).to_string()
}

/// What nobody may see again is in no answer.
async fn ask(world: &World, line: &str, body: &str) -> Answer {
    let answer = world.ask(line, body).await;
    assert!(!answer.body.to_string().contains("s3cr3t"), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{line}");
    answer
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_stored_shown_replaced_and_removed() {
    let world = World::new().await;
    let made = ask(&world, NEW, &new("Api_Key-2")).await;
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.body["secretID"].as_str().unwrap().to_owned();
    assert!(id.starts_with("sec_"), "{id}");
    let shape =
        |answer: &Value| ["name", "currentVersion", "metadata"].map(|field| answer[field].clone());
    assert_eq!(shape(&made.body), [json!("api_key-2"), json!(1), json!({ "owner": "me" })]);
    assert_eq!(made.body["createdAt"], made.body["updatedAt"]);
    for called in [id.as_str(), "api_key-2", "API_KEY-2"] {
        let shown = ask(&world, &format!("GET /secrets/{called}"), "").await;
        assert_eq!((shown.status, &shown.body), (200, &made.body), "{called}");
    }
    assert_eq!(ask(&world, ALL, "").await.body, json!([made.body]));

    let updated = ask(&world, &format!("POST /secrets/{id}"), r#"{"value":"other"}"#).await;
    assert_eq!(updated.status, 200);
    assert_eq!(shape(&updated.body), [json!("api_key-2"), json!(2), json!({ "owner": "me" })]);
    let emptied = r#"{"value":"other","metadata":{}}"#;
    let updated = ask(&world, "POST /secrets/api_key-2", emptied).await;
    assert_eq!(shape(&updated.body), [json!("api_key-2"), json!(3), json!({})]);

    let path = format!("DELETE /secrets/{id}");
    assert_eq!(ask(&world, &path, "").await.status, 204);
    for line in [path.as_str(), &format!("GET /secrets/{id}"), "GET /secrets/api_key-2"] {
        assert_eq!(ask(&world, line, "").await.status, 404, "{line}");
    }
    assert_eq!(ask(&world, ALL, "").await.body, json!([]));
    assert_eq!(ask(&world, NEW, &new("api_key-2")).await.status, 201, "the name is free again");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let world = World::new().await;
    assert_eq!(ask(&world, NEW, &new("taken")).await.status, 201);
    let taken = ask(&world, NEW, &new("TAKEN")).await;
    assert_eq!((taken.status, &taken.body["error_code"]), (409, &json!("secret_exists")));
    let with = |value: String| json!({ "name": "new", "value": value }).to_string();
    for (body, named) in [
        ("{}".to_owned(), "missing field `name`"),
        (r#"{"name":"a"}"#.to_owned(), "missing field `value`"),
        (r#"{"name":"a","value":1}"#.to_owned(), "value: "),
        (new("sec_a"), "name: "),
        (new("a.b"), "name: "),
        (with(String::new()), "value: "),
        (with("a\nb".into()), "value: "),
        (with("v".repeat(65_537)), "value: "),
        (json!({ "name": "a", "value": "v", "metadata": { "": "" } }).to_string(), "metadata: "),
        (json!({ "name": "a", "value": "v", "metadata": { "a": 1 } }).to_string(), "metadata.a: "),
    ] {
        let answer = ask(&world, NEW, &body).await;
        assert_eq!(answer.status, 400, "{body:.80}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(ask(&world, NEW, &with("v".repeat(65_536))).await.status, 201);
    assert_eq!(ask(&world, NEW, &with("v".repeat(512 << 10))).await.status, 413);
    let answer = ask(&world, "POST /secrets/taken", r#"{"value":""}"#).await;
    assert_eq!(answer.status, 400);
    let shown = ask(&world, "GET /secrets/taken", "").await;
    assert_eq!(shown.body["currentVersion"], 1);
}

#[tokio::test(start_paused = true)]
async fn another_team_has_its_own() {
    let world = World::new().await;
    let made = ask(&world, NEW, &new("mine")).await;
    let id = made.body["secretID"].as_str().unwrap();
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let key = world.control.keys.create(other, "theirs").await.unwrap();
    let headers = [("X-API-KEY", key.secret.expose())];
    for line in [
        &format!("GET /secrets/{id}"),
        &format!("DELETE /secrets/{id}"),
        "GET /secrets/mine",
        "DELETE /secrets/mine",
    ] {
        assert_eq!(world.ask_with(line, "", &headers).await.status, 404, "{line}");
    }
    let theirs = world.ask_with("POST /secrets/mine", r#"{"value":"x"}"#, &headers).await;
    assert_eq!(theirs.status, 404);
    assert_eq!(world.ask_with(ALL, "", &headers).await.body, json!([]));
    assert_eq!(world.ask_with(NEW, &new("mine"), &headers).await.status, 201);
    assert_eq!(ask(&world, ALL, "").await.body, json!([made.body]));
    assert_eq!(world.ask_with(ALL, "", &[]).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn pages_show_each_once() {
    let world = World::new().await;
    for name in ["b", "d", "a", "c", "e"] {
        assert_eq!(ask(&world, NEW, &new(name)).await.status, 201);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = ask(&world, &format!("GET /secrets?limit=2&nextToken={token}"), "").await;
        assert_eq!(page.status, 200);
        let names = page.body.as_array().unwrap().iter().map(|it| it["name"].clone());
        seen.extend(names);
        let Some(next) = page.headers.get("x-next-token") else { break };
        token = next.to_str().unwrap().to_owned();
        // What is removed meanwhile leaves no gap.
        ask(&world, &format!("DELETE /secrets/{token}"), "").await;
    }
    assert_eq!(json!(seen), json!(["a", "b", "c", "d", "e"]));
    for wrong in ["limit=0", "limit=101", "limit=x", "nextToken=."] {
        assert_eq!(ask(&world, &format!("GET /secrets?{wrong}"), "").await.status, 400, "{wrong}");
    }
}

#[tokio::test(start_paused = true)]
async fn egress_of_the_team_has_the_value_of_now() {
    let world = World::new().await;
    let vault = world.zone.vault().unwrap();
    let id = world.create().await.parse().unwrap();
    let told = async |name: &str| {
        let value = vault.secret(id, name).await;
        value.map(|value| value.expose().to_owned())
    };
    assert_eq!(told("mine").await, None);
    ask(&world, NEW, &new("mine")).await;
    assert_eq!(told("Mine").await.as_deref(), Some("s3cr3t"));
    assert_eq!(told("min").await, None);
    ask(&world, "POST /secrets/mine", r#"{"value":"another"}"#).await;
    assert_eq!(told("mine").await.as_deref(), Some("another"));

    let other = world.control.keys.create_team("other").await.unwrap().id;
    let key = world.control.keys.create(other, "theirs").await.unwrap();
    let headers = [("X-API-KEY", key.secret.expose())];
    world.ask_with(NEW, &new("theirs"), &headers).await;
    assert_eq!(told("theirs").await, None);

    ask(&world, "DELETE /secrets/mine", "").await;
    assert_eq!(told("mine").await, None);
    ask(&world, NEW, &new("mine")).await;
    assert_eq!(world.ask(&format!("DELETE /sandboxes/{id}"), "").await.status, 204);
    assert_eq!(told("mine").await, None, "of no sandbox");
}
