//! Where the files of a COPY go, by Docker's rules.
//!
//! Clients send an archive of what matched, under its paths in their folder. A source that is a
//! folder gives its contents, one that is a file goes to the place or into it. Links are copied as
//! links wherever they stand: what they point to is not in the archive.

use std::collections::{BTreeMap, BTreeSet};

use glob::Pattern;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub kind: Kind,
    pub mode: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Folder,
    File,
    Link,
    /// The same file as another of the archive.
    Same(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// May have `*`, `?` and `[…]` in it.
    pub from: String,
    /// Absolute and clean; a slash at its end says that it is a folder.
    pub to: String,
    /// Of files and folders; links have none.
    pub mode: Option<u32>,
}

/// What is at the place already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct There {
    pub what: What,
    /// The deepest folder that is there, of the place and those above it.
    pub nearest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Nothing,
    Folder,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// In the archive. `None`: a folder that has to be made.
    pub source: Option<usize>,
    /// Absolute.
    pub path: String,
    pub kind: Kind,
    pub mode: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    #[error("{0:?} leads out of the folder that is copied")]
    Outside(String),
    #[error("{0:?} is the same file as {1:?}, which is not copied")]
    Unlinked(String, String),
    #[error("{0:?} is there, and is no folder")]
    NotAFolder(String),
    #[error("no file matches {0:?}")]
    Nothing(String),
}

const NEW_FOLDER: u32 = 0o755;

pub fn place(entries: &[Entry], rule: &Rule, there: &There) -> Result<Vec<Placed>, CopyError> {
    let source = Source::of(&rule.from)?;
    let folder = rule.to.trim_end_matches('/');
    // A pattern may match any number of files: what it does must not depend on how many.
    let into = rule.to.ends_with('/') || source.is_pattern || there.what == What::Folder;
    let mut found = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let parts = clean(&entry.path)?;
        let Some(rest) = source.rest(&parts) else { continue };
        let path = match (rest, &entry.kind) {
            ([], Kind::Folder) => None,
            ([], Kind::File | Kind::Link | Kind::Same(_)) if into => {
                Some(format!("{folder}/{}", parts.last().copied().unwrap_or_default()))
            }
            ([], Kind::File | Kind::Link | Kind::Same(_)) => Some(folder.to_owned()),
            (rest, _) => Some(format!("{folder}/{}", rest.join("/"))),
        };
        found.push((at, parts.join("/"), path));
    }
    if found.is_empty() {
        return Err(CopyError::Nothing(rule.from.clone()));
    }
    let single = found.iter().all(|(.., path)| path.as_deref() == Some(folder));
    if !single && there.what == What::Other {
        return Err(CopyError::NotAFolder(rule.to.clone()));
    }
    let places: BTreeMap<&str, &str> =
        found.iter().filter_map(|(_, from, to)| Some((from.as_str(), to.as_deref()?))).collect();

    let mut out = Out { made: BTreeSet::new(), nearest: &there.nearest, placed: Vec::new() };
    if !single {
        out.folders(folder, true);
    }
    for (at, _, path) in &found {
        let (Some(entry), Some(path)) = (entries.get(*at), path) else { continue };
        out.folders(path, false);
        let kind = match &entry.kind {
            Kind::Same(of) => {
                let unlinked = || CopyError::Unlinked(entry.path.clone(), of.clone());
                let of = places.get(clean(of)?.join("/").as_str()).ok_or_else(unlinked)?;
                Kind::Same((*of).to_owned())
            }
            other @ (Kind::Folder | Kind::File | Kind::Link) => other.clone(),
        };
        let mode = match kind {
            Kind::Link => 0o777,
            Kind::Folder | Kind::File | Kind::Same(_) => rule.mode.unwrap_or(entry.mode) & 0o7777,
        };
        if kind == Kind::Folder {
            out.made.insert(path.clone());
        }
        out.placed.push(Placed { source: Some(*at), path: path.clone(), kind, mode });
    }
    Ok(out.placed)
}

struct Source<'r> {
    parts: Vec<&'r str>,
    patterns: Vec<Option<Pattern>>,
    /// Parts in front of the first pattern.
    fixed: usize,
    is_pattern: bool,
    /// `**`: how deep a match is, is not known from the pattern.
    is_deep: bool,
}

impl<'r> Source<'r> {
    fn of(from: &'r str) -> Result<Self, CopyError> {
        let parts = clean(from)?;
        let is_pattern = |part: &str| part.contains(['*', '?', '[', '{']);
        let patterns =
            parts.iter().map(|part| Pattern::new(part).ok().filter(|_| is_pattern(part))).collect();
        let fixed = parts.iter().take_while(|part| !is_pattern(part)).count();
        let (is_pattern, is_deep) =
            (fixed < parts.len(), parts.iter().any(|part| part.contains("**")));
        Ok(Self { parts, patterns, fixed, is_pattern, is_deep })
    }

    /// What of the path is kept. `None`: it is above what is copied.
    fn rest<'p, 'e>(&self, path: &'p [&'e str]) -> Option<&'p [&'e str]> {
        let matches = |at: usize, part: &str| match self.patterns.get(at) {
            Some(Some(pattern)) => pattern.matches(part),
            Some(None) => self.parts.get(at) == Some(&part),
            None => true,
        };
        let whole = path.iter().enumerate().all(|(at, part)| matches(at, part));
        if whole && path.len() < self.parts.len() && !self.is_deep {
            return None;
        }
        // What the client has matched in its own way keeps its path from the first pattern on.
        let keep = if self.is_deep || !whole { self.fixed } else { self.parts.len() };
        Some(path.get(keep.min(path.len())..).unwrap_or_default())
    }
}

struct Out<'t> {
    made: BTreeSet<String>,
    nearest: &'t str,
    placed: Vec<Placed>,
}

impl Out<'_> {
    /// Those above the path that are not there yet; `itself`: it is a folder too.
    fn folders(&mut self, path: &str, itself: bool) {
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let ends: Vec<usize> = ends.chain(itself.then_some(path.len())).collect();
        for end in ends {
            let folder = path.get(..end).unwrap_or_default();
            let is_there = folder.is_empty()
                || self.nearest == folder
                || self.nearest.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
            if !is_there && self.made.insert(folder.to_owned()) {
                self.placed.push(Placed {
                    source: None,
                    path: folder.to_owned(),
                    kind: Kind::Folder,
                    mode: NEW_FOLDER,
                });
            }
        }
    }
}

fn clean(path: &str) -> Result<Vec<&str>, CopyError> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| CopyError::Outside(path.to_owned()))?;
            }
            part => parts.push(part),
        }
    }
    if path.starts_with('/') { Err(CopyError::Outside(path.to_owned())) } else { Ok(parts) }
}

#[cfg(test)]
mod tests;
