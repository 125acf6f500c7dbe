//! Volumes: folders of a zone that outlive sandboxes, and what is asked of the files in them.

use std::{fmt, str::FromStr};

use async_trait::async_trait;
use tokio::io::AsyncRead;

use crate::Timestamp;

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
