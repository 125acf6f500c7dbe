//! What a change of a record says in its sandbox's log, which its team reads.

use std::collections::BTreeMap;

use sandboxo_zone_protocol::{EndReason, Kept, Notice, Noticed, Timestamp};

use crate::{DeathReason, KillCause, Level, LogEntry, Phase, SandboxRecord};

/// The part of the platform that speaks here.
const LOGGER: &str = "sandbox";
/// It tells what the sandbox's agent says of programs, as events of these names.
const PROCESSES: &str = "process";
const START: &str = "process_start";
const END: &str = "process_end";

pub fn created(record: &SandboxRecord) -> LogEntry {
    let template = record.template.alias.clone();
    let fields = [
        ("template", template.unwrap_or_else(|| record.template.id.to_string())),
        ("timeout_seconds", record.timeout.as_secs().to_string()),
        ("zone", record.zone.to_string()),
    ];
    line(record.created_at, Level::Info, "sandbox created", fields)
}

/// `None`: nothing that concerns its owner.
pub fn changed(before: &SandboxRecord, after: &SandboxRecord, now: Timestamp) -> Option<LogEntry> {
    use Phase::{Dead, Killing, Paused, Pausing, Resuming, Running, Starting};
    Some(match (&before.phase, &after.phase) {
        (Starting { .. }, Running { started_at, expires_at }) => {
            let fields = [("expires_at", expires_at.to_string())];
            line(*started_at, Level::Info, "sandbox started", fields)
        }
        (Running { expires_at: old, .. }, Running { expires_at: new, .. }) if old != new => {
            line(now, Level::Info, "timeout set", [("expires_at", new.to_string())])
        }
        (Running { .. }, Pausing { asked_at, .. }) => {
            line(*asked_at, Level::Info, "pause asked for", [])
        }
        (Pausing { .. }, Running { .. }) => line(now, Level::Warn, "not paused: it goes on", []),
        (
            Starting { .. } | Running { .. } | Pausing { .. } | Resuming { .. },
            Paused { paused_at, kept, .. },
        ) if before.phase.checkpoint() != after.phase.checkpoint() => {
            let kept = match kept {
                Kept::Memory => "memory and files",
                Kept::Files => "files",
            };
            line(*paused_at, Level::Info, "sandbox paused", [("kept", kept.to_owned())])
        }
        (Resuming { .. }, Paused { .. }) => line(now, Level::Error, "not resumed", []),
        (Paused { .. }, Resuming { .. }) => line(now, Level::Info, "resume asked for", []),
        (Resuming { .. }, Running { expires_at, .. }) => {
            line(now, Level::Info, "sandbox resumed", [("expires_at", expires_at.to_string())])
        }
        (
            Starting { .. } | Running { .. } | Pausing { .. } | Paused { .. } | Resuming { .. },
            Killing { asked_at, cause, .. },
        ) => {
            let (level, message) = match cause {
                KillCause::Asked => (Level::Info, "kill asked for"),
                KillCause::Expired => (Level::Info, "time is over"),
                KillCause::StartFailed(_) => (Level::Warn, "start given up"),
            };
            line(*asked_at, level, message, [])
        }
        (
            Starting { .. }
            | Running { .. }
            | Pausing { .. }
            | Paused { .. }
            | Resuming { .. }
            | Killing { .. },
            Dead { at, reason, .. },
        ) => line(*at, severity(reason), "sandbox ended", [("reason", reason.to_string())]),
        _ if before.spec.network != after.spec.network => {
            line(now, Level::Info, "network rules replaced", [])
        }
        _ => return None,
    })
}

