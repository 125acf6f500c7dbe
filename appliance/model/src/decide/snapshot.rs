//! Which snapshot a client means, and which a list shows.

use std::{fmt, ops::Deref, str::FromStr};

use sandboxo_zone_protocol::{BuildId, SandboxId, TeamId, TemplateId, Timestamp};

use crate::{SnapshotBuild, SnapshotKind, SnapshotRecord, TemplateRef, decide::list::NotACursor};

/// `team_named`: the id of the team with this name. An id beats a name; a team's own beats what
/// others have built and published, and of those the oldest wins. A build's id is as good as its
/// tag.
pub fn resolve<'a>(
    snapshots: impl IntoIterator<Item = &'a SnapshotRecord>,
    team_named: impl FnOnce(&str) -> Option<TeamId>,
    team: TeamId,
    text: &str,
) -> Option<(&'a SnapshotRecord, String)> {
    let (text, build) = match text.rsplit_once(':') {
        Some((name, tag)) => match tag.parse::<BuildId>() {
            Ok(build) => (name, Some(build)),
            Err(_a_tag) => (text, None),
        },
        None => (text, None),
    };
    let TemplateRef { team: owner, name, tag } = text.parse().ok()?;
    let tag_of = |it: &SnapshotRecord| match build {
        Some(build) => it.builds.iter().find(|(_, it)| it.id == build).map(|(tag, _)| tag.clone()),
        None => it.builds.contains_key(&tag).then(|| tag.clone()),
    };
    let id = name.as_str().parse::<TemplateId>().ok().filter(|_| owner.is_none());
    let owner = match owner {
        Some(owner) => Some(team_named(&owner)?),
        None => None,
    };
    let is_public = |it: &SnapshotRecord| it.public && it.kind == SnapshotKind::Built;
    snapshots
        .into_iter()
        .filter(|it| it.team == team || is_public(it))
        .filter(|it| {
            id == Some(it.id)
                || it.name.as_ref() == Some(&name) && owner.is_none_or(|owner| owner == it.team)
        })
        .filter_map(|it| Some((it, tag_of(it)?)))
        .min_by_key(|(it, _)| (id != Some(it.id), it.team != team, it.created_at, it.id))
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Taken of this one.
    pub sandbox: Option<SandboxId>,
    pub name: Option<Named>,
    pub limit: usize,
    /// The last of the page before.
    pub after: Option<Cursor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Or the text of an id.
    pub name: String,
    /// `None`: any.
    pub tag: Option<String>,
}

/// One tag of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    pub record: T,
    pub tag: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<Entry<T>>,
    /// `None` on the last page.
    pub next: Option<Cursor>,
}

/// A place in the order of builds. Opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    at: Timestamp,
    build: BuildId,
}

/// Those that were taken, newest first.
pub fn page<T: Deref<Target = SnapshotRecord> + Clone>(
    records: impl IntoIterator<Item = T>,
    query: &Query,
) -> Page<T> {
    let mut matching: Vec<(Cursor, Entry<T>)> = Vec::new();
    for record in records {
        for (tag, build) in &record.builds {
            let cursor = Cursor { at: build.at, build: build.id };
            let later = query.after.is_none_or(|last| cursor < last);
            if later && matches(&record, tag, build, query) {
                matching.push((cursor, Entry { record: record.clone(), tag: tag.clone() }));
            }
        }
    }
    matching.sort_unstable_by_key(|(cursor, _)| std::cmp::Reverse(*cursor));
    let more = matching.len() > query.limit;
    matching.truncate(query.limit);
    let next = matching.last().filter(|_| more).map(|(cursor, _)| *cursor);
    Page { items: matching.into_iter().map(|(_, entry)| entry).collect(), next }
}

