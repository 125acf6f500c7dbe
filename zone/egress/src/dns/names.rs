//! Sandboxes whose rules are by name, and their questions.

use std::net::Ipv4Addr;

use sandboxo_zone_protocol::{HostName, NetworkPolicy, Random};
use simple_dns::{QTYPE, TYPE};

use super::{
    Resolvers,
    ask::{Transport, ask},
    message::{self, Failure, Query},
};
use crate::{
    guests::{Guest, Standing},
    judge::is_named,
};

/// What becomes of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Ask,
    /// And the answer is noted for this name.
    AskFor(HostName),
    Fail(Failure),
    /// As if it had been lost on the way: its rules are told any moment.
    Drop,
}

pub(super) fn fate(query: &Query, guest: Option<&Guest>) -> Fate {
    match guest.map(Guest::standing) {
        None => Fate::Ask,
        Some(Standing::Ruled { policy, .. }) if !policy.is_by_name() => Fate::Ask,
        Some(Standing::Ruled { policy, .. }) => {
            let (kind, name) = query.subject();
            by_name(&policy, kind, name)
        }
        Some(Standing::Unknown | Standing::Gone) => Fate::Drop,
    }
}

/// No such name: the one answer after which nobody asks again or waits.
fn by_name(policy: &NetworkPolicy, kind: QTYPE, name: Option<HostName>) -> Fate {
    let name = match name {
        Some(name) if is_named(policy, &name) => name,
        Some(_) | None if !policy.names.is_empty() => return Fate::Fail(Failure::NoSuchName),
        Some(name) if policy.headers.contains_key(&name) => name,
        Some(_) | None => return Fate::Ask,
    };
    match kind {
        // They bring keys to hide the name by which the connection would be judged.
        QTYPE::TYPE(TYPE::HTTPS | TYPE::SVCB) | QTYPE::ANY => Fate::Fail(Failure::Nothing),
        QTYPE::TYPE(TYPE::A) => Fate::AskFor(name),
        QTYPE::TYPE(_) | QTYPE::IXFR | QTYPE::AXFR | QTYPE::MAILB | QTYPE::MAILA => Fate::Ask,
    }
}

/// The addresses of that name, as the resolvers know it now.
pub(crate) async fn addresses(
    name: &HostName,
    resolvers: &Resolvers,
    random: &dyn Random,
) -> Vec<Ipv4Addr> {
    let Some(query) = message::question(name) else { return Vec::new() };
    let answer = ask(&query, Transport::Udp, resolvers, random).await;
    let (some, is_cut) = message::addresses(&answer);
    if !is_cut {
        return some;
    }
    let answer = ask(&query, Transport::Tcp, resolvers, random).await;
    let (all, _) = message::addresses(&answer);
    if all.is_empty() { some } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_what() {
        let names = vec!["example.com".parse().unwrap(), "*.example.org".parse().unwrap()];
        let policy = NetworkPolicy { names, ..NetworkPolicy::OPEN };
        let none = Fate::Fail(Failure::NoSuchName);
        for (kind, name, expected) in [
            (TYPE::A, "example.com", Fate::AskFor("example.com".parse().unwrap())),
            (TYPE::A, "EXAMPLE.com.", Fate::AskFor("example.com".parse().unwrap())),
            (TYPE::A, "a.example.org", Fate::AskFor("a.example.org".parse().unwrap())),
            (TYPE::AAAA, "example.com", Fate::Ask),
            (TYPE::HTTPS, "example.com", Fate::Fail(Failure::Nothing)),
            (TYPE::A, "example.org", none.clone()),
            (TYPE::TXT, "c2VjcmV0.evil.example", none.clone()),
            (TYPE::A, "7.113.0.203", none.clone()),
        ] {
            let name = name.parse().ok();
            assert_eq!(by_name(&policy, kind.into(), name), expected, "{kind:?}");
        }
        let headers = [("example.com".parse().unwrap(), Vec::new())].into();
        let policy = NetworkPolicy { headers, ..NetworkPolicy::OPEN };
        for (kind, name, expected) in [
            (TYPE::A, "example.com", Fate::AskFor("example.com".parse().unwrap())),
            (TYPE::HTTPS, "example.com", Fate::Fail(Failure::Nothing)),
            (TYPE::HTTPS, "example.org", Fate::Ask),
            (TYPE::A, "example.org", Fate::Ask),
            (TYPE::PTR, "7.113.0.203", Fate::Ask),
        ] {
            let name = name.parse().ok();
            assert_eq!(by_name(&policy, kind.into(), name), expected, "{kind:?}, with headers");
        }
        // To be given headers allows nothing.
        let names = vec!["example.org".parse().unwrap()];
        let policy = NetworkPolicy { names, ..policy };
        assert_eq!(by_name(&policy, TYPE::A.into(), "example.com".parse().ok()), none);
    }
}