/// The sandbox's clock is the tenant's: its lines lie between its beginning and now.
pub fn noticed(notice: Notice, record: &SandboxRecord, now: Timestamp) -> LogEntry {
    let (level, message, fields) = match notice.what {
        Noticed::Started { pid, command } => {
            let fields =
                vec![("event", START.into()), ("pid", pid.to_string()), ("command", command)];
            (Level::Info, "process started", fields)
        }
        Noticed::Ended { pid, exit_code, status } => {
            let code = ("exit_code", exit_code.to_string());
            let fields =
                vec![("event", END.into()), ("pid", pid.to_string()), code, ("status", status)];
            (Level::Info, "process ended", fields)
        }
        Noticed::Missed { count } => {
            (Level::Warn, "too many processes to tell of", vec![("missed", count.to_string())])
        }
    };
    LogEntry {
        at: notice.at.max(record.created_at).min(now),
        level,
        logger: PROCESSES.into(),
        message: message.into(),
        fields: fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

fn severity(reason: &DeathReason) -> Level {
    match reason {
        DeathReason::Ended(EndReason::Killed | EndReason::TimedOut) => Level::Info,
        DeathReason::Ended(
            EndReason::OutOfMemory
            | EndReason::Crashed
            | EndReason::AgentLost
            | EndReason::KeeperLost
            | EndReason::ZoneRestarted
            | EndReason::CheckpointFailed,
        )
        | DeathReason::StartFailed(_)
        | DeathReason::Missing
        | DeathReason::CheckpointLost => Level::Error,
    }
}

fn line<const N: usize>(
    at: Timestamp,
    level: Level,
    message: &str,
    fields: [(&str, String); N],
) -> LogEntry {
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    LogEntry { at, level, logger: LOGGER.into(), message: message.into(), fields }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{NetworkPolicy, SandboxId, SystemRandom, ZoneCode};

    use super::*;
    use crate::sample::record;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn say(entry: &LogEntry) -> String {
        let fields: Vec<_> =
            entry.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let second = entry.at.as_second();
        format!("{second} {} {}{}", entry.level, entry.message, fields.concat())
    }

    #[test]
    fn what_programs_do_in_lines() {
        let record = record(
            "sbx_loc_0123456789abcdefghjk".parse().unwrap(),
            at(99),
            Phase::Running { started_at: at(1), expires_at: at(99) },
        );
        let start = |command: &str| Noticed::Started { pid: 7, command: command.into() };
        let end = Noticed::Ended { pid: 7, exit_code: 3, status: "exit status 3".into() };
        for (second, what, expected) in [
            (2, start("ls -l"), "2 info process started command=ls -l event=process_start pid=7"),
            (
                3,
                end,
                "3 info process ended event=process_end exit_code=3 pid=7 status=exit status 3",
            ),
            (4, Noticed::Missed { count: 9 }, "4 warn too many processes to tell of missed=9"),
            (
                -9,
                start("before"),
                "0 info process started command=before event=process_start pid=7",
            ),
            (99, start("after"), "50 info process started command=after event=process_start pid=7"),
        ] {
            let entry = noticed(Notice { at: at(second), what }, &record, at(50));
            assert_eq!(entry.logger, "process");
            assert_eq!(say(&entry), expected);
        }
    }

    #[test]
    fn a_life_in_lines() {
        let id = SandboxId::random(
            "loc".parse().unwrap(),
            ZoneCode::random(&SystemRandom),
            &SystemRandom,
        );
        let of = |phase| record(id, at(99), phase);
        let starting = of(Phase::Starting { give_up_at: at(30) });
        let running = |until| of(Phase::Running { started_at: at(1), expires_at: at(until) });
        let killing = |cause| {
            let started_at = Some(at(1));
            of(Phase::Killing { asked_at: at(2), cause, started_at, checkpoint: None })
        };
        let (started_at, kept) = (at(1), Kept::Memory);
        let expires_at = at(9);
        let pausing = of(Phase::Pausing { started_at, expires_at, asked_at: at(2), kept });
        let checkpoint = "00000000000000000001".parse().unwrap();
        let paused = of(Phase::Paused { started_at, paused_at: at(3), checkpoint, kept });
        let resuming = of(Phase::Resuming {
            started_at,
            paused_at: at(3),
            checkpoint,
            kept,
            reboot: false,
            expires_at,
            give_up_at: at(8),
        });
        let dead = |reason| of(Phase::Dead { at: at(3), reason, started_at: Some(at(1)) });
        let mut ruled = running(9);
        ruled.spec.network =
            NetworkPolicy { deny: vec!["8.8.8.8/32".parse().unwrap()], ..NetworkPolicy::OPEN };
        let killed = DeathReason::Ended(EndReason::Killed);
        let memory = DeathReason::Ended(EndReason::OutOfMemory);
        for (before, after, expected) in [
            (&starting, &running(9), "1 info sandbox started expires_at=1970-01-01T00:00:09Z"),
            (&running(9), &running(11), "5 info timeout set expires_at=1970-01-01T00:00:11Z"),
            (&running(9), &running(9), ""),
            (&running(9), &ruled, "5 info network rules replaced"),
            (&running(9), &killing(KillCause::Asked), "2 info kill asked for"),
            (&running(9), &killing(KillCause::Expired), "2 info time is over"),
            (
                &killing(KillCause::Asked),
                &dead(killed.clone()),
                "3 info sandbox ended reason=killed",
            ),
            (&running(9), &dead(memory), "3 error sandbox ended reason=out of memory"),
            (&running(9), &pausing, "2 info pause asked for"),
            (&pausing, &running(9), "5 warn not paused: it goes on"),
            (&pausing, &paused, "3 info sandbox paused kept=memory and files"),
            (&running(9), &paused, "3 info sandbox paused kept=memory and files"),
            (&paused, &resuming, "5 info resume asked for"),
            (&resuming, &paused, "5 error not resumed"),
            (&resuming, &running(9), "5 info sandbox resumed expires_at=1970-01-01T00:00:09Z"),
            (&paused, &killing(KillCause::Asked), "2 info kill asked for"),
            (
                &paused,
                &dead(DeathReason::CheckpointLost),
                "3 error sandbox ended reason=checkpoint lost",
            ),
            (&dead(killed.clone()), &dead(killed), ""),
        ] {
            let told = changed(before, after, at(5)).map_or_else(String::new, |entry| say(&entry));
            assert_eq!(told, expected);
        }
        assert_eq!(
            say(&created(&starting)),
            "0 info sandbox created template=0123456789abcdefghjk timeout_seconds=1 zone=local1"
        );
    }
}
