//! What the base template is made of. Everything that decides what comes out is in the hash.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::sources::{self, Host};
use crate::hex::hex;

const PACKAGES: &str = include_str!("../../../base/packages");
const SETUP: &str = include_str!("../../../base/setup");
const DPKG: &str = "etc/dpkg/dpkg.cfg.d/90sandbox";

/// Path in the root, and text.
const FILES: &[(&str, &str)] = &[
    (
        "etc/apt/apt.conf.d/90sandbox",
        include_str!("../../../base/files/etc/apt/apt.conf.d/90sandbox"),
    ),
    ("etc/bash.bashrc", include_str!("../../../base/files/etc/bash.bashrc")),
    (DPKG, include_str!("../../../base/files/etc/dpkg/dpkg.cfg.d/90sandbox")),
    ("etc/profile", include_str!("../../../base/files/etc/profile")),
    ("etc/skel/.bashrc", include_str!("../../../base/files/etc/skel/.bashrc")),
    ("etc/skel/.profile", include_str!("../../../base/files/etc/skel/.profile")),
];

pub(super) struct Recipe {
    host: Host,
}

impl Recipe {
    pub(super) fn of_this_host() -> Result<Self> {
        Ok(Self { host: sources::read()? })
    }

    pub(super) fn suite(&self) -> &str {
        &self.host.suite
    }

    pub(super) fn arguments() -> Vec<String> {
        let mut arguments = [
            // User namespaces are off on some hosts, and root is needed anyway.
            "--mode=root",
            "--variant=minbase",
            "--format=tar",
            "--verbose",
            "--skip=output/dev",
            // Downloads happen in the work folder, which another user may not read.
            "--aptopt=APT::Sandbox::User \"root\"",
            "--aptopt=APT::Install-Recommends \"false\"",
            "--aptopt=Acquire::Retries \"3\"",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.push(format!("--include={}", packages().collect::<Vec<_>>().join(",")));
        arguments.extend(dpkg_options().map(|option| format!("--dpkgopt={option}")));
        arguments
    }

    /// Sixteen hex digits.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let Host { suite, architecture, sources } = &self.host;
        let mut add = |text: &str| {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        };
        for text in [suite, architecture, sources, PACKAGES, SETUP] {
            add(text);
        }
        for argument in Self::arguments() {
            add(&argument);
        }
        for (path, text) in FILES {
            add(path);
            add(text);
        }
        hex(hash.finalize().get(..8).unwrap_or_default())
    }

    /// The hook and the list of sources, in the work folder.
    pub(super) fn write(&self, work: &Path) -> Result<(PathBuf, PathBuf)> {
        let put = |path: PathBuf, text: &str| -> Result<PathBuf> {
            let folder = path.parent().unwrap_or(work);
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        for (path, text) in FILES {
            put(work.join("files").join(path), text)?;
        }
        let setup = put(work.join("setup"), SETUP)?;
        fs::set_permissions(&setup, fs::Permissions::from_mode(0o755))?;
        let sources = put(work.join("host.sources"), &self.host.sources)?;
        Ok((setup, sources))
    }
}

fn packages() -> impl Iterator<Item = &'static str> {
    lines(PACKAGES)
}

fn dpkg_options() -> impl Iterator<Item = &'static str> {
    let text = FILES.iter().find(|(path, _)| *path == DPKG).map(|(_, text)| *text);
    lines(text.unwrap_or_default())
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// mmdebstrap's own words, which are worth showing; apt's and dpkg's are not.
pub(super) fn phase(line: &str) -> Option<&str> {
    let said = line.trim_end_matches('\r').strip_prefix("I: ")?;
    let quiet = ["chroot architecture", "finding", "automatically", "using", "success", "done"];
    let dots = said.trim_end_matches('.');
    (!quiet.iter().any(|word| dots.starts_with(word)) && !said.contains('/')).then_some(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(suite: &str, sources: &str) -> Recipe {
        Recipe {
            host: Host {
                suite: suite.into(),
                architecture: "amd64".into(),
                sources: sources.into(),
            },
        }
    }

    #[test]
    fn the_hash_changes_with_what_it_is_made_of() {
        let one = recipe("bookworm", "a").digest();
        assert_eq!(one.len(), 16);
        assert_eq!(one, recipe("bookworm", "a").digest());
        assert_ne!(one, recipe("trixie", "a").digest());
        assert_ne!(one, recipe("bookworm", "b").digest());
    }

    #[test]
    fn what_clients_count_on_is_included() {
        let included: Vec<_> = packages().collect();
        for package in ["curl", "git", "python3", "python-is-python3", "procps", "ncurses-bin"] {
            assert!(included.contains(&package), "{package}");
        }
        assert!(dpkg_options().any(|option| option == "path-exclude=/usr/share/man/*"));
    }

    #[test]
    fn login_files_start_no_process() {
        for (path, text) in
            FILES.iter().filter(|(path, _)| path.ends_with("profile") || path.ends_with("bashrc"))
        {
            assert!(!text.contains("$(") && !text.contains('`') && !text.contains('|'), "{path}");
        }
    }

    #[test]
    fn phases() {
        for (line, shown) in [
            ("I: running apt-get update...", Some("running apt-get update")),
            (
                "I: installing remaining packages inside the chroot...\r",
                Some("installing remaining packages inside the chroot"),
            ),
            ("I: using /tmp/x as tempdir", None),
            ("I: success in 44.9 seconds", None),
            ("I: running --customize-hook directly: /x/setup /y", None),
            ("Setting up git", None),
        ] {
            assert_eq!(phase(line), shown, "{line}");
        }
    }
}