fn matches(record: &SnapshotRecord, tag: &str, build: &SnapshotBuild, query: &Query) -> bool {
    record.kind == SnapshotKind::Taken
        && query.sandbox.is_none_or(|sandbox| sandbox == build.sandbox)
        && query.name.as_ref().is_none_or(|Named { name, tag: asked }| {
            let named = record.name.as_ref().is_some_and(|own| own.as_str() == name);
            (named || record.id.to_string() == *name)
                && asked.as_deref().is_none_or(|asked| asked == tag)
        })
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_nanosecond(), self.build)
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (nanoseconds, build) = text.split_once('.')?;
            let at = Timestamp::from_nanosecond(nanoseconds.parse().ok()?).ok()?;
            Some(Self { at, build: build.parse().ok()? })
        };
        parse().ok_or(NotACursor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sandboxo_zone_protocol::{Kept, fake::SeededRandom};

    use super::*;
    use crate::{Phase, sample};

    fn sandbox(n: u8) -> SandboxId {
        format!("sbx_loc_{n:020}").parse().unwrap()
    }

    /// With builds of the second given, each of the sandbox with that number.
    fn snapshot(id: u8, team: TeamId, name: Option<&str>, builds: &[(&str, u8)]) -> SnapshotRecord {
        let random = SeededRandom::new(u64::from(id));
        let at = |second: u8| Timestamp::from_second(second.into()).unwrap();
        let build = |(tag, second): &(&str, u8)| {
            let phase = Phase::Running { started_at: at(0), expires_at: at(0) };
            let record = sample::record(sandbox(*second), at(0), phase);
            let checkpoint = sandboxo_zone_protocol::CheckpointId::random(&random);
            let build = BuildId::random(&random);
            let of = SnapshotBuild::of(&record, build, at(*second), checkpoint, Kept::Memory);
            ((*tag).to_owned(), of)
        };
        SnapshotRecord {
            id: format!("{id:020}").parse().unwrap(),
            kind: SnapshotKind::Taken,
            team,
            public: false,
            name: name.map(|name| name.parse().unwrap()),
            builds: builds.iter().map(build).collect::<BTreeMap<_, _>>(),
            created_at: at(0),
        }
    }

    #[test]
    fn which_is_meant() {
        let random = SeededRandom::new(9);
        let [one, two] = [TeamId::random(&random), TeamId::random(&random)];
        let snapshots = [
            snapshot(1, one, None, &[("default", 1)]),
            snapshot(2, one, Some("snap"), &[("default", 2), ("v1", 3)]),
            snapshot(3, two, Some("snap"), &[("v2", 4)]),
            snapshot(4, one, Some("00000000000000000001"), &[("default", 5)]),
        ];
        let id = |n: u8| format!("{n:020}");
        let named = |name: &str| match name {
            "one" => Some(one),
            "two" => Some(two),
            _ => None,
        };
        let build = snapshots[1].builds["v1"].id;
        for (team, text, expected) in [
            (one, format!("snap:{build}"), Some((2, "v1"))),
            (one, format!("{}:{build}", id(2)), Some((2, "v1"))),
            (one, format!("{}:{build}", id(1)), None),
            (two, format!("snap:{build}"), None),
            (one, id(1), Some((1, "default"))),
            (one, format!("{}:default", id(1)), Some((1, "default"))),
            (one, format!("{}:v1", id(1)), None),
            (one, format!("one/{}", id(1)), Some((4, "default"))),
            (one, "snap".into(), Some((2, "default"))),
            (one, "SNAP:V1".into(), Some((2, "v1"))),
            (one, "one/snap:v1".into(), Some((2, "v1"))),
            (one, "two/snap:v2".into(), None),
            (one, "snap:v2".into(), None),
            (two, "snap".into(), None),
            (two, "snap:v2".into(), Some((3, "v2"))),
            (two, id(1), None),
            (two, "nobody/snap:v2".into(), None),
            (one, "a b".into(), None),
        ] {
            let found = resolve(&snapshots, named, team, &text);
            let found = found.as_ref().map(|(it, tag)| (it.id.to_string(), tag.as_str()));
            assert_eq!(found, expected.map(|(n, tag)| (id(n), tag)), "{text}");
        }
    }

    #[test]
    fn what_others_have_published() {
        let random = SeededRandom::new(9);
        let [one, two] = [TeamId::random(&random), TeamId::random(&random)];
        let built = |id, team, name, public, kind| SnapshotRecord {
            kind,
            public,
            ..snapshot(id, team, Some(name), &[("default", id)])
        };
        let (kept, made) = (SnapshotKind::Taken, SnapshotKind::Built);
        let snapshots = [
            built(1, one, "mine", false, made),
            built(2, two, "mine", true, made),
            built(3, two, "theirs", true, made),
            built(4, two, "private", false, made),
            built(5, two, "taken", true, kept),
        ];
        let named = |name: &str| (name == "two").then_some(two);
        let id = |n: u8| format!("{n:020}");
        for (text, expected) in [
            ("mine".to_owned(), Some(1)),
            ("two/mine".into(), Some(2)),
            (id(2), Some(2)),
            ("theirs".into(), Some(3)),
            ("theirs:v1".into(), None),
            ("private".into(), None),
            (id(4), None),
            ("taken".into(), None),
        ] {
            let found = resolve(&snapshots, named, one, &text).map(|(it, _)| it.id.to_string());
            assert_eq!(found, expected.map(id), "{text}");
        }
    }

    #[test]
    fn newest_first_in_pages() {
        let team = TeamId::random(&SeededRandom::new(9));
        let built = snapshot(4, team, Some("built"), &[("default", 6)]);
        let snapshots = [
            snapshot(1, team, None, &[("default", 4)]),
            snapshot(2, team, Some("snap"), &[("default", 1), ("v1", 5)]),
            snapshot(3, team, Some("other"), &[("default", 3)]),
            SnapshotRecord { kind: SnapshotKind::Built, ..built },
        ];
        let list = |query: &Query| {
            let page = page(snapshots.iter(), query);
            let tag = |it: &Entry<&SnapshotRecord>| {
                let second = it.record.builds[&it.tag].at.as_second();
                u8::try_from(second).unwrap()
            };
            (page.items.iter().map(tag).collect::<Vec<_>>(), page.next)
        };
        let all = Query { limit: 9, ..Query::default() };
        let named = |name: &str, tag: Option<&str>| {
            let (name, tag) = (name.to_owned(), tag.map(str::to_owned));
            Query { name: Some(Named { name, tag }), ..all.clone() }
        };
        for (query, expected) in [
            (all.clone(), vec![5, 4, 3, 1]),
            (Query { sandbox: Some(sandbox(3)), ..all.clone() }, vec![3]),
            (Query { sandbox: Some(sandbox(2)), ..all.clone() }, vec![]),
            (named("snap", None), vec![5, 1]),
            (named("snap", Some("v1")), vec![5]),
            (named("snap", Some("v2")), vec![]),
            (named("nothing", None), vec![]),
            (named("00000000000000000001", None), vec![4]),
        ] {
            assert_eq!(list(&query), (expected, None), "{query:?}");
        }
        let mut query = Query { limit: 3, ..all };
        let (first, next) = list(&query);
        assert_eq!(first, [5, 4, 3]);
        query.after = next.unwrap().to_string().parse().ok();
        assert_eq!(list(&query), (vec![1], None));
        for bad in ["", "1", "1.x", "x.0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11"] {
            assert_eq!(bad.parse::<Cursor>(), Err(NotACursor), "{bad}");
        }
    }
}
