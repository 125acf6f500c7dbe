//! `POST /files/compose`: several files become one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{refusal::Refusal, target, upload::Written};
use crate::{paths, users::User};

#[derive(Debug, Deserialize)]
pub(crate) struct Composition {
    #[serde(default)]
    source_paths: Vec<String>,
    #[serde(default)]
    destination: String,
    #[serde(default)]
    pub(crate) username: Option<String>,
}

/// Blocks. The sources are removed once all of them are in the destination.
pub(crate) fn compose(
    wish: &Composition,
    user: &User,
    workdir: Option<&str>,
) -> Result<Written, Refusal> {
    let resolve = |path: &str| paths::resolve(path, &user.home, workdir);
    if wish.source_paths.is_empty() {
        return Err(Refusal::bad("source_paths must not be empty"));
    }
    if wish.destination.is_empty() {
        return Err(Refusal::bad("destination is required"));
    }
    let destination = resolve(&wish.destination);
    let sources: Vec<PathBuf> =
        wish.source_paths.iter().map(|path| PathBuf::from(resolve(path))).collect();
    for source in &sources {
        check(source, Path::new(&destination))?;
    }
    let target = Path::new(&destination);
    let mut file = target::open(target, user, &BTreeMap::new())?;
    for source in &sources {
        let mut from =
            File::open(source).map_err(|error| Refusal::io(&error, "opening", source))?;
        io::copy(&mut from, &mut file).map_err(|error| Refusal::io(&error, "writing", target))?;
    }
    for source in &sources {
        match fs::remove_file(source) {
            Ok(()) => {}
            // Named twice.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Refusal::io(&error, "removing", source)),
        }
    }
    Ok(Written::file(&destination, BTreeMap::new()))
}

fn check(source: &Path, destination: &Path) -> Result<(), Refusal> {
    let found = fs::metadata(source).map_err(|error| Refusal::io(&error, "opening", source))?;
    if found.is_dir() {
        return Err(Refusal::folder(source));
    }
    if !found.is_file() {
        return Err(Refusal::bad(format!("path '{}' is not a regular file", source.display())));
    }
    let same = fs::canonicalize(source).ok() == fs::canonicalize(destination).ok();
    if same {
        return Err(Refusal::bad("the destination is one of the sources"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn sources_become_one_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_string_lossy().into_owned();
        let user = User { name: "root".into(), uid: 0, gid: 0, home, groups: vec![0] };
        let run = |sources: &[&str], destination: &str| {
            let wish = Composition {
                source_paths: sources.iter().map(|path| (*path).to_owned()).collect(),
                destination: destination.to_owned(),
                username: None,
            };
            compose(&wish, &user, None)
        };
        for (name, text) in [("a", "1"), ("b", "2"), ("c", "3")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        for (sources, destination, status) in [
            (&[][..], "x", StatusCode::BAD_REQUEST),
            (&["a"], "", StatusCode::BAD_REQUEST),
            (&["a", "missing"], "x", StatusCode::NOT_FOUND),
            (&["a", "."], "x", StatusCode::BAD_REQUEST),
            (&["a", "b"], "a", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(run(sources, destination).unwrap_err().status, status);
        }
        let written = run(&["b", "a", "c"], "deep/x").unwrap();
        assert_eq!((written.name.as_str(), written.r#type), ("x", "file"));
        assert_eq!(fs::read_to_string(folder.path().join("deep/x")).unwrap(), "213");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
