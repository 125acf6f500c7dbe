//! Real trees on a real disk.

use sandboxo_model::Level;
use sandboxo_zone_protocol::{Region, SandboxId, TeamId, ZoneCode, fake::SeededRandom};

use super::*;

const BOUNDS: Bounds = Bounds { bytes: 1 << 20, age: Duration::from_hours(1) };

fn owner(seed: u64) -> Owner {
    let random = SeededRandom::new(seed);
    let region: Region = "loc".parse().unwrap();
    let zone = ZoneCode::random(&random);
    Owner { team: TeamId::random(&random), sandbox: SandboxId::random(region, zone, &random) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn line(second: i64, message: &str) -> LogEntry {
    LogEntry {
        at: at(second),
        level: Level::Info,
        logger: "test".into(),
        message: message.into(),
        fields: [].into(),
    }
}

fn all() -> LogQuery {
    LogQuery { from: None, direction: Direction::Forward, limit: 1000, level: None, search: None }
}

fn sample(second: i64) -> Measured {
    Measured {
        at: at(second),
        cpu_used_percent: 1.0,
        memory_used_bytes: 1,
        memory_total_bytes: 2,
        memory_cache_bytes: 3,
        disk_used_bytes: 4,
        disk_total_bytes: 5,
    }
}

async fn messages(spool: &Spool, owner: Owner, query: LogQuery) -> Vec<String> {
    let found = spool.logs(owner, query).await.unwrap();
    found.into_iter().map(|entry| entry.message).collect()
}

#[tokio::test]
async fn lines_come_back_as_they_were_asked_for() {
    let spool = Spool::temporary_of(BOUNDS);
    let (mine, other) = (owner(1), owner(2));
    for (second, message) in [(0, "a"), (1, "b"), (1, "c"), (2, "d")] {
        spool.log(mine, line(second, message));
    }
    spool.log(other, line(1, "not mine"));
    let back = LogQuery { direction: Direction::Backward, ..all() };
    for (query, expected) in [
        (all(), &["a", "b", "c", "d"][..]),
        (LogQuery { from: Some(at(1)), ..all() }, &["b", "c", "d"]),
        (LogQuery { limit: 2, ..all() }, &["a", "b"]),
        (LogQuery { limit: 0, ..all() }, &[]),
        (LogQuery { search: Some("c".into()), ..all() }, &["c"]),
        (LogQuery { level: Some(Level::Error), ..all() }, &[]),
        (back.clone(), &["d", "c", "b", "a"]),
        (LogQuery { from: Some(at(1)), ..back.clone() }, &["c", "b", "a"]),
        (LogQuery { from: Some(at(-1)), ..back }, &[]),
    ] {
        assert_eq!(messages(&spool, mine, query.clone()).await, expected, "{query:?}");
    }
    // The same sandbox under another team's name.
    let stranger = Owner { team: other.team, ..mine };
    assert!(messages(&spool, stranger, all()).await.is_empty());
}

#[tokio::test]
async fn samples_come_back_by_range() {
    let spool = Spool::temporary_of(BOUNDS);
    for second in 0..10 {
        spool.sample(owner(1), &sample(second * 5));
    }
    let found = spool.samples(owner(1), at(10)..=at(20)).await.unwrap();
    assert_eq!(found, [sample(10), sample(15), sample(20)]);
    let found = spool.samples(owner(1), Timestamp::MIN..=Timestamp::MAX).await.unwrap();
    assert_eq!(found.len(), 10);
    assert!(messages(&spool, owner(1), all()).await.is_empty(), "samples are no lines");
}

#[tokio::test]
async fn what_is_too_old_or_too_much_goes_first() {
    let spool = Spool::temporary_of(Bounds { bytes: 64 << 10, age: Duration::from_secs(100) });
    spool.log(owner(1), line(0, "old"));
    spool.log(owner(2), line(50, "younger"));
    spool.tend(at(101)).await;
    assert!(messages(&spool, owner(1), all()).await.is_empty());
    assert_eq!(messages(&spool, owner(2), all()).await, ["younger"]);
    for second in 60..90 {
        spool.log(owner(1), line(second, &"x".repeat(8 << 10)));
    }
    spool.tend(at(101)).await;
    let left = spool.logs(owner(1), all()).await.unwrap();
    assert!((1..=8).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().map(|entry| entry.at), Some(at(89)), "the last ones stay");
}

#[tokio::test]
async fn a_clock_that_is_set_back_loses_nothing_and_keeps_nothing_for_ever() {
    let spool = Spool::temporary_of(BOUNDS);
    spool.log(owner(1), line(7200, "before"));
    spool.log(owner(1), line(3600, "set back"));
    spool.tend(at(3600)).await;
    assert_eq!(messages(&spool, owner(1), all()).await, ["set back", "before"]);
    spool.tend(at(7201)).await;
    assert_eq!(messages(&spool, owner(1), all()).await, ["before"]);
    spool.tend(at(10_801)).await;
    assert!(messages(&spool, owner(1), all()).await.is_empty());
}

#[tokio::test]
async fn one_that_says_much_pushes_out_only_its_own() {
    let spool = Spool::temporary_of(Bounds { bytes: 64 << 10, age: Duration::from_hours(1) });
    spool.log(owner(2), line(0, "quiet"));
    for second in 1..40 {
        spool.log(owner(1), line(second, &"x".repeat(8 << 10)));
    }
    spool.log(owner(3), line(40, "late"));
    spool.tend(at(41)).await;
    assert_eq!(messages(&spool, owner(2), all()).await, ["quiet"], "the oldest of all");
    assert_eq!(messages(&spool, owner(3), all()).await, ["late"]);
    let left = spool.logs(owner(1), all()).await.unwrap();
    assert!((5..=7).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().map(|entry| entry.at), Some(at(39)), "its last ones stay");
    let held = |spool: &Spool| spool.inner.disk.lock().as_ref().unwrap().held();
    assert!(held(&spool) <= 64 << 10);
    spool.tend(at(2 * 3600)).await;
    assert_eq!(held(&spool), 0, "what has gone is not counted");
}

#[tokio::test]
async fn it_is_there_after_a_restart_and_still_knows_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let spool = Spool::open(&path, BOUNDS);
    spool.log(owner(1), line(0, "kept"));
    spool.close().await;
    spool.log(owner(1), line(1, "too late"));
    assert_eq!(spool.logs(owner(1), all()).await, Err(SpoolError::Unavailable));
    let again = Spool::open(&path, BOUNDS);
    assert_eq!(messages(&again, owner(1), all()).await, ["kept"]);
    assert!(again.inner.disk.lock().as_ref().unwrap().held() > 100);
}

#[tokio::test]
async fn a_damaged_one_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    for round in 0..2 {
        let spool = Spool::open(&path, BOUNDS);
        for second in 0..100 {
            spool.log(owner(1), line(second, &"x".repeat(4096)));
        }
        spool.close().await;
        drop(spool);
        for file in ["conf", "db"] {
            let file = path.join(file);
            let length = std::fs::metadata(&file).unwrap().len();
            std::fs::write(&file, vec![0xa5; usize::try_from(length).unwrap()]).unwrap();
        }
        let spool = Spool::open(&path, BOUNDS);
        assert!(messages(&spool, owner(1), all()).await.is_empty(), "round {round}");
        spool.log(owner(1), line(0, "anew"));
        assert_eq!(messages(&spool, owner(1), all()).await, ["anew"]);
        assert!(folder.path().join("spool.damaged").is_dir());
        spool.close().await;
    }
}

#[tokio::test]
async fn without_a_disk_it_keeps_nothing_and_fails_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not a folder/spool");
    std::fs::write(folder.path().join("not a folder"), b"").unwrap();
    let spool = Spool::open(&path, BOUNDS);
    spool.log(owner(1), line(0, "lost"));
    assert_eq!(spool.logs(owner(1), all()).await, Err(SpoolError::Unavailable));
    std::fs::remove_file(folder.path().join("not a folder")).unwrap();
    spool.tend(at(0)).await;
    spool.log(owner(1), line(1, "kept"));
    assert_eq!(messages(&spool, owner(1), all()).await, ["kept"]);
}
