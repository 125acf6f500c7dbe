//! Imports, lists and deletions of templates.

use axum::body::Bytes;
use sandboxo_zone_protocol::ImportError;
use serde_json::Value;

use crate::world::World;

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_import_is_listed_until_it_is_deleted() {
    let world = World::new().await;
    let path = "POST /templates?name=web&vcpus=1&memory_mib=256&disk_mib=2048&platform=systrap&user=root&\
         workdir=/srv";
    // More than a body is usually allowed to have.
    let pieces = (0..48).map(|_| Ok(Bytes::from(vec![7; 64 << 10]))).collect();
    let made = world.upload(path, pieces).await;
    assert_eq!(made.status, 201, "{made:?}");
    for (field, expected) in [
        ("name", Value::from("web")),
        ("vcpus", 1.into()),
        ("memoryMib", 256.into()),
        ("diskMib", 2048.into()),
        ("platform", "systrap".into()),
        ("user", "root".into()),
        ("workdir", "/srv".into()),
        ("public", true.into()),
        ("sizeBytes", (48 * (64 << 10)).into()),
    ] {
        assert_eq!(made.body[field], expected, "{field}");
    }
    let list = world.ask("GET /templates", "").await;
    assert_eq!(names(&list.body), ["base", "web"]);
    assert_eq!(world.ask("DELETE /templates/web", "").await.status, 204);
    assert_eq!(names(&world.ask("GET /templates", "").await.body), ["base"]);
    let again = world.ask("DELETE /templates/web", "").await;
    assert_eq!((again.status, again.message()), (404, "template 'web' not found"));
}

#[tokio::test]
async fn an_import_under_a_known_name_keeps_the_id() {
    let world = World::new().await;
    let before = world.ask("GET /templates", "").await.body[0].clone();
    let made = world.upload("POST /templates?name=base", vec![Ok("another root".into())]).await;
    assert_eq!(made.body["id"], before["id"]);
    assert_ne!(made.body["image"], before["image"]);
}

#[tokio::test]
async fn another_teams_template_has_its_teams_name() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap();
    let path = "POST /templates?name=web&team=other&public=false";
    let made = world.upload(path, vec![Ok("a root".into())]).await;
    assert_eq!((made.status, &made.body["team"]), (201, &"other".into()), "{made:?}");
    assert_eq!(made.body["public"], false);
    let templates = &world.control.templates;
    assert!(templates.resolve(other.id, "web").is_some());
    assert!(templates.resolve(world.team, "other/web").is_none());

    let gone = world.ask("DELETE /templates/other%2Fweb", "").await;
    assert_eq!(gone.status, 204, "{gone:?}");
    assert!(templates.resolve(other.id, "web").is_none());
}

#[tokio::test]
async fn a_bad_import_is_told_by_its_field() {
    let world = World::new().await;
    for (query, part) in [
        ("", "name"),
        ("?name=", "name"),
        ("?name=Not%20A%20Name", "name"),
        ("?name=x&vcpus=0", "vcpus"),
        ("?name=x&vcpus=many", "vcpus"),
        ("?name=x&memory_mib=1", "memory_mib"),
        ("?name=x&disk_mib=0", "disk_mib"),
        ("?name=x&platform=kvm", "platform"),
        ("?name=x&user=", "user"),
        ("?name=x&workdir=relative", "workdir"),
        ("?name=x&team=nobody", "team"),
        ("?name=x&color=red", "color"),
    ] {
        let answer = world.upload(&format!("POST /templates{query}"), vec![Ok("tar".into())]).await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(answer.message().contains(part), "{query}: {answer:?}");
    }
    assert_eq!(names(&world.ask("GET /templates", "").await.body), ["base"]);
}

#[tokio::test]
async fn a_bad_archive_is_told() {
    let world = World::new().await;
    let empty = world.upload("POST /templates?name=x", vec![]).await;
    assert_eq!((empty.status, empty.message()), (400, "archive: the archive is empty"));
    let cut = vec![Ok("tar".into()), Err(std::io::ErrorKind::ConnectionReset.into())];
    let cut = world.upload("POST /templates?name=x", cut).await;
    assert_eq!(cut.status, 400);
    assert!(cut.message().starts_with("archive: it ended early"), "{cut:?}");
}

#[tokio::test]
async fn what_fails_in_the_zone_has_its_own_code() {
    let world = World::new().await;
    for (error, status, message) in [
        (ImportError::DiskFull, 507, "the zone's disk is full"),
        (ImportError::Internal("secret path".into()), 500, "internal error"),
    ] {
        world.zone.fail_next_import(error);
        let answer = world.upload("POST /templates?name=x", vec![Ok("tar".into())]).await;
        assert_eq!((answer.status, answer.message()), (status, message));
    }
}

#[tokio::test]
async fn a_template_in_use_stays() {
    let world = World::new().await;
    world.create().await;
    let refused = world.ask("DELETE /templates/base", "").await;
    assert_eq!((refused.status, refused.message()), (409, "1 sandboxes use the template"));
}
