//! Keys, teams, templates.

use std::time::Duration;

use sandboxo_control::{DeleteTemplateError, ImportTemplate, ImportTemplateError, KeyError, Scope};
use sandboxo_model::{NewSandbox, resources};
use sandboxo_zone_protocol::{ImageDefaults, ImportError, Resources};

use crate::world::{self, World};

#[tokio::test(start_paused = true)]
async fn a_key_is_shown_once_and_known_by_its_hash() {
    let mut world = World::new().await;
    let secret = world.key.secret.expose().to_owned();
    assert!(secret.len() == 44 && secret.starts_with("e2b_"));
    assert!(secret[4..].bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    let keys = &world.control.keys;
    let caller = keys.authenticate(&secret).unwrap();
    assert_eq!((caller.team, caller.key), (world.team, world.key.record.id));
    for wrong in ["", "e2b_", &secret[..43], &secret.to_uppercase(), &format!("{secret}0")] {
        assert_eq!(keys.authenticate(wrong), None);
    }
    assert!(!format!("{:?}", world.key).contains(&secret[4..]));
    assert!(
        keys.ensure_first(|_key| Ok::<_, sandboxo_store::StoreError>(())).await.unwrap().is_none()
    );
    world.restart().await;
    assert!(
        world
            .control
            .keys
            .ensure_first(|_key| Ok::<_, sandboxo_store::StoreError>(()))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(world.control.keys.authenticate(&secret), Some(caller));
}

#[tokio::test(start_paused = true)]
async fn keys_come_and_go() {
    let mut world = World::new().await;
    let keys = world.control.keys.clone();
    world.clock.advance(Duration::from_secs(1));
    let second = keys.create(world.team, "ci").await.unwrap();
    let names: Vec<_> = keys.list(world.team).iter().map(|key| key.name.clone()).collect();
    assert_eq!(names, ["first", "ci"]);
    let other = keys.create_team("other").await.unwrap();
    assert!(!keys.revoke(other.id, second.record.id).await.unwrap());
    assert!(keys.rename(world.team, second.record.id, "new").await.unwrap());
    assert!(!keys.rename(other.id, second.record.id, "x").await.unwrap());
    assert_eq!(keys.list(world.team)[1].name, "new");
    assert!(keys.authenticate(second.secret.expose()).is_some());
    assert!(keys.revoke(world.team, second.record.id).await.unwrap());
    assert_eq!(keys.authenticate(second.secret.expose()), None);
    assert!(!keys.revoke(world.team, second.record.id).await.unwrap());
    world.restart().await;
    assert_eq!(world.control.keys.authenticate(second.secret.expose()), None);

    let keys = &world.control.keys;
    assert!(matches!(keys.create(world.team, "").await, Err(KeyError::BadName)));
    assert!(matches!(keys.create_team("other").await, Err(KeyError::NameTaken)));
    assert!(matches!(keys.create_team("a/b").await, Err(KeyError::BadName)));
    let unknown = "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse().unwrap();
    assert!(matches!(keys.create(unknown, "x").await, Err(KeyError::NoTeam)));
    assert_eq!(keys.team(world.team).unwrap().name, "default");
    assert_eq!(keys.teams().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn importing_again_replaces_the_image_and_keeps_the_id() {
    let mut world = World::new().await;
    assert_eq!(world.zone.warm(), [world.template.shape()].into());
    let sandbox = world.create().await;
    world.clock.advance(Duration::from_secs(1));
    let import = ImportTemplate {
        resources: Resources { vcpus: 4, ..resources::DEFAULT },
        ..ImportTemplate::new("BASE")
    };
    let again =
        world.control.templates.import(world.team, import, Box::new(&b"new"[..])).await.unwrap();
    assert_eq!(again.id, world.template.id);
    assert_ne!(again.image, world.template.image);
    assert_ne!(again.build, world.template.build);
    assert_eq!(again.created_at, world.template.created_at);
    assert!(again.updated_at > again.created_at);
    assert_eq!(world.zone.warm(), [again.shape()].into());
    assert_eq!(world.control.templates.list(world.team), std::slice::from_ref(&again));
    let spec = world.create().await.spec.clone();
    assert_eq!((spec.resources.vcpus, spec.shape()), (4, again.shape()));
    assert_eq!(world.control.templates.full_name(&again), "default/base");
    world.restart().await;
    assert_eq!(world.control.templates.resolve(world.team, "base"), Some(again));
    assert!(world.is_listed(sandbox.id));
}

#[tokio::test(start_paused = true)]
async fn what_the_maker_of_an_image_wants_holds_where_nobody_says_otherwise() {
    let mut world = World::new().await;
    let defaults = |user: Option<&str>| ImageDefaults {
        env: [("A".to_owned(), "image's".to_owned()), ("B".to_owned(), "image's".to_owned())]
            .into(),
        user: user.map(str::to_owned),
        workdir: Some("/srv".into()),
    };
    let asked = |user: Option<&str>, workdir: Option<&str>| ImportTemplate {
        user: user.map(str::to_owned),
        workdir: workdir.map(str::to_owned),
        ..ImportTemplate::new("base")
    };
    for (of_image, import, expected) in [
        (Some("app"), asked(None, None), Ok(("app", "/srv"))),
        (None, asked(None, None), Ok(("root", "/srv"))),
        (Some("app"), asked(Some("me"), Some("/home")), Ok(("me", "/home"))),
        (Some("1000"), asked(Some("me"), None), Ok(("me", "/srv"))),
        (
            Some("1000"),
            asked(None, None),
            Err("User must be given: the image's own, 1000, has no name in it"),
        ),
    ] {
        world.zone.say_of_images(defaults(of_image));
        let tar = Box::new(&b"an image"[..]);
        let imported = world.control.templates.import(world.team, import, tar).await;
        let told = imported.map_err(|error| error.to_string());
        let told = told.as_ref().map(|it| (&*it.user, it.workdir.as_deref().unwrap_or_default()));
        assert_eq!(told.map_err(String::as_str), expected);
    }
    world.restart().await;
    let new = NewSandbox { env: [("B".to_owned(), "own".to_owned())].into(), ..world::new() };
    let created = world.control.sandboxes.create(world.team, new).await.unwrap();
    let spec = created.spec.clone();
    let found = ["A", "B"].map(|name| spec.env.get(name).map(String::as_str));
    assert_eq!(found, [Some("image's"), Some("own")]);
}

#[tokio::test(start_paused = true)]
async fn imports_that_fail_leave_no_template() {
    let world = World::new().await;
    let templates = &world.control.templates;
    let import = |import, tar: &'static [u8]| templates.import(world.team, import, Box::new(tar));
    for (bad, expected) in [
        (ImportTemplate::new("a b"), "\"a b\" is not a template name"),
        (
            ImportTemplate {
                resources: Resources { memory_mib: 1, ..resources::DEFAULT },
                ..ImportTemplate::new("t")
            },
            "MemoryMib must be between 128 and 262144",
        ),
        (
            ImportTemplate { user: Some("a:b".into()), ..ImportTemplate::new("t") },
            "User must be the name of a user",
        ),
        (
            ImportTemplate { workdir: Some("x".into()), ..ImportTemplate::new("t") },
            "Workdir must be an absolute path",
        ),
    ] {
        let error = import(bad, b"x").await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let empty = import(ImportTemplate::new("t"), b"").await;
    assert!(matches!(empty, Err(ImportTemplateError::Rejected(_))));
    world.zone.fail_next_import(ImportError::DiskFull);
    let full = import(ImportTemplate::new("t"), b"x").await;
    assert!(matches!(full, Err(ImportTemplateError::DiskFull)));
    assert_eq!(templates.list(Scope::Operator).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_template_in_use_is_not_deleted() {
    let world = World::new().await;
    let templates = &world.control.templates;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    assert!(matches!(templates.delete(other, "base").await, Err(DeleteTemplateError::NotFound(_))));
    let id = world.create().await.id;
    assert!(matches!(
        templates.delete(world.team, "base").await,
        Err(DeleteTemplateError::InUse { sandboxes: 1 })
    ));
    world.control.sandboxes.kill(world.team, id).await.unwrap();
    templates.delete(world.team, "base").await.unwrap();
    assert!(world.zone.warm().is_empty());
    assert!(templates.resolve(world.team, "base").is_none());
    assert!(matches!(
        templates.delete(world.team, "base").await,
        Err(DeleteTemplateError::NotFound(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn private_templates_are_their_team_s() {
    let world = World::new().await;
    let templates = &world.control.templates;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let import = ImportTemplate { public: false, ..ImportTemplate::new("own") };
    templates.import(other, import, Box::new(&b"x"[..])).await.unwrap();
    assert!(templates.resolve(world.team, "own").is_none());
    assert!(templates.is_foreign(world.team, "own"));
    assert!(!templates.is_foreign(world.team, "none"));
    assert!(templates.resolve(other, "own").is_some());
    assert!(templates.resolve(other, "base").is_some());
    assert_eq!(templates.list(other).len(), 1);
}
