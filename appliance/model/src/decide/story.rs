//! What a change of a record says in its sandbox's log, which its team reads.

use std::collections::BTreeMap;

use sandboxo_zone_protocol::{EndReason, Timestamp};

use crate::{DeathReason, KillCause, Level, LogEntry, Phase, SandboxRecord};

/// The part of the platform that speaks here.
const LOGGER: &str = "sandbox";

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
    use Phase::{Dead, Killing, Running, Starting};
    Some(match (&before.phase, &after.phase) {
        (Starting { .. }, Running { started_at, expires_at }) => {
            let fields = [("expires_at", expires_at.to_string())];
            line(*started_at, Level::Info, "sandbox started", fields)
        }
        (Running { expires_at: old, .. }, Running { expires_at: new, .. }) if old != new => {
            line(now, Level::Info, "timeout set", [("expires_at", new.to_string())])
        }
        (Starting { .. } | Running { .. }, Killing { asked_at, cause, .. }) => {
            let (level, message) = match cause {
                KillCause::Asked => (Level::Info, "kill asked for"),
                KillCause::Expired => (Level::Info, "time is over"),
                KillCause::StartFailed(_) => (Level::Warn, "start given up"),
            };
            line(*asked_at, level, message, [])
        }
        (Starting { .. } | Running { .. } | Killing { .. }, Dead { at, reason, .. }) => {
            line(*at, severity(reason), "sandbox ended", [("reason", reason.to_string())])
        }
        _ if before.spec.network != after.spec.network => {
            line(now, Level::Info, "network rules replaced", [])
        }
        _ => return None,
    })
}

fn severity(reason: &DeathReason) -> Level {
    match reason {
        DeathReason::Ended(EndReason::Killed | EndReason::TimedOut) => Level::Info,
        DeathReason::Ended(
            EndReason::OutOfMemory
            | EndReason::Crashed
            | EndReason::AgentLost
            | EndReason::KeeperLost
            | EndReason::ZoneRestarted,
        )
        | DeathReason::StartFailed(_)
        | DeathReason::Missing => Level::Error,
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
        let killing =
            |cause| of(Phase::Killing { asked_at: at(2), cause, started_at: Some(at(1)) });
        let dead = |reason| of(Phase::Dead { at: at(3), reason, started_at: Some(at(1)) });
        let mut ruled = running(9);
        ruled.spec.network =
            NetworkPolicy { deny: vec!["8.8.8.8/32".parse().unwrap()], ..NetworkPolicy::OPEN };
        let killed = DeathReason::Ended(EndReason::Killed);
        let memory = DeathReason::Ended(EndReason::OutOfMemory);
        let say = |entry: LogEntry| {
            let fields: Vec<_> =
                entry.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            let second = entry.at.as_second();
            format!("{second} {} {}{}", entry.level, entry.message, fields.concat())
        };
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
            (&dead(killed.clone()), &dead(killed), ""),
        ] {
            let told = changed(before, after, at(5)).map(say).unwrap_or_default();
            assert_eq!(told, expected);
        }
        assert_eq!(
            say(created(&starting)),
            "0 info sandbox created template=0123456789abcdefghjk timeout_seconds=1 zone=local1"
        );
    }
}
