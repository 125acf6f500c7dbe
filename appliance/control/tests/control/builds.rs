//! Builds against a zone in memory, whose agents do what a test says.

use std::{convert::Infallible, sync::Arc, time::Duration};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sandboxo_agent_proto::{
    connect::{Codec, Envelope, Envelopes, end_of_stream},
    process::{
        ProcessEvent, StartRequest, StartResponse,
        process_event::{EndEvent, Event, StartEvent},
    },
};
use sandboxo_control::{
    ControlConfig, CreateError, DeleteTemplateError, NewBuild, RequestBuildError, Requested, Scope,
    StartBuildError, StatusPhase, TagError,
};
use sandboxo_model::{
    BuildFailure, BuildRecord, From as BuiltFrom, ImageName, Recipe, Step, StepName,
};
use sandboxo_store::{Read as _, Store};
use sandboxo_zone_protocol::{
    Credentials, ImageDigest, ImageInfo, Origin, PullError, Pulled, Secret, TeamId, fake::Opened,
};

use crate::world::{World, new};

/// What the agents were asked to run, by whom; scripts of the builder's own as `sh`.
type Journal = Arc<Mutex<Vec<String>>>;

#[derive(Clone, Copy)]
enum Does {
    Exit(i32),
    Hangs,
}

/// Every sandbox of the world has such an agent.
fn agents(world: &World, does: impl Fn(&str) -> Does + Send + Sync + 'static) -> Journal {
    let (journal, does) = (Journal::default(), Arc::new(does));
    let told = Arc::clone(&journal);
    world.zone.on_connect(move |Opened { stream, .. }| {
        let (journal, does) = (Arc::clone(&told), Arc::clone(&does));
        let service =
            service_fn(move |request| answer(request, Arc::clone(&journal), Arc::clone(&does)));
        #[expect(
            clippy::disallowed_methods,
            reason = "the other end of a wire, no part of control"
        )]
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        Ok(())
    });
    journal
}

async fn answer(
    request: Request<Incoming>,
    journal: Journal,
    does: Arc<impl Fn(&str) -> Does>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let credentials = request.headers()["authorization"].to_str().unwrap();
    let user = base64::engine::general_purpose::STANDARD
        .decode(credentials.strip_prefix("Basic ").unwrap())
        .unwrap();
    let user = String::from_utf8(user).unwrap();
    let mut envelopes = Envelopes::new(1 << 20);
    envelopes.push(&request.into_body().collect().await.unwrap().to_bytes());
    let Some(Ok(Envelope::Message(message))) = envelopes.next() else { panic!("no message") };
    let start: StartRequest = Codec::Proto.decode(&message).unwrap();
    let process = start.process.unwrap();
    let command = process.args.last().unwrap();
    let code = if process.cmd == "/bin/sh" {
        journal.lock().push("sh".into());
        0
    } else {
        journal.lock().push(format!("{user}{command}"));
        match does(command) {
            Does::Exit(code) => code,
            Does::Hangs => std::future::pending().await,
        }
    };
    let event = |event| {
        let event = Some(ProcessEvent { event: Some(event) });
        Codec::Proto.envelop(&StartResponse { event })
    };
    let end = EndEvent {
        exit_code: code,
        exited: true,
        status: format!("exit status {code}"),
        error: None,
    };
    let body =
        [event(Event::Start(StartEvent { pid: 2 })), event(Event::End(end)), end_of_stream(Ok(()))];
    Ok(Response::new(Full::new(body.concat().into())))
}

fn step(kind: &str, args: &[&str]) -> Step {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    Step { kind: kind.into(), args, files: None, force: false }
}

fn recipe(steps: Vec<Step>) -> Recipe {
    let from = BuiltFrom::Template("base".into());
    Recipe { from, steps, start: None, ready: None, force: false }
}

async fn request(world: &World, name: &str) -> Requested {
    let new = NewBuild { name: name.into(), tags: vec![], vcpus: None, memory_mib: None };
    world.control.builds.request(world.team, new).await.unwrap()
}

