//! API keys.

use crate::world::World;

#[tokio::test]
async fn a_key_is_shown_once_and_works_until_it_is_revoked() {
    let world = World::new().await;
    let made = world.ask("POST /keys", r#"{"name":"ci"}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.body["key"].as_str().unwrap();
    let id = made.body["id"].as_str().unwrap();
    assert!(world.control.keys.authenticate(key).is_some());

    let list = world.ask("GET /keys", "").await;
    let found = list.body.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    assert_eq!(found["name"], "ci");
    assert!(!list.body.to_string().contains(key));

    assert_eq!(world.ask(&format!("DELETE /keys/{id}"), "").await.status, 204);
    assert!(world.control.keys.authenticate(key).is_none());
    assert_eq!(world.ask(&format!("DELETE /keys/{id}"), "").await.status, 404);
}

#[tokio::test]
async fn a_key_is_for_the_team_that_is_named() {
    let world = World::new().await;
    let other = world.control.keys.create_team("other").await.unwrap();
    for (body, name, team) in [
        (r#"{"name":"a"}"#, "default", world.team),
        (r#"{"name":"b","team":"other"}"#, "other", other.id),
    ] {
        let made = world.ask("POST /keys", body).await;
        assert_eq!((made.status, &made.body["team"]), (201, &name.into()));
        let key = made.body["key"].as_str().unwrap();
        assert_eq!(world.control.keys.authenticate(key).unwrap().team, team);
    }
}

#[tokio::test]
async fn an_unknown_key_is_404() {
    let world = World::new().await;
    for id in ["x", "00000000-0000-4000-8000-000000000000"] {
        let answer = world.ask(&format!("DELETE /keys/{id}"), "").await;
        assert_eq!((answer.status, answer.message()), (404, &*format!("key '{id}' not found")));
    }
}

#[tokio::test]
async fn a_bad_body_is_told_by_its_field() {
    let world = World::new().await;
    for (body, part) in [
        ("", "JSON"),
        ("[]", "JSON"),
        ("{}", "name"),
        (r#"{"name":1}"#, "name"),
        (r#"{"name":""}"#, "name"),
        (r#"{"name":"x","color":"red"}"#, "color"),
        (r#"{"name":"x","team":"nobody"}"#, "team"),
    ] {
        let answer = world.ask("POST /keys", body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.message().contains(part), "{body}: {answer:?}");
    }
}
