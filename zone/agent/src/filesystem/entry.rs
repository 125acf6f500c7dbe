//! What is known of one file or folder.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use nix::libc;
use sandboxo_agent_proto::{
    Timestamp,
    filesystem::{EntryInfo, FileType},
};

use super::xattr::metadata_of;
use crate::users::Accounts;

/// A link is told by what it leads to; owner, size and times are its own.
pub(crate) fn look(path: &Path, accounts: &Accounts) -> io::Result<EntryInfo> {
    let own = fs::symlink_metadata(path)?;
    let is_symlink = own.file_type().is_symlink();
    let (mode, target) = if is_symlink { follow(path) } else { (Some(own.mode()), None) };
    let kind = mode.map_or(FileType::Unspecified, kind);
    let metadata = match kind {
        FileType::File | FileType::Directory => metadata_of(path),
        FileType::Unspecified | FileType::Symlink => BTreeMap::new(),
    };
    Ok(EntryInfo {
        name: path
            .file_name()
            .map_or_else(|| "/".into(), |name| name.to_string_lossy().into_owned()),
        r#type: kind.into(),
        path: path.to_string_lossy().into_owned(),
        size: i64::try_from(own.size()).unwrap_or(i64::MAX),
        mode: mode.unwrap_or(0) & 0o777,
        permissions: permissions(own.mode()),
        owner: accounts.user_name(own.uid()),
        group: accounts.group_name(own.gid()),
        modified_time: Some(modified(&own)),
        symlink_target: target,
        metadata,
        // Set, it makes newer clients show every link as a link, where the version that we tell
        // promises the type of what it leads to.
        is_symlink: false,
    })
}

/// The mode and path of where a link ends; a broken one leads to itself.
fn follow(path: &Path) -> (Option<u32>, Option<String>) {
    let end = fs::canonicalize(path).and_then(|target| Ok((fs::metadata(&target)?, target)));
    match end {
        Ok((found, target)) => (Some(found.mode()), Some(target.to_string_lossy().into_owned())),
        Err(_broken) => (None, Some(path.to_string_lossy().into_owned())),
    }
}

fn modified(own: &Metadata) -> Timestamp {
    let nanos = i32::try_from(own.mtime_nsec()).unwrap_or(0);
    Timestamp { seconds: own.mtime(), nanos }
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFREG => FileType::File,
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        _ => FileType::Unspecified,
    }
}

/// As Go writes a file's mode: letters for what it is, then the nine bits.
fn permissions(mode: u32) -> String {
    let kind = match mode & libc::S_IFMT {
        libc::S_IFDIR => "d",
        libc::S_IFLNK => "L",
        libc::S_IFBLK => "D",
        libc::S_IFCHR => "Dc",
        libc::S_IFIFO => "p",
        libc::S_IFSOCK => "S",
        _ => "",
    };
    let mut text = kind.to_owned();
    // Go puts a character device's letter behind these.
    let letters = [(libc::S_ISUID, 'u'), (libc::S_ISGID, 'g'), (libc::S_ISVTX, 't')];
    for (bit, letter) in letters {
        if mode & bit != 0 {
            let at = text.find('c').unwrap_or(text.len());
            if letter == 't' { text.push(letter) } else { text.insert(at, letter) }
        }
    }
    if text.is_empty() {
        text.push('-');
    }
    for (at, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode & (1 << at) == 0 { '-' } else { letter });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn modes_read_as_go_writes_them() {
        for (mode, wanted) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o104_755, "urwxr-xr-x"),
            (0o042_755, "dgrwxr-xr-x"),
            (0o020_666, "Dcrw-rw-rw-"),
            (0o060_660, "Drw-rw----"),
            (0o010_600, "prw-------"),
            (0o140_755, "Srwxr-xr-x"),
        ] {
            assert_eq!(permissions(mode), wanted, "{mode:o}");
        }
    }

    #[test]
    fn links_are_told_by_what_they_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let real = fs::canonicalize(folder.path()).unwrap();
        fs::write(path("file"), "four").unwrap();
        fs::set_permissions(path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", path("link")).unwrap();
        symlink("link", path("far")).unwrap();
        symlink("nothing", path("broken")).unwrap();
        symlink(".", path("here")).unwrap();
        let accounts = Accounts::parse("root:x:0:0::/root:\n", "root:x:0:\n");
        let far = look(&path("far"), &accounts).unwrap();
        assert_eq!((far.r#type(), far.mode), (FileType::File, 0o640));
        assert_eq!(far.symlink_target, Some(real.join("file").to_string_lossy().into_owned()));
        assert_eq!((far.size, far.permissions.as_str()), (4, "Lrwxrwxrwx"));
        let broken = look(&path("broken"), &accounts).unwrap();
        assert_eq!((broken.r#type(), broken.mode), (FileType::Unspecified, 0));
        assert_eq!(broken.symlink_target, Some(path("broken").to_string_lossy().into_owned()));
        assert_eq!(look(&path("here"), &accounts).unwrap().r#type(), FileType::Directory);
        let file = look(&path("file"), &accounts).unwrap();
        assert_eq!(file.symlink_target, None);
        assert_eq!((file.name.as_str(), file.owner.as_str()), ("file", "root"));
        assert!(look(&path("nothing"), &accounts).is_err());
        assert_eq!(look(Path::new("/"), &accounts).unwrap().name, "/");
    }
}
