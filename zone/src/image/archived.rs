//! Archives that hold an image in layers, in place of a root file system.
//!
//! It is the operator's own archive, unpacked as any, in which something is found to unpack once
//! more: for a moment an image takes its room twice.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    path::Path,
};

use sandboxo_registry::{ArchiveError, Archived};
use sandboxo_zone_protocol::ImportError;

use super::{Images, Unfinished, root::Root, storing};

/// No list of what an image is made of is longer.
const LONGEST_DOCUMENT: u64 = 4 << 20;

/// `None`: it is a root file system.
pub(super) fn look(root: &Root) -> Result<Option<Archived>, ImportError> {
    let names = root.known_folder(Path::new("")).and_then(|folder| folder.names());
    let names = names.map_err(storing)?;
    let names: Vec<&Path> = names.iter().map(|name| Path::new::<OsStr>(name)).collect();
    let read = |path: &Path| {
        let mut document = Vec::new();
        root.file(path)?.take(LONGEST_DOCUMENT + 1).read_to_end(&mut document)?;
        if document.len() as u64 > LONGEST_DOCUMENT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
        }
        Ok(document)
    };
    sandboxo_registry::archived(&names, read).map_err(|error| match error {
        ArchiveError::Unusable(why) => ImportError::Rejected(why),
        ArchiveError::Read(path, error) => {
            ImportError::Rejected(format!("{}: {error}", path.display()))
        }
    })
}

impl Images {
    /// What was unpacked becomes the archive that layers are taken from. Gives the root that they
    /// make, and the sum of its files' sizes.
    pub(super) fn unpack_layers(
        &self,
        archived: &mut Archived,
        unfinished: &Unfinished,
    ) -> Result<(Root, u64), ImportError> {
        let place = unfinished.0.join("archive");
        fs::rename(unfinished.rootfs(), &place).map_err(storing)?;
        fs::create_dir(unfinished.rootfs()).map_err(storing)?;
        let archive = Root::open(&place).map_err(storing)?;
        let mut written = 0;
        for (at, layer) in archived.layers.iter().enumerate() {
            let mut file = archive.file(layer).map_err(|error| {
                ImportError::Rejected(format!("its layer {}: {error}", layer.display()))
            })?;
            written = self.apply(&mut file, at, unfinished, u64::MAX, written)?;
        }
        drop(archive);
        fs::remove_dir_all(place).map_err(storing)?;
        let root = Root::open(&unfinished.rootfs()).map_err(storing)?;
        if let Some(user) = &mut archived.defaults.user {
            let mut accounts = String::new();
            let read = root.file(Path::new("etc/passwd"));
            // Without any it stays a number, which is told to whoever imports it.
            if read
                .and_then(|file| file.take(LONGEST_DOCUMENT).read_to_string(&mut accounts))
                .is_ok()
                && let Some(name) = name_of(user, &accounts)
            {
                name.clone_into(user);
            }
        }
        Ok((root, written))
    }
}

/// Of a number, in the words of `passwd`.
fn name_of<'a>(user: &str, accounts: &'a str) -> Option<&'a str> {
    let wanted: u32 = user.parse().ok()?;
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, uid) = (fields.next()?, fields.next()?, fields.next()?);
        (uid.parse() == Ok(wanted)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_their_numbers() {
        let accounts = "root:x:0:0::/root:/bin/sh\nbroken\napp:x:1000:1000::/srv:\n";
        for (user, name) in [
            ("0", Some("root")),
            ("1000", Some("app")),
            ("1001", None),
            ("app", None),
            ("-1", None),
        ] {
            assert_eq!(name_of(user, accounts), name, "{user}");
        }
    }
}
