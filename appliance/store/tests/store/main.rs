//! The store as `control` sees it.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use sandboxo_model::{
    DeathReason, IdempotencyRecord, Ingress, NewSandbox, Phase, SandboxRecord, TeamRecord,
    TemplateUse,
};
use sandboxo_store::{Changed, OpenError, Read as _, Store, StoreError};
use sandboxo_zone_protocol::{
    ImageDigest, NetworkPolicy, SandboxId, SandboxSpec, TeamId, TemplateId, Timestamp,
    fake::SeededRandom,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn team(random: &SeededRandom, name: &str) -> TeamRecord {
    TeamRecord { id: TeamId::random(random), name: name.into(), created_at: at(1) }
}

fn sandbox(random: &SeededRandom, phase: Phase) -> SandboxRecord {
    let id = SandboxId::random("loc".parse().unwrap(), "k7q".parse().unwrap(), random);
    SandboxRecord {
        id,
        team: TeamId::random(random),
        template: TemplateUse { id: TemplateId::random(random), alias: None },
        zone: "local1".parse().unwrap(),
        spec: SandboxSpec {
            id,
            image: ImageDigest::from_bytes([1; 32]),
            resources: sandboxo_model::resources::DEFAULT,
            platform: sandboxo_zone_protocol::Platform::Ptrace,
            env: [].into(),
            hostname: id.label(),
            user: "user".into(),
            workdir: None,
            network: NetworkPolicy::OPEN,
            agent_token: None,
            deadline: at(100),
            on_deadline: sandboxo_zone_protocol::OnDeadline::Kill,
            origin: sandboxo_zone_protocol::Origin::Image,
            volumes: vec![],
        },
        timeout: Duration::from_secs(99),
        metadata: [].into(),
        internet: None,
        network: None,
        ingress: Ingress::default(),
        identity: None,
        auto_resume: false,
        created_at: at(1),
        phase,
    }
}

fn dead(at: Timestamp) -> Phase {
    Phase::Dead { at, reason: DeathReason::Missing, started_at: None }
}

async fn put_team(store: &Store, record: TeamRecord) {
    let put = store.write(move |tx| {
        tx.put(&record);
        Ok::<_, StoreError>(())
    });
    put.await.unwrap();
}

async fn team_names(store: &Store) -> Vec<String> {
    let teams = store.read(|tx| tx.all::<TeamRecord>()).await.unwrap();
    let mut names: Vec<_> = teams.into_iter().map(|team| team.name).collect();
    names.sort();
    names
}

#[derive(Debug, PartialEq)]
enum Refused {
    Taken,
    Store,
}

impl From<StoreError> for Refused {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_share_a_commit_are_atomic_each() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(1);
    let writes = (0..100).map(|n| {
        let record = team(&random, &format!("{n:03}"));
        let store = store.clone();
        async move {
            let write = store.write(move |tx| {
                tx.put(&record);
                assert!(n % 10 != 3, "panic on purpose");
                if n % 10 == 7 { Err(Refused::Taken) } else { Ok(()) }
            });
            AssertUnwindSafe(write).catch_unwind().await
        }
    });
    let answers = futures_util::future::join_all(writes).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match n % 10 {
            3 => assert!(answer.is_err()),
            7 => assert_eq!(answer.unwrap(), Err(Refused::Taken)),
            _ => assert_eq!(answer.unwrap(), Ok(())),
        }
    }
    let expected: Vec<_> =
        (0..100).filter(|n| !matches!(n % 10, 3 | 7)).map(|n| format!("{n:03}")).collect();
    assert_eq!(team_names(&store).await, expected);
}

/// The check and the write are one: only one of many gets the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_sees_those_that_share_its_commit() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(2);
    let writes = (0..50).map(|_| {
        let record = team(&random, "one");
        let store = store.clone();
        async move {
            let write = store.write(move |tx| {
                if tx.all::<TeamRecord>()?.iter().any(|team| team.name == "one") {
                    return Err(Refused::Taken);
                }
                tx.put(&record);
                Ok(())
            });
            write.await
        }
    });
    let answers = futures_util::future::join_all(writes).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(team_names(&store).await, ["one"]);
}

#[tokio::test]
async fn a_write_goes_on_when_its_caller_leaves() {
    let store = Store::in_memory().unwrap();
    let record = team(&SeededRandom::new(3), "left");
    let (has_left, wait) = std::sync::mpsc::channel();
    let mut write = Box::pin(store.write(move |tx| {
        wait.recv().unwrap();
        tx.put(&record);
        Ok::<_, StoreError>(())
    }));
    assert!((&mut write).now_or_never().is_none());
    drop(write);
    has_left.send(()).unwrap();
    store.close().await;
    assert_eq!(team_names(&store).await, ["left"]);
}

