//! runsc and agents that don't do what they should.

use std::{fs, time::Duration};

use sandboxo_zone::{ProbeError, StartError};
use sandboxo_zone_protocol::{CreateError, Zone};

use super::world::{World, chain, import_busybox, spec, until, which, write_script};

/// A runsc that obeys a file: what it holds runs instead of every `run`, `create`,
/// `restore` and `checkpoint`. It may use `$runsc`, the real one, `$verb`, `$container` and `$pid_file`.
pub(crate) fn with_moody_runsc() -> World {
    let mut world = World::new();
    let (script, mood) = (world.path("runsc"), world.path("mood"));
    fs::write(&mood, "").unwrap();
    let text = format!(
        "#!/bin/sh\nrunsc={}\nfor container; do\n  case $container in -pid-file=*) \
         pid_file=${{container#*=}} ;; run | create | restore | checkpoint) verb=$container ;; esac\ndone\n\
         [ -z \"$verb\" ] || . {}\n\
         exec $runsc \"$@\"\n",
        which("runsc").display(),
        mood.display(),
    );
    write_script(&script, &text);
    world.config.runsc = script;
    world.config.start_timeout = Duration::from_secs(5);
    world
}

#[tokio::test]
async fn a_failing_runsc_is_quoted_and_leaves_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    fs::write(world.path("mood"), "echo the reason >&2; exit 3").unwrap();
    let error = zone.create(spec(image)).await.unwrap_err();
    assert!(matches!(error, CreateError::Runtime(_)), "{error:?}");
    let text = chain(&error);
    assert!(text.contains("exit status: 3") && text.contains("the reason"), "{text}");
    assert_eq!(world.on_host().await, before);
    assert_eq!(world.containers(), [""; 0]);

    fs::write(world.path("mood"), "").unwrap();
    zone.create(spec(image)).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_hanging_runsc_is_given_up_and_leaves_nothing() {
    let mut world = with_moody_runsc();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let before = world.on_host().await;
    fs::write(world.path("mood"), "sleep 1000 & sleep 1000").unwrap();
    let error = zone.create(spec(image)).await.unwrap_err();
    assert!(matches!(error, CreateError::TimedOut(after) if after.as_secs() == 5), "{error:?}");
    world.settles_to(&before).await;

    // And killed while it hangs.
    let spec = spec(image);
    let killed = async {
        until("it is on its way", async || !world.containers().is_empty()).await;
        zone.kill(spec.id).await.unwrap();
    };
    let (created, ()) = tokio::join!(zone.create(spec.clone()), killed);
    assert!(matches!(created, Err(CreateError::Killed)), "{created:?}");
    world.settles_to(&before).await;
    world.end().await;
}

#[tokio::test]
async fn a_start_says_what_is_wrong_with_runsc() {
    let mut world = World::new();
    world.config.runsc = world.path("missing");
    match world.try_start().await {
        Err(StartError::Runsc(ProbeError::Missing(path))) => {
            assert_eq!(path, world.path("missing"));
        }
        other => panic!("{:?}", other.err()),
    }
    let script = world.path("runsc");
    world.config.runsc.clone_from(&script);
    for (text, expected) in [
        ("echo runsc version 0.0~20221219", "20221219 is too old"),
        ("echo something else", "something else"),
        ("echo no room >&2; exit 1", "no room"),
    ] {
        write_script(&script, &format!("#!/bin/sh\n{text}\n"));
        let error = chain(&world.try_start().await.err().unwrap());
        assert!(error.contains(expected), "{error}");
    }
    let mut world = with_moody_runsc();
    fs::write(world.path("mood"), "echo the reason >&2; exit 3").unwrap();
    let error = chain(&world.try_start().await.err().unwrap());
    assert!(error.contains("self-test") && error.contains("the reason"), "{error}");
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_ends_is_told_from_one_that_is_missing() {
    let mut world = World::new();
    world.config.agent = world.path("agent");
    let error = world.try_start().await.err().unwrap();
    assert!(matches!(error, StartError::NoAgent(_)), "{error:?}");
    fs::copy(which("busybox"), world.path("agent")).unwrap();
    let error = chain(&world.try_start().await.err().unwrap());
    assert!(error.contains("applet not found"), "{error}");
    world.end().await;
}
