//! Templates: names, and whose they are.

use sandboxo_control::ImportTemplate;
use serde_json::{Value, json};

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
        assert_eq!(listed.body, json!([template(&world)]));
    }
}

#[tokio::test(start_paused = true)]
async fn one_is_published_and_withdrawn() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let seen = || world.control.templates.resolve(other, "base").is_some();
    assert!(seen());
    let ask = async |path: &str, body: &str| {
        let answer = world.ask(&format!("PATCH {path}"), body).await;
        (answer.status, answer.body)
    };
    let names = (200, json!({"names": ["default/base"]}));
    assert_eq!(ask("/v2/templates/base", "{\"public\":false}").await, names);
    assert!(!seen());
    assert_eq!(ask("/v2/templates/base", "{}").await, names);
    assert!(!seen());
    let alias = world.ask("GET /templates/aliases/base", "").await;
    assert_eq!(alias.body["public"], json!(false));
    assert_eq!(ask("/templates/base", "{\"public\":true}").await, (200, json!({})));
    assert!(seen());
    assert_eq!(ask("/v2/templates/nowhere", "{\"public\":true}").await.0, 404);
    assert_eq!(ask("/v2/templates/base", "{\"public\":1}").await.0, 400);
}

/// Every field that the Python models require.
fn template(world: &World) -> Value {
    let record = &world.template;
    json!({
        "templateID": record.id.to_string(), "buildID": record.build.to_string(),
        "cpuCount": record.resources.vcpus, "memoryMB": record.resources.memory_mib,
        "diskSizeMB": record.resources.disk_mib, "public": true,
        "aliases": ["base"], "names": ["default/base"],
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
        "createdBy": null, "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1,
        "envdVersion": "0.6.13", "buildStatus": "ready",
    })
}

#[tokio::test(start_paused = true)]
async fn one_is_told_with_its_build() {
    let world = World::new().await;
    let record = &world.template;
    let build = json!({
        "buildID": record.build.to_string(), "status": "ready",
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z", "cpuCount": record.resources.vcpus,
        "memoryMB": record.resources.memory_mib, "diskSizeMB": record.resources.disk_mib,
        "envdVersion": "0.6.13",
    });
    let mut expected = template(&world);
    expected["builds"] = json!([build]);
    for name in ["base", &record.id.to_string(), "default%2Fbase"] {
        let one = world.ask(&format!("GET /templates/{name}"), "").await;
        assert_eq!((one.status, one.body), (200, expected.clone()), "{name}");
    }
    let unknown = world.ask("GET /templates/nowhere", "").await;
    let told = json!({"code": 404, "message": "template 'nowhere' not found"});
    assert_eq!((unknown.status, unknown.body), (404, told));
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
