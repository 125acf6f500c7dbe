//! Templates: names, and whose they are.

use sandboxo_control::ImportTemplate;
use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn names_are_found_and_told_apart() {
    let world = World::new().await;
    let id = world.template.id.to_string();
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let secret = ImportTemplate { public: false, ..ImportTemplate::new("theirs") };
    world.control.templates.import(other, secret, Box::new(&b"x"[..])).await.unwrap();
    let found = world.ask("GET /templates/aliases/base", "").await;
    assert_eq!((found.status, found.body), (200, json!({"templateID": id, "public": true})));
    assert_eq!(world.ask("GET /templates/aliases/theirs", "").await.status, 403);
    assert_eq!(world.ask("GET /templates/aliases/nowhere", "").await.status, 404);
    assert_eq!(world.ask("GET /templates/default%2Fbase:default", "").await.status, 200);
    for path in ["/templates", "/v2/templates"] {
        let listed = world.ask(&format!("GET {path}"), "").await;
        assert_eq!(listed.body.as_array().unwrap().len(), 1);
        assert_eq!(listed.body[0]["templateID"], json!(id));
        assert_eq!(listed.body[0]["names"], json!(["default/base"]));
        assert_eq!(listed.body[0]["aliases"], json!(["base"]));
    }
}

#[tokio::test(start_paused = true)]
async fn one_in_use_stays() {
    let world = World::new().await;
    let sandbox = world.create().await;
    assert_eq!(world.ask("DELETE /templates/base", "").await.status, 400);
    world.ask(&format!("DELETE /sandboxes/{sandbox}"), "").await;
    assert_eq!(world.ask("DELETE /templates/base", "").await.status, 204);
    assert_eq!(world.ask("DELETE /templates/base", "").await.status, 404);
}
