//! Volumes: folders of a zone that outlive sandboxes, and what is asked of the files in them.

use std::{fmt, str::FromStr};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::{Timestamp, VolumeId};

const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// Of a file in a volume, from the volume's own root. It names nothing outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumePath {
    names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAVolumePath {
    #[error("a path has no '..'")]
    Upwards,
    #[error("a path has no NUL")]
    Nul,
    #[error("a path has at most {MAX_PATH} bytes, and {MAX_NAME} between two slashes")]
    TooLong,
}

impl VolumePath {
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// From the root, without a slash before it.
    pub fn relative(&self) -> String {
        self.names.join("/")
    }

    /// Where it lies, and its name there. `None` of the root.
    pub fn split(&self) -> Option<(Self, &str)> {
        let (name, above) = self.names.split_last()?;
        Some((Self { names: above.to_vec() }, name))
    }
}

impl FromStr for VolumePath {
    type Err = NotAVolumePath;

    /// Empty parts and `.` say nothing; a missing slash in front is no other path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_PATH {
            return Err(NotAVolumePath::TooLong);
        }
        if text.contains('\0') {
            return Err(NotAVolumePath::Nul);
        }
        let mut names = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(NotAVolumePath::Upwards),
                name if name.len() > MAX_NAME => return Err(NotAVolumePath::TooLong),
                name => names.push(name.to_owned()),
            }
        }
        Ok(Self { names })
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.relative())
    }
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    pub volume: VolumeId,
    /// As whoever asked for it calls it; of no meaning to the zone.
    pub name: String,
    pub path: MountPath,
}

/// Where a volume appears in a sandbox: absolute, and written in one way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MountPath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAMountPath {
    #[error("is empty")]
    Empty,
    #[error("is not absolute")]
    Relative,
    #[error("has a '.' or '..' between two slashes, or a slash more than it needs")]
    Unclean,
    #[error("is the root, or lies in /dev, /proc, /sys or /.sandboxo")]
    Reserved,
    #[error("has more than {MAX_PATH} bytes, more than {MAX_NAME} between two slashes, or a NUL")]
    TooLong,
}

/// What is the sandbox's own business, and not a folder of an image.
const NO_PLACE: [&str; 4] = ["dev", "proc", "sys", ".sandboxo"];