#[tokio::test]
async fn a_dead_sandbox_moves_and_is_collected() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(4);
    let starting = Phase::Starting { give_up_at: at(9) };
    let records: Vec<_> = (0..3).map(|_| sandbox(&random, starting.clone())).collect();
    let ids: Vec<_> = records.iter().map(|record| record.id).collect();
    let write = {
        let records = records.clone();
        store.write(move |tx| {
            for record in &records {
                tx.put_sandbox(record);
            }
            Ok::<_, StoreError>(())
        })
    };
    write.await.unwrap();
    let died: Vec<_> = records
        .into_iter()
        .zip([10, 20])
        .map(|(record, second)| SandboxRecord { phase: dead(at(second)), ..record })
        .collect();
    let buried = died.clone();
    let write = store.write(move |tx| {
        for record in &buried {
            tx.put_sandbox(record);
        }
        Ok::<_, StoreError>(())
    });
    write.await.unwrap();

    let live = store.read(|tx| tx.live_sandboxes()).await.unwrap();
    assert_eq!(live.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[2]]);
    let id = ids[0];
    assert_eq!(store.read(move |tx| tx.sandbox(id)).await.unwrap(), Some(died[0].clone()));

    let collected = store.write(|tx| tx.collect_ended(at(20), 10)).await.unwrap();
    assert_eq!(collected, 1);
    assert_eq!(store.read(|tx| tx.ended_sandboxes()).await.unwrap(), [died[1].clone()]);
    assert_eq!(store.write(|tx| tx.collect_ended(at(20), 10)).await.unwrap(), 0);
    assert_eq!(store.write(|tx| tx.collect_ended(at(21), 10)).await.unwrap(), 1);
    assert_eq!(store.read(move |tx| tx.sandbox(id)).await.unwrap(), None);
}

#[tokio::test]
async fn idempotency_entries_expire_by_their_last_time() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(5);
    let record = IdempotencyRecord {
        team: TeamId::random(&random),
        key: "k".parse().unwrap(),
        fingerprint: [7; 32],
        sandbox: sandbox(&random, dead(at(1))).id,
        expires_at: at(10),
    };
    for expires_at in [at(10), at(30)] {
        let record = IdempotencyRecord { expires_at, ..record.clone() };
        store.write(move |tx| tx.put_idempotency(&record)).await.unwrap();
    }
    assert_eq!(store.write(|tx| tx.collect_idempotency(at(20), 9)).await.unwrap(), 0);
    let id = (record.team, record.key.clone());
    let found = store.read(move |tx| tx.get::<IdempotencyRecord>(&id)).await.unwrap();
    assert_eq!(found, Some(IdempotencyRecord { expires_at: at(30), ..record }));
    assert_eq!(store.write(|tx| tx.collect_idempotency(at(31), 9)).await.unwrap(), 1);
}

