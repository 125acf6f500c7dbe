//! Where this host's own packages come from: its distribution's archive, and nobody else's.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Context as _, Result, anyhow, bail};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Such as `bookworm`.
    pub(super) suite: String,
    pub(super) architecture: String,
    /// In the deb822 form.
    pub(super) sources: String,
}

pub(super) fn read() -> Result<Host> {
    let release = std::fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let suite = codename(&release)?;
    let output = Command::new("dpkg")
        .arg("--print-architecture")
        .output()
        .context("ask dpkg for the architecture")?;
    let architecture = String::from_utf8(output.stdout)?.trim().to_owned();
    let mut stanzas = Vec::new();
    for path in files(Path::new("/etc/apt"))? {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if path.extension().is_some_and(|extension| extension == "sources") {
            stanzas.extend(deb822(&text));
        } else {
            stanzas.extend(one_line(&text));
        }
    }
    let kept: Vec<String> = stanzas.iter().filter_map(|stanza| own(stanza, &suite)).collect();
    if kept.is_empty() {
        bail!(
            "apt's sources on this host name no archive with the suite {suite} and the component \
             main; add one to /etc/apt/sources.list.d"
        );
    }
    Ok(Host { suite, architecture, sources: kept.join("\n") })
}

fn files(apt: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = vec![apt.join("sources.list")];
    let parts = apt.join("sources.list.d");
    if parts.is_dir() {
        for entry in std::fs::read_dir(&parts).context("read apt's sources")? {
            files.push(entry?.path());
        }
    }
    files.retain(|path| {
        path.is_file() && path.extension().is_some_and(|end| end == "list" || end == "sources")
    });
    files.sort();
    Ok(files)
}

fn codename(os_release: &str) -> Result<String> {
    let field = |name: &str| {
        os_release.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key == name).then(|| value.trim_matches('"').to_owned())
        })
    };
    match field("ID").as_deref() {
        Some("debian" | "ubuntu") => {}
        other => bail!(
            "the base template is made of Debian's or Ubuntu's packages, and this is {}; import a \
             root file system instead: `sandboxo template import FILE.tar --name base`",
            other.unwrap_or("no system that says what it is")
        ),
    }
    field("VERSION_CODENAME").ok_or_else(|| anyhow!("/etc/os-release has no VERSION_CODENAME"))
}

type Stanza = BTreeMap<String, String>;

/// Keys in lowercase; continuation lines are joined by line breaks.
fn deb822(text: &str) -> Vec<Stanza> {
    let mut stanzas = vec![Stanza::new()];
    let mut last: Option<String> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            stanzas.push(Stanza::new());
            last = None;
        } else if let Some(stanza) = stanzas.last_mut() {
            if line.starts_with([' ', '\t']) {
                if let Some(value) = last.as_ref().and_then(|key| stanza.get_mut(key)) {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            } else if let Some((key, value)) = line.split_once(':') {
                let key = key.trim().to_ascii_lowercase();
                stanza.insert(key.clone(), value.trim().to_owned());
                last = Some(key);
            }
        }
    }
    stanzas.retain(|stanza| !stanza.is_empty());
    stanzas
}

/// `deb [options] uri suite component…`
fn one_line(text: &str) -> Vec<Stanza> {
    let mut stanzas = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb ") else { continue };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else { continue };
        let mut stanza = Stanza::from([
            ("types".to_owned(), "deb".to_owned()),
            ("uris".to_owned(), uri.to_owned()),
            ("suites".to_owned(), suite.to_owned()),
            ("components".to_owned(), words.collect::<Vec<_>>().join(" ")),
        ]);
        for option in options.split_whitespace() {
            if let Some((key, value)) = option.split_once('=') {
                let key = match key {
                    "signed-by" => "signed-by",
                    "trusted" => "trusted",
                    _ => continue,
                };
                stanza.insert(key.to_owned(), value.replace(',', " "));
            }
        }
        stanzas.push(stanza);
    }
    stanzas
}

/// The stanza, narrowed to the distribution's own suites and free components; `None` for anybody
/// else's. What the distribution signs is told by the name of the keyring.
fn own(stanza: &Stanza, suite: &str) -> Option<String> {
    let get = |key: &str| stanza.get(key).map(String::as_str);
    let words = |key: &str| get(key).unwrap_or_default().split_whitespace();
    if get("enabled").is_some_and(|enabled| matches!(enabled, "no" | "false" | "0")) {
        return None;
    }
    if !words("types").any(|word| word == "deb") || !words("components").any(|word| word == "main")
    {
        return None;
    }
    let ours = |keyring: &str| {
        let name = keyring.rsplit('/').next().unwrap_or_default();
        name.starts_with("debian-archive-") || name.starts_with("ubuntu-archive-")
    };
    if !words("signed-by").all(ours) {
        return None;
    }
    let suites: Vec<&str> = words("suites")
        .filter(|word| {
            let rest = word.strip_prefix(suite);
            matches!(rest, Some("" | "-updates" | "-security" | "/updates"))
        })
        .collect();
    if suites.is_empty() {
        return None;
    }
    let components: Vec<&str> =
        words("components").filter(|word| matches!(*word, "main" | "universe")).collect();
    let mut text = format!(
        "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\n",
        words("uris").collect::<Vec<_>>().join(" "),
        suites.join(" "),
        components.join(" "),
    );
    for (key, name) in [("signed-by", "Signed-By"), ("trusted", "Trusted")] {
        if let Some(value) = get(key) {
            text.extend([name, ": ", value, "\n"]);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(stanzas: &[Stanza]) -> Vec<String> {
        stanzas.iter().filter_map(|stanza| own(stanza, "bookworm")).collect()
    }

    #[test]
    fn deb822_is_read_and_narrowed() {
        let text = "\
# a comment
Types: deb deb-src
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://other.test
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://mirror.test/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://third.test
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 abc
";
        assert_eq!(
            kept(&deb822(text)),
            [
                "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
            ]
        );
    }

    #[test]
    fn one_line_is_read_and_narrowed() {
        let text = "\
deb http://mirror.test/debian bookworm main contrib # ours
deb-src http://mirror.test/debian bookworm main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] http://mirror.test/s bookworm-security main
deb [signed-by=/etc/apt/keyrings/docker.asc] http://d.test bookworm main
deb http://d.test bookworm stable
# deb http://mirror.test/debian bookworm main
";
        assert_eq!(
            kept(&one_line(text)),
            [
                "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n",
                "Types: deb\nURIs: http://mirror.test/s\nSuites: bookworm-security\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
            ]
        );
    }

    #[test]
    fn other_systems_are_told_what_to_do() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=trixie\n").unwrap(), "trixie");
        assert_eq!(codename("ID=\"ubuntu\"\nVERSION_CODENAME=\"noble\"\n").unwrap(), "noble");
        let refused = codename("ID=fedora\n").unwrap_err().to_string();
        assert!(
            refused.contains("this is fedora") && refused.contains("template import"),
            "{refused}"
        );
    }
}
