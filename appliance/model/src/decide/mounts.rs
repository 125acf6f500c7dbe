//! Which volumes a sandbox gets, and where.

use sandboxo_zone_protocol::{MountPath, NotAMountPath, VolumeId, VolumeMount};

use crate::MountAsked;

/// Each is a mount on the host, for as long as the sandbox lives.
const MOST: usize = 16;

/// Everything that is wrong with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct InvalidMounts(pub Vec<InvalidMount>);

/// By its number in the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMount {
    #[error("volumeMounts[{at}].name: volume '{name}' not found")]
    NoVolume { at: usize, name: String },
    #[error("volumeMounts[{at}].path: {why}")]
    Path { at: usize, why: NotAMountPath },
    #[error("volumeMounts[{at}].path: '{path}' is another volume's already")]
    Taken { at: usize, path: MountPath },
    #[error("volumeMounts[{at}].path: '{path}' would hide the volume at '{inner}'")]
    Hides { at: usize, path: MountPath, inner: MountPath },
    #[error("volumeMounts: a sandbox has at most {MOST} volumes")]
    TooMany,
}

/// `there`: those of the checkpoint that it starts from, which stay as they are and come first.
/// Whoever asks for them again gets them once.
pub fn mounts(
    asked: &[MountAsked],
    there: &[VolumeMount],
    find: impl Fn(&str) -> Option<VolumeId>,
) -> Result<Vec<VolumeMount>, InvalidMounts> {
    let mut refused = Vec::new();
    let mut mounts: Vec<VolumeMount> = Vec::new();
    for (at, MountAsked { name, path }) in asked.iter().enumerate() {
        let (volume, path) = match (find(name), path.parse::<MountPath>()) {
            (Some(volume), Ok(path)) => (volume, path),
            (volume, path) => {
                if volume.is_none() {
                    refused.push(InvalidMount::NoVolume { at, name: name.clone() });
                }
                refused.extend(path.err().map(|why| InvalidMount::Path { at, why }));
                continue;
            }
        };
        if there.iter().any(|it| it.path == path && it.volume == volume) {
            continue;
        }
        if there.iter().chain(&mounts).any(|it| it.path == path) {
            refused.push(InvalidMount::Taken { at, path });
        } else if let Some(inner) = there.iter().find(|it| it.path.is_below(&path)) {
            refused.push(InvalidMount::Hides { at, path, inner: inner.path.clone() });
        } else {
            mounts.push(VolumeMount { volume, name: name.clone(), path });
        }
    }
    if there.len() + mounts.len() > MOST {
        refused.push(InvalidMount::TooMany);
    }
    if !refused.is_empty() {
        return Err(InvalidMounts(refused));
    }
    // One that lies in another comes after it.
    mounts.sort_by_key(|mount| mount.path.as_str().matches('/').count());
    Ok(there.iter().cloned().chain(mounts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(&str, &str); 2] =
        [("a", "vol_loc_0000000000000000001a"), ("b", "vol_loc_0000000000000000002b")];

    fn find(name: &str) -> Option<VolumeId> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, id)| id.parse().unwrap())
    }

    fn mount(name: &str, path: &str) -> VolumeMount {
        let volume = find(name).unwrap();
        VolumeMount { volume, name: name.into(), path: path.parse().unwrap() }
    }

    #[test]
    fn mounts_are_found_in_order_or_all_refused() {
        let there = || vec![mount("a", "/kept")];
        for (asked, there, expected) in [
            (vec![], vec![], Ok(vec![])),
            (vec![], there(), Ok(there())),
            (vec![("a", "/x"), ("a", "/y")], vec![], Ok(vec![mount("a", "/x"), mount("a", "/y")])),
            (
                vec![("a", "/x/in"), ("b", "/x")],
                vec![],
                Ok(vec![mount("b", "/x"), mount("a", "/x/in")]),
            ),
            (
                vec![("b", "/x"), ("a", "/kept")],
                there(),
                Ok(vec![mount("a", "/kept"), mount("b", "/x")]),
            ),
            (
                vec![("a", "/kept/in")],
                there(),
                Ok(vec![mount("a", "/kept"), mount("a", "/kept/in")]),
            ),
            (vec![("b", "/kept")], there(), Err("[0].path: '/kept' is another volume's already")),
            (
                vec![("b", "/over")],
                vec![mount("a", "/over/it"), mount("a", "/overall")],
                Err("[0].path: '/over' would hide the volume at '/over/it'"),
            ),
            (
                vec![("no", "/x"), ("a", "x"), ("a", "/x"), ("b", "/x")],
                vec![],
                Err("[0].name: volume 'no' not found; volumeMounts[1].path: is not absolute; \
                     volumeMounts[3].path: '/x' is another volume's already"),
            ),
            (
                vec![("no", "/")],
                vec![],
                Err("[0].name: volume 'no' not found; volumeMounts[0].path: \
                     is the root, or lies in /dev, /proc, /sys or /.sandboxo"),
            ),
        ] {
            let asked: Vec<_> = asked
                .into_iter()
                .map(|(name, path)| MountAsked { name: name.into(), path: path.into() })
                .collect();
            let expected = expected.map_err(|why| format!("volumeMounts{why}"));
            let found = mounts(&asked, &there, find).map_err(|why| why.to_string());
            assert_eq!(found, expected, "{asked:?}");
        }
        let many = |count: usize| -> Vec<_> {
            let asked = |at| MountAsked { name: "a".into(), path: format!("/{at}") };
            (0..count).map(asked).collect()
        };
        assert_eq!(mounts(&many(16), &[], find).unwrap().len(), 16);
        for (count, there) in [(17, vec![]), (16, there())] {
            let refused = mounts(&many(count), &there, find).unwrap_err();
            assert_eq!(refused, InvalidMounts(vec![InvalidMount::TooMany]));
        }
    }
}