async fn start(world: &World, name: &str, recipe: Recipe) -> Requested {
    let requested = request(world, name).await;
    let Requested { template, build, .. } = requested;
    world.control.builds.start(world.team, template, build, recipe, None).await.unwrap();
    requested
}

async fn phase(world: &World, of: &Requested) -> StatusPhase {
    let builds = &world.control.builds;
    builds.status(world.team, of.template, of.build, 0, 100).await.unwrap().phase
}

/// How it ends.
async fn ended(world: &World, of: &Requested) -> StatusPhase {
    for _ in 0..100_000 {
        let now = phase(world, of).await;
        if !matches!(now, StatusPhase::Waiting | StatusPhase::Building) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it never ends");
}

async fn failure(world: &World, of: &Requested) -> (String, Option<StepName>) {
    let ended = ended(world, of).await;
    let StatusPhase::Failed(BuildFailure { message, step }, _) = ended else { panic!("{ended:?}") };
    (message, step)
}

async fn quiet(world: &World) {
    world.until("no sandbox is left", |world| world.zone.running().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_recipe_becomes_what_sandboxes_start_from() {
    let world = World::new().await;
    let journal = agents(&world, |_| Does::Exit(0));
    let steps = vec![
        step("ENV", &["A", "b"]),
        step("RUN", &["make"]),
        step("RUN", &["install", "root"]),
        step("WORKDIR", &["/srv"]),
        step("USER", &["other"]),
    ];
    let built = start(&world, "made:v1", recipe(steps.clone())).await;
    assert_eq!(phase(&world, &built).await, StatusPhase::Building);
    assert_eq!(ended(&world, &built).await, StatusPhase::Ready);
    assert_eq!(*journal.lock(), ["sh", "user:make", "root:install", "sh", "sh", "sh"]);
    quiet(&world).await;
    // The sandbox of the build was nobody's.
    let listed = world.control.sandboxes.list(world.team, sandboxo_control::ListQuery::default());
    assert!(listed.await.unwrap().items.is_empty());

    let made = |template: &str| sandboxo_model::NewSandbox { template: template.into(), ..new() };
    let create =
        async |template: &str| world.control.sandboxes.create(world.team, made(template)).await;
    let sandbox = create("made:v1").await.unwrap();
    let spec = &sandbox.spec;
    assert_eq!((spec.user.as_str(), spec.workdir.as_deref()), ("other", Some("/srv")));
    assert_eq!(spec.env.get("A").map(String::as_str), Some("b"));
    assert!(matches!(spec.origin, Origin::Checkpoint { reboot: true, .. }));
    assert!(matches!(create("made").await, Err(CreateError::TemplateNotFound(_))));
    assert!(matches!(create("made:v2").await, Err(CreateError::TemplateNotFound(_))));
    let again = create(&format!("made:{}", built.build)).await.unwrap();
    assert_eq!(again.spec.origin, spec.origin);

    // The same again has nothing to do but what is of this build alone.
    journal.lock().clear();
    let again = start(&world, "made:v2", recipe(steps.clone())).await;
    assert_eq!(ended(&world, &again).await, StatusPhase::Ready);
    assert_eq!(*journal.lock(), ["sh", "sh", "sh"]);
    // Unless somebody wants it so.
    journal.lock().clear();
    let forced = start(&world, "made:v2", Recipe { force: true, ..recipe(steps) }).await;
    assert_eq!(ended(&world, &forced).await, StatusPhase::Ready);
    assert_eq!(journal.lock().len(), 6);

    let delete = || world.control.builds.delete(world.team, "made");
    assert!(matches!(delete().await, Err(DeleteTemplateError::InUse { sandboxes: 2 })));
    for id in world.zone.running() {
        world.control.sandboxes.kill(Scope::Operator, id).await.unwrap();
    }
    delete().await.unwrap();
    assert!(matches!(delete().await, Err(DeleteTemplateError::NotFound(_))));
    assert!(matches!(create("made:v1").await, Err(CreateError::TemplateNotFound(_))));
    // What is left is for the next build of such steps: the base's and the two commands'.
    world.until("only layers stay", |world| world.zone.checkpoints().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_for_whoever_may_have_it() {
    let world = World::new().await;
    agents(&world, |_| Does::Exit(0));
    let pulled = || Pulled {
        image: ImageInfo { digest: ImageDigest::from_bytes([7; 32]), size_bytes: 1 },
        env: [("A".to_owned(), "of the image".to_owned())].into(),
        was_here: false,
    };
    let name: ImageName = "registry.example:5000/team/app:v1".parse().unwrap();
    let begin = async |from: BuiltFrom, credentials: Option<Credentials>| {
        let made = request(&world, "made").await;
        let recipe = Recipe { from, ..recipe(vec![]) };
        let builds = &world.control.builds;
        builds.start(world.team, made.template, made.build, recipe, credentials).await.unwrap();
        made
    };
    world.zone.script_pull(Ok(pulled()));
    let credentials = Credentials { user: "me".into(), password: Secret::new("s3cret") };
    let private = begin(BuiltFrom::PrivateImage(name.clone()), Some(credentials.clone())).await;
    // What is written down knows nothing of them.
    let record = world.store.read(move |tx| tx.get::<BuildRecord>(&private.build));
    assert!(!format!("{:?}", record.await.unwrap()).contains("s3cret"));
    assert_eq!(ended(&world, &private).await, StatusPhase::Ready);
    let asked = world.zone.pulled().pop().unwrap();
    assert_eq!(asked.source, name.source());
    assert_eq!(asked.credentials, Some(credentials));
    quiet(&world).await;
    let sandbox = sandboxo_model::NewSandbox { template: "made".into(), ..new() };
    let sandbox = world.control.sandboxes.create(world.team, sandbox).await.unwrap();
    assert_eq!(sandbox.spec.image, ImageDigest::from_bytes([7; 32]));
    assert_eq!(sandbox.spec.env.get("A").map(String::as_str), Some("of the image"));
    assert_eq!(sandbox.spec.user, "user");

    world.zone.script_pull(Err(PullError::Unauthorized));
    let open = begin(BuiltFrom::Image(name.clone()), None).await;
    let why = "image 'registry.example:5000/team/app:v1': the registry wants other credentials, \
               or has no such image";
    assert_eq!(failure(&world, &open).await, (why.to_owned(), Some(StepName::Base)));
    assert_eq!(world.zone.pulled().pop().unwrap().credentials, None);

    // As after a restart.
    let lost = begin(BuiltFrom::PrivateImage(name), None).await;
    let why = "image 'registry.example:5000/team/app:v1': its credentials were not kept when the \
               appliance was started anew: build it again";
    assert_eq!(failure(&world, &lost).await, (why.to_owned(), Some(StepName::Base)));
    assert_eq!(world.zone.pulled().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_where_and_why() {
    let world = World::new().await;
    agents(&world, |command| if command == "bad" { Does::Exit(3) } else { Does::Exit(0) });
    let from = BuiltFrom::Image("ubuntu:22.04".parse().unwrap());
    let started = |command: &str| Recipe { start: Some(command.into()), ..recipe(vec![]) };
    for (recipe, message, at) in [
        (
            recipe(vec![step("RUN", &["good"]), step("RUN", &["bad"])]),
            "failed to run command 'bad': exit status 3",
            StepName::Step(2),
        ),
        (
            recipe(vec![step("RUN", &[])]),
            "RUN: 0 arguments are not what it takes",
            StepName::Step(1),
        ),
        (
            Recipe { from, ..recipe(vec![]) },
            "image 'docker.io/library/ubuntu:22.04': the registry has no such image or tag",
            StepName::Base,
        ),
        (
            Recipe { from: BuiltFrom::Template("made".into()), ..recipe(vec![]) },
            "template 'made' not found, or not yet built",
            StepName::Base,
        ),
        (started("bad"), "failed to run command 'bad': exit status 3", StepName::Finalize),
    ] {
        let built = start(&world, "made", recipe).await;
        assert_eq!(failure(&world, &built).await, (message.to_owned(), Some(at)));
        quiet(&world).await;
    }
    // Its log has the last word, and none after it.
    let last = start(&world, "made", recipe(vec![step("RUN", &["bad"])])).await;
    ended(&world, &last).await;
    let builds = &world.control.builds;
    let lines = builds.status(world.team, last.template, last.build, 0, 100).await.unwrap().lines;
    assert!(lines.last().unwrap().message.ends_with("exit status 3"), "{lines:?}");
    let after = builds.status(world.team, last.template, last.build, lines.len(), 100).await;
    assert!(after.unwrap().lines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_a_death_cuts_off_is_made_once_more() {
    let mut world = World::new().await;
    agents(&world, |_| Does::Hangs);
    let built = start(&world, "made", recipe(vec![step("RUN", &["long"])])).await;
    let runs = |world: &World| !world.zone.running().is_empty();
    world.until("the first attempt runs", runs).await;
    let first = world.zone.running();
    world.restart().await;
    let another = |world: &World| world.zone.running().iter().any(|id| !first.contains(id));
    world
        .until("the second attempt runs, and the first does not", |world| {
            another(world) && world.zone.running().iter().all(|id| !first.contains(id))
        })
        .await;
    assert_eq!(phase(&world, &built).await, StatusPhase::Building);
    // An orderly end is no attempt.
    for _ in 0..3 {
        world.control.builds.set_aside().await.unwrap();
        world.restart().await;
        world.until("it is made again", runs).await;
        assert_eq!(phase(&world, &built).await, StatusPhase::Building);
    }
    world.restart().await;
    let told = "the appliance went down in each of 2 attempts to build it".to_owned();
    assert_eq!(failure(&world, &built).await, (told, None));
    quiet(&world).await;

    // One whose second attempt gets through is as any other.
    let built = start(&world, "made", recipe(vec![step("RUN", &["long"])])).await;
    world.until("it runs", runs).await;
    world.die().await;
    agents(&world, |_| Does::Exit(0));
    world.start_again().await;
    assert_eq!(ended(&world, &built).await, StatusPhase::Ready);
    quiet(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_build_has_its_time_and_there_are_four_seats() {
    let budget = Duration::from_mins(3);
    let config = ControlConfig { build_budget: budget, ..ControlConfig::default() };
    let world = World::with(Store::in_memory().unwrap(), config).await;
    let journal = agents(&world, |_| Does::Hangs);
    let mut builds = Vec::new();
    for n in 0..6 {
        let long = recipe(vec![step("RUN", &[&format!("long {n}")])]);
        builds.push(start(&world, &format!("made-{n}"), long).await);
    }
    let under_way = |journal: &Journal| journal.lock().iter().filter(|it| *it != "sh").count();
    world.until("four are built", |_| under_way(&journal) == 4).await;
    tokio::time::sleep(budget / 2).await;
    assert_eq!((under_way(&journal), world.zone.running().len()), (4, 4));
    let told = ("the build did not end within 3 minutes".to_owned(), None);
    assert_eq!(failure(&world, &builds[0]).await, told);
    world.until("the others have their turn", |_| under_way(&journal) == 6).await;
    for build in &builds {
        assert_eq!(failure(&world, build).await, told);
    }
    quiet(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_deleted_ends_its_builds() {
    let world = World::new().await;
    let journal = agents(&world, |_| Does::Hangs);
    let built = start(&world, "made", recipe(vec![step("RUN", &["long"])])).await;
    world.until("it runs", |_| journal.lock().len() == 2).await;
    world.control.builds.delete(world.team, "made").await.unwrap();
    quiet(&world).await;
    let status = world.control.builds.status(world.team, built.template, built.build, 0, 100).await;
    assert!(status.is_err());
    let left = world.store.read(|tx| tx.all::<sandboxo_model::BuildRecord>()).await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_newest_build_has_the_tag_whichever_is_done_first() {
    let world = World::new().await;
    let journal =
        agents(&world, |command| if command == "slow" { Does::Hangs } else { Does::Exit(0) });
    let slow = request(&world, "made").await;
    world.clock.advance(Duration::from_secs(1));
    let fast = start(&world, "made", recipe(vec![step("RUN", &["fast"])])).await;
    assert_eq!(ended(&world, &fast).await, StatusPhase::Ready);
    let builds = &world.control.builds;
    builds
        .start(world.team, slow.template, slow.build, recipe(vec![step("RUN", &["other"])]), None)
        .await
        .unwrap();
    assert_eq!(ended(&world, &slow).await, StatusPhase::Ready);
    assert!(journal.lock().contains(&"user:other".to_owned()));
    let tags = builds.tags(world.team, "made").unwrap();
    let tags: Vec<_> = tags.iter().map(|tag| (tag.name.as_str(), tag.build)).collect();
    assert_eq!(tags, [("default", fast.build)]);

    let (tagged, tags) =
        builds.tag(world.team, "made", vec!["a".into(), "made:b".into()]).await.unwrap();
    assert_eq!((tagged, tags), (fast.build, vec!["a".to_owned(), "b".into()]));
    for bad in [":x", "made:", ""] {
        let tagged = builds.tag(world.team, "made", vec![bad.into()]).await;
        assert!(matches!(tagged, Err(TagError::Name(_))), "{bad}");
    }
    let unknown = builds.tag(world.team, "made:nothing", vec!["x".into()]).await;
    assert!(matches!(unknown, Err(TagError::NotFound(_))));
    builds.untag(world.team, "made", vec!["default".into(), "a".into()]).await.unwrap();
    let missing = builds.untag(world.team, "made", vec!["a".into()]).await;
    assert!(matches!(missing, Err(TagError::NotFound(_))));
    let create = |template: &str| sandboxo_model::NewSandbox { template: template.into(), ..new() };
    world.control.sandboxes.create(world.team, create("made:b")).await.unwrap();
    let gone = world.control.sandboxes.create(world.team, create("made")).await;
    assert!(matches!(gone, Err(CreateError::TemplateNotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_asked_for() {
    let world = World::new().await;
    agents(&world, |_| Does::Exit(0));
    let ask =
        |name: &str, vcpus| NewBuild { name: name.into(), tags: vec![], vcpus, memory_mib: None };
    let builds = &world.control.builds;
    let asked = async |name: &str, vcpus| builds.request(world.team, ask(name, vcpus)).await;
    assert!(matches!(asked("base", None).await, Err(RequestBuildError::NameTaken(_))));
    assert!(matches!(asked("a b", None).await, Err(RequestBuildError::Name(_))));
    assert!(matches!(asked("other/made", None).await, Err(RequestBuildError::Foreign(_))));
    assert!(matches!(asked("made", Some(0)).await, Err(RequestBuildError::Invalid(_))));
    let made = asked("Made:V1", None).await.unwrap();
    assert_eq!((made.alias.as_str(), made.tags.as_slice()), ("made", &["v1".to_owned()][..]));

    let begin =
        async |team| builds.start(team, made.template, made.build, recipe(vec![]), None).await;
    assert!(matches!(begin(TeamId::NIL).await, Err(StartBuildError::NotFound(_))));
    begin(world.team).await.unwrap();
    assert!(matches!(begin(world.team).await, Err(StartBuildError::NotWaiting(_))));
    assert_eq!(ended(&world, &made).await, StatusPhase::Ready);
    assert!(matches!(begin(world.team).await, Err(StartBuildError::NotWaiting(_))));
    let sandbox = world.create().await;
    let snapshot = world
        .control
        .sandboxes
        .snapshot(world.team, sandbox.id, Some("made"), sandboxo_zone_protocol::Kept::Memory)
        .await;
    assert!(matches!(snapshot, Err(sandboxo_control::SnapshotError::NameTaken(_))));
}
