//! Which template a client means.

use sandboxo_zone_protocol::{TeamId, TemplateId};

use crate::{TemplateRecord, TemplateRef};

/// `team_named`: the id of the team with this name.
///
/// An id beats a name; the team's own beats a public one of the same name, and of those the oldest
/// wins. Another team's that is not public does not exist for `team`.
pub fn resolve<'a>(
    templates: impl IntoIterator<Item = &'a TemplateRecord>,
    team_named: impl FnOnce(&str) -> Option<TeamId>,
    team: TeamId,
    text: &str,
) -> Option<&'a TemplateRecord> {
    let reference: TemplateRef = text.parse().ok()?;
    if reference.tag != TemplateRef::DEFAULT_TAG {
        return None;
    }
    let id =
        reference.name.as_str().parse::<TemplateId>().ok().filter(|_| reference.team.is_none());
    let owner = match &reference.team {
        Some(name) => Some(team_named(name)?),
        None => None,
    };
    templates
        .into_iter()
        .filter(|template| template.team == team || template.public)
        .filter(|template| {
            id == Some(template.id)
                || template.name == reference.name
                    && owner.is_none_or(|owner| owner == template.team)
        })
        .min_by_key(|template| {
            (id != Some(template.id), template.team != team, template.created_at, template.id)
        })
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{BuildId, ImageDigest, Timestamp, fake::SeededRandom};

    use super::*;

    #[test]
    fn table() {
        let random = SeededRandom::new(1);
        let teams = [TeamId::random(&random), TeamId::random(&random)];
        let template = |id: u8, team: usize, name: &str, public, created_at| TemplateRecord {
            id: format!("{id:020}").parse().unwrap(),
            team: teams[team],
            name: name.parse().unwrap(),
            public,
            image: ImageDigest::from_bytes([id; 32]),
            image_bytes: 1,
            image_names: [].into(),
            build: BuildId::random(&random),
            resources: crate::resources::DEFAULT,
            platform: sandboxo_zone_protocol::Platform::Ptrace,
            env: [].into(),
            user: "user".into(),
            workdir: None,
            created_at: Timestamp::from_second(created_at).unwrap(),
            updated_at: Timestamp::UNIX_EPOCH,
        };
        let templates = [
            template(1, 0, "base", true, 1),
            template(2, 1, "base", true, 2),
            template(3, 0, "private", false, 3),
            template(4, 1, "00000000000000000003", true, 4),
        ];
        let id = |id: u8| format!("{id:020}");
        let named = |name: &str| match name {
            "one" => Some(teams[0]),
            "two" => Some(teams[1]),
            _ => None,
        };
        for (why, team, text, expected) in [
            ("own before public", 1, "base", Some(2)),
            ("own", 0, "base", Some(1)),
            ("the default tag", 0, "base:default", Some(1)),
            ("another tag", 0, "base:v1", None),
            ("of a team", 0, "two/base", Some(2)),
            ("of a team, with tag", 0, "two/base:default", Some(2)),
            ("of no team", 0, "three/base", None),
            ("private, own", 0, "private", Some(3)),
            ("private, of another", 1, "private", None),
            ("private, of another, by team", 1, "one/private", None),
            ("by id", 1, &id(1), Some(1)),
            ("an id beats a name", 0, &id(3), Some(3)),
            ("a name like an id that is not ours", 1, &id(3), Some(4)),
            ("an id of a team is a name", 0, "two/00000000000000000003", Some(4)),
            ("capitals", 0, "BASE", Some(1)),
            ("unknown", 0, "other", None),
            ("not a name", 0, "a b", None),
        ] {
            let found = resolve(&templates, named, teams[team], text);
            assert_eq!(found.map(|it| it.id.to_string()), expected.map(id), "{why}");
        }
    }
}