impl MountPath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Not of itself.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl FromStr for MountPath {
    type Err = NotAMountPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(NotAMountPath::Empty);
        }
        let below = text.strip_prefix('/').ok_or(NotAMountPath::Relative)?;
        let mut names = below.split('/');
        if text.len() > MAX_PATH
            || text.contains('\0')
            || names.clone().any(|it| it.len() > MAX_NAME)
        {
            return Err(NotAMountPath::TooLong);
        }
        if below.is_empty() || names.clone().next().is_some_and(|top| NO_PLACE.contains(&top)) {
            return Err(NotAMountPath::Reserved);
        }
        if names.any(|name| matches!(name, "" | "." | "..")) {
            return Err(NotAMountPath::Unclean);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for MountPath {
    type Error = NotAMountPath;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MountPath> for String {
    fn from(path: MountPath) -> Self {
        path.0
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeEntry {
    /// From the volume's root, with a slash in front.
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    /// Of a symlink.
    pub target: Option<String>,
}

/// What is given to a file; the rest is as it was, or root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: Option<u32>,
}

pub type Content = Box<dyn AsyncRead + Send + Unpin>;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("the zone's disk is full")]
    DiskFull,
    /// Somebody reads or writes it.
    #[error("the volume is in use")]
    InUse,
    /// The one to be cloned.
    #[error("the volume is not there")]
    Gone,
    #[error("the zone is not available")]
    Unavailable,
    #[error("the zone failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    #[error("there is no such file or directory")]
    NotFound,
    #[error("it exists already")]
    Exists,
    #[error("a part of the path is no directory")]
    NotADirectory,
    #[error("it is a directory")]
    IsADirectory,
    #[error("the root of a volume stays")]
    Root,
    #[error("the directory has more than {0} entries")]
    TooMany(usize),
    #[error("directories are nested more than {0} deep")]
    TooDeep(usize),
    #[error("the volume is full")]
    Full,
    /// What was to be written did not arrive.
    #[error("the content ended early")]
    Cut(#[source] std::io::Error),
    #[error("use the volume's disk")]
    Io(#[source] std::io::Error),
}

/// The files of one volume. No symlink leads out of it.
#[async_trait]
pub trait VolumeFiles: Send + Sync {
    /// Of a symlink itself.
    async fn stat(&self, path: &VolumePath) -> Result<VolumeEntry, VolumeFileError>;

    /// What is below a directory, so many levels deep, by path.
    async fn list(
        &self,
        path: &VolumePath,
        depth: u32,
    ) -> Result<Vec<VolumeEntry>, VolumeFileError>;

    /// `force`: with those above, and one that is there already is a success.
    async fn make_dir(
        &self,
        path: &VolumePath,
        attributes: Attributes,
        force: bool,
    ) -> Result<VolumeEntry, VolumeFileError>;

    /// With its size.
    async fn read(&self, path: &VolumePath) -> Result<(u64, Content), VolumeFileError>;

    /// All of it or nothing. `force`: in place of a file that is there.
    async fn write(
        &self,
        path: &VolumePath,
        attributes: Attributes,
        force: bool,
        content: Content,
    ) -> Result<VolumeEntry, VolumeFileError>;

    async fn change(
        &self,
        path: &VolumePath,
        attributes: Attributes,
    ) -> Result<VolumeEntry, VolumeFileError>;

    /// With all that is below it.
    async fn remove(&self, path: &VolumePath) -> Result<(), VolumeFileError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths_are_written_in_one_way() {
        let long = format!("/{}", "n".repeat(256));
        for (text, expected) in [
            ("/data", None),
            ("/home/user/my data", None),
            ("/devices/.hidden", None),
            ("", Some(NotAMountPath::Empty)),
            ("data", Some(NotAMountPath::Relative)),
            ("/", Some(NotAMountPath::Reserved)),
            ("/dev", Some(NotAMountPath::Reserved)),
            ("/proc/1", Some(NotAMountPath::Reserved)),
            ("/.sandboxo/agent", Some(NotAMountPath::Reserved)),
            ("/data/", Some(NotAMountPath::Unclean)),
            ("//data", Some(NotAMountPath::Unclean)),
            ("/data/../proc", Some(NotAMountPath::Unclean)),
            ("/./data", Some(NotAMountPath::Unclean)),
            ("/a\0b", Some(NotAMountPath::TooLong)),
            (&long, Some(NotAMountPath::TooLong)),
        ] {
            assert_eq!(text.parse::<MountPath>().err(), expected, "{text:?}");
        }
    }

    #[test]
    fn paths_name_nothing_outside() {
        let long = "n".repeat(256);
        for (text, expected) in [
            ("/", Ok("/")),
            ("", Ok("/")),
            ("a", Ok("/a")),
            ("//a/./b/", Ok("/a/b")),
            ("/...", Ok("/...")),
            ("/a/../b", Err(NotAVolumePath::Upwards)),
            ("..", Err(NotAVolumePath::Upwards)),
            ("/a\0b", Err(NotAVolumePath::Nul)),
            (&long, Err(NotAVolumePath::TooLong)),
        ] {
            let parsed = text.parse::<VolumePath>().map(|path| path.to_string());
            assert_eq!(parsed, expected.map(str::to_owned), "{text:?}");
        }
        let path: VolumePath = "/a/b/c".parse().unwrap();
        let (above, name) = path.split().unwrap();
        assert_eq!((above.relative().as_str(), name), ("a/b", "c"));
        assert_eq!(VolumePath::default().split(), None);
    }
}