#[tokio::test]
async fn the_feed_tells_each_change_once_and_in_order() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(6);
    let mut last = store.last_change();
    let one = team(&random, "one");
    put_team(&store, one.clone()).await;
    let born = sandbox(&random, Phase::Starting { give_up_at: at(9) });
    let died = SandboxRecord { phase: dead(at(10)), ..born.clone() };
    for record in [born.clone(), died.clone()] {
        let write = store.write(move |tx| {
            tx.put_sandbox(&record);
            Ok::<_, StoreError>(())
        });
        write.await.unwrap();
    }
    store.write(|tx| tx.collect_ended(at(11), 10)).await.unwrap();
    let id = one.id;
    let write = store.write(move |tx| {
        tx.remove::<TeamRecord>(&id);
        Ok::<_, StoreError>(())
    });
    write.await.unwrap();
    assert_eq!(*last.borrow_and_update(), 5);

    let changes = store.changes(0, 100).await.unwrap().unwrap();
    assert_eq!(changes.iter().map(|change| change.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let told: Vec<_> = changes.into_iter().map(|change| change.changed).collect();
    assert_eq!(
        told,
        [
            Changed::Team(one.clone()),
            Changed::Sandbox(Box::new(born.clone())),
            Changed::Sandbox(Box::new(died)),
            Changed::SandboxRemoved(born.id),
            Changed::TeamRemoved(one.id),
        ]
    );
    let page = store.changes(2, 2).await.unwrap().unwrap();
    assert_eq!(page.iter().map(|change| change.sequence).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(store.changes(5, 9).await.unwrap(), Ok(vec![]));
    assert_eq!(store.changes(6, 9).await.unwrap().unwrap_err().last, 5);
}

#[tokio::test]
async fn the_feed_is_trimmed_behind_its_readers() {
    let store = Store::in_memory().unwrap();
    let random = SeededRandom::new(7);
    let write = |count: usize| {
        let records: Vec<_> = (0..count).map(|_| team(&random, "x")).collect();
        store.write(move |tx| {
            for record in &records {
                tx.put(record);
            }
            Ok::<_, StoreError>(())
        })
    };
    let set_cursor = |sequence| {
        store.write(move |tx| {
            tx.set_cursor("mirror", sequence);
            Ok::<_, StoreError>(())
        })
    };
    set_cursor(100).await.unwrap();
    for _ in 0..30 {
        write(100).await.unwrap();
    }
    assert_eq!(store.read(|tx| tx.cursor("mirror")).await.unwrap(), Some(100));
    assert!(store.changes(99, 1).await.unwrap().is_err());
    assert_eq!(store.changes(100, 9000).await.unwrap().unwrap().len(), 2900);

    set_cursor(3000).await.unwrap();
    for _ in 0..20 {
        write(1).await.unwrap();
    }
    assert_eq!(store.changes(100, 1).await.unwrap().unwrap_err().last, 3020);
    // Readers without a cursor still find the last thousand.
    assert_eq!(store.changes(3020 - 1024, 9000).await.unwrap().unwrap().len(), 1024);
}

#[tokio::test]
async fn a_file_is_private_locked_and_found_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("state");
    let store = Store::open(&dir).unwrap();
    put_team(&store, team(&SeededRandom::new(8), "kept")).await;
    let Err(OpenError::Locked { pid, .. }) = Store::open(&dir) else { panic!("opened twice") };
    assert_eq!(pid, Some(std::process::id()));
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("records.redb"), mode("lock")), (0o700, 0o600, 0o600));
    store.close().await;
    drop(store);
    let store = Store::open(&dir).unwrap();
    assert_eq!(team_names(&store).await, ["kept"]);
    assert_eq!(*store.last_change().borrow(), 1);
}

/// A record made from a request survives the row format.
#[tokio::test]
async fn a_new_sandbox_goes_round() {
    let random = SeededRandom::new(9);
    let store = Store::in_memory().unwrap();
    let template = sandboxo_model::TemplateRecord {
        id: TemplateId::random(&random),
        team: TeamId::random(&random),
        name: "base".parse().unwrap(),
        public: true,
        image: ImageDigest::from_bytes([2; 32]),
        image_bytes: 1,
        image_names: [].into(),
        build: sandboxo_zone_protocol::BuildId::random(&random),
        resources: sandboxo_model::resources::DEFAULT,
        platform: sandboxo_zone_protocol::Platform::Ptrace,
        env: [].into(),
        user: "user".into(),
        workdir: None,
        created_at: at(1),
        updated_at: at(1),
    };
    let record = NewSandbox {
        template: "base".into(),
        timeout: Duration::from_mins(5),
        secure: true,
        env: [("A".to_owned(), "ü\n\"".to_owned())].into(),
        metadata: [("a b".to_owned(), "c&d".to_owned())].into(),
        internet: Some(false),
        network: None,
        lifecycle: sandboxo_model::Lifecycle::default(),
        volumes: vec![],
        tokens: sandboxo_model::Tokens::default(),
        idempotency_key: None,
    }
    .record(sandboxo_model::Birth {
        volumes: vec![],
        id: sandbox(&random, dead(at(1))).id,
        team: template.team,
        base: (&template).into(),
        zone: "local1".parse().unwrap(),
        agent_token: sandboxo_zone_protocol::Secret::new("a"),
        traffic_token: sandboxo_zone_protocol::Secret::new("t"),
        execution: sandboxo_zone_protocol::ExecutionId::NIL,
        now: at(50),
        budget: Duration::from_secs(30),
    })
    .unwrap();
    let put = record.clone();
    let write = store.write(move |tx| {
        tx.put_sandbox(&put);
        tx.put(&template);
        Ok::<_, StoreError>(())
    });
    write.await.unwrap();
    assert_eq!(store.read(|tx| tx.live_sandboxes()).await.unwrap(), [record]);
}
