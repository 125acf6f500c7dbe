//! Tests on a disk that forgets, on one that tears, and on one that fails.

mod disk;

use std::time::Duration;

use sandboxo_model::{DeathReason, IdempotencyRecord, Phase, SandboxRecord, TeamRecord};
use sandboxo_zone_protocol::{
    EndReason, Random as _, SandboxId, SystemRandom, TeamId, fake::SeededRandom,
};

use self::disk::Backend;
use crate::{Read as _, Store, StoreError, tables::golden};

async fn put(store: &Store, name: String) -> Result<(), StoreError> {
    let record = TeamRecord { id: TeamId::random(&SystemRandom), name, created_at: golden::time() };
    store
        .write(move |tx| {
            tx.put(&record);
            Ok::<_, StoreError>(())
        })
        .await
}

async fn names(store: &Store) -> Vec<String> {
    let teams = store.read(|tx| tx.all::<TeamRecord>()).await.unwrap();
    let mut names: Vec<_> = teams.into_iter().map(|team| team.name).collect();
    names.sort();
    names
}

fn empty() -> Vec<u8> {
    let fresh = Backend::holding(Vec::new(), usize::MAX);
    drop(fresh.open());
    fresh.after_the_cut()
}

/// What sandboxes make of the store: born with a key, started, ended, forgotten.
const STEPS: u64 = 12;

fn sandbox(n: u64) -> SandboxId {
    format!("sbx_loc_{n:020}").parse().unwrap()
}

/// Several rows and both tables of the dead in one commit: half of it is seen.
async fn step(store: &Store, n: u64) {
    let record = |n, phase| SandboxRecord { id: sandbox(n), phase, ..golden::sandbox_record() };
    let at = golden::time() + Duration::from_secs(n);
    let (started_at, expires_at) = (golden::time(), golden::time());
    let key = IdempotencyRecord {
        team: golden::team(),
        key: format!("k{n}").parse().unwrap(),
        fingerprint: [7; 32],
        sandbox: sandbox(n),
        expires_at: at,
    };
    store
        .write(move |tx| {
            tx.put_idempotency(&key)?;
            tx.put_sandbox(&record(n, Phase::Starting { give_up_at: at }));
            if let Some(running) = n.checked_sub(1) {
                tx.put_sandbox(&record(running, Phase::Running { started_at, expires_at }));
            }
            if let Some(dead) = n.checked_sub(3) {
                let reason = DeathReason::Ended(EndReason::Killed);
                tx.put_sandbox(&record(dead, Phase::Dead { at, reason, started_at: None }));
            }
            if n.is_multiple_of(4) {
                tx.collect_ended(at, 2)?;
                tx.collect_idempotency(at, 2)?;
            }
            Ok::<_, StoreError>(())
        })
        .await
        .unwrap();
}

/// The same each time.
fn coin(seed: usize) -> impl FnMut(usize) -> bool {
    let random = SeededRandom::new(seed as u64);
    move |_sector| {
        let mut coin = [0];
        random.fill(&mut coin);
        coin[0] % 2 == 0
    }
}

/// Everything that a reader can see.
#[derive(Debug, PartialEq)]
struct Seen {
    live: Vec<SandboxRecord>,
    ended: Vec<SandboxRecord>,
    keys: Vec<Option<IdempotencyRecord>>,
    changes: Vec<crate::Change>,
}

async fn seen(store: &Store) -> Seen {
    let changes = store.changes(0, 10_000).await.unwrap().unwrap();
    let read = store.read(|tx| {
        let key = |n| (golden::team(), format!("k{n}").parse().unwrap());
        let keys = (0..STEPS).map(|n| tx.get::<IdempotencyRecord>(&key(n)));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok::<_, StoreError>((tx.live_sandboxes()?, tx.ended_sandboxes()?, keys))
    });
    let (live, ended, keys) = read.await.unwrap();
    Seen { live, ended, keys, changes }
}

#[tokio::test]
async fn a_power_cut_at_any_sync_loses_no_answered_commit_and_halves_none() {
    let model = Store::in_memory().unwrap();
    let mut states = vec![seen(&model).await];
    for n in 0..STEPS {
        step(&model, n).await;
        states.push(seen(&model).await);
    }
    let empty = empty();
    let mut survived_unanswered = 0;
    let whole = Backend::holding(empty.clone(), usize::MAX);
    let store = whole.open();
    for n in 0..STEPS {
        step(&store, n).await;
    }
    drop(store);
    let syncs = whole.0.lock().syncs;
    for cut_after in 0..=syncs {
        let backend = Backend::holding(empty.clone(), cut_after);
        let store = backend.open();
        let mut answered = 0;
        for n in 0..STEPS {
            step(&store, n).await;
            if backend.0.lock().syncs > cut_after {
                break;
            }
            answered = n + 1;
        }
        drop(store);
        for (how, bytes) in [
            ("nothing behind it", backend.after_the_cut()),
            ("all behind it", backend.torn(|_| true)),
            ("half of what is behind it", backend.torn(coin(cut_after))),
            ("another half", backend.torn(coin(cut_after + syncs + 1))),
        ] {
            let survivor = Backend::holding(bytes, usize::MAX).open();
            let found = seen(&survivor).await;
            let commits = states.iter().position(|state| *state == found);
            let commits = commits.unwrap_or_else(|| panic!("half a commit, {cut_after}, {how}"));
            assert!(
                commits as u64 >= answered,
                "{commits} of {answered} answered commits are there, {cut_after}, {how}"
            );
            survived_unanswered += u64::from(commits as u64 > answered);
            // It goes on from there.
            put(&survivor, "after".into()).await.unwrap();
            assert_eq!(names(&survivor).await, ["after"]);
        }
    }
    // Or nothing was written behind a cut.
    assert!(survived_unanswered > 0);
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_recovers() {
    let backend = Backend::holding(Vec::new(), usize::MAX);
    let store = backend.open();
    put(&store, "1".into()).await.unwrap();
    backend.0.lock().full = true;
    assert!(matches!(put(&store, "2".into()).await, Err(StoreError::DiskFull)));
    assert!(matches!(put(&store, "3".into()).await, Err(StoreError::DiskFull)));
    backend.0.lock().full = false;
    assert_eq!(names(&store).await, ["1"]);
    put(&store, "4".into()).await.unwrap();
    assert_eq!(names(&store).await, ["1", "4"]);
}
