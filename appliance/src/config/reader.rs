//! Takes typed values out of a tree and notes what does not fit, so that one run names every
//! problem. What nobody took is an unknown key.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
};

use sandboxo_zone_protocol::Secret;
use serde_json::{Map, Value};

use super::layers::{Given, Layers, Problems, Tree};

pub(crate) struct Reader<'a> {
    tree: Tree,
    /// Empty at the top, else `zone.`.
    prefix: String,
    known: Vec<&'static str>,
    layers: &'a Layers<'a>,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    pub(crate) fn top(tree: Tree, layers: &'a Layers<'a>, problems: &'a mut Problems) -> Self {
        Self { tree, prefix: String::new(), known: Vec::new(), layers, problems }
    }

    /// A section that is not there reads as an empty one.
    pub(crate) fn section(&mut self, key: &'static str) -> Reader<'_> {
        self.known.push(key);
        let tree = self.tree.sections.remove(key).unwrap_or_default();
        if self.tree.values.remove(key).is_some_and(|given| !given.value.is_null()) {
            let place = self.place(key);
            self.problems.add(&place, "must be an object");
        }
        Reader {
            tree,
            prefix: format!("{}{key}.", self.prefix),
            known: Vec::new(),
            layers: self.layers,
            problems: self.problems,
        }
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        let (place, given) = self.take(key)?;
        match given.value.as_str() {
            Some(text) => Some(text.to_owned()),
            None => self.refuse(&place, "must be a text"),
        }
    }

    pub(crate) fn checked<T>(
        &mut self,
        key: &'static str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let place = self.shown(key);
        let text = self.text(key)?;
        match check(&text) {
            Ok(value) => Some(value),
            Err(what) => self.refuse(&place, what),
        }
    }

    pub(crate) fn parsed<T: FromStr>(&mut self, key: &'static str, kind: &str) -> Option<T> {
        self.checked(key, |text| {
            text.parse().map_err(|_unreadable| format!("must be {kind}, not {text:?}"))
        })
    }

    pub(crate) fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (place, given) = self.take(key)?;
        // A flag and a variable have only texts to say it with.
        let text = given.value.as_str().filter(|_| given.by.is_some());
        let number = text.map_or_else(|| given.value.as_u64(), |text| text.trim().parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => self.refuse(
                &place,
                format!("must be a whole number from {} to {}", range.start(), range.end()),
            ),
        }
    }

    pub(crate) fn number32(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.number(key, wide).and_then(|number| u32::try_from(number).ok())
    }

    /// Relative paths of the file start in its folder, those of flags and variables in the
    /// working folder.
    pub(crate) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let (place, given) = self.take(key)?;
        match given.value.as_str().filter(|text| !text.is_empty()) {
            Some(text) if given.by.is_some() => Some(PathBuf::from(text)),
            Some(text) => Some(self.layers.folder.join(text)),
            None => self.refuse(&place, "must be a path"),
        }
    }

    /// A name that is looked up on `PATH`, or a path.
    pub(crate) fn program(&mut self, key: &'static str) -> Option<PathBuf> {
        let (place, given) = self.take(key)?;
        match given.value.as_str().filter(|text| !text.is_empty()) {
            Some(text) if text.contains('/') && given.by.is_none() => {
                Some(self.layers.folder.join(text))
            }
            Some(text) => Some(PathBuf::from(text)),
            None => self.refuse(&place, "must be a program's name or path"),
        }
    }

    pub(crate) fn list<T: FromStr>(&mut self, key: &'static str, kind: &str) -> Option<Vec<T>> {
        let (place, given) = self.take(key)?;
        let Value::Array(items) = given.value else {
            return self.refuse(&place, "must be a list");
        };
        let mut out = Vec::new();
        for (at, item) in items.iter().enumerate() {
            match item.as_str().map(str::parse) {
                Some(Ok(value)) => out.push(value),
                _ => self.problems.add(&format!("{place}[{at}]"), format!("must be {kind}")),
            }
        }
        Some(out)
    }

    /// The text itself, `{"_env": "NAME"}` or `{"_file": "path"}`.
    pub(crate) fn secret(&mut self, key: &'static str) -> Option<Secret> {
        let (place, given) = self.take(key)?;
        let text = match (given.value.as_str(), given.value.as_object()) {
            (Some(text), _) => Ok(text.to_owned()),
            (_, Some(map)) => self.referred(map),
            _ => Err("must be a text, {\"_env\": …} or {\"_file\": …}".to_owned()),
        };
        match text {
            Ok(text) if text.is_empty() => self.refuse(&place, "is empty"),
            Ok(text) if text.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                self.refuse(&place, "has a space or a line break in it")
            }
            Ok(text) => Some(Secret::new(text)),
            Err(what) => self.refuse(&place, what),
        }
    }

    fn referred(&self, map: &Map<String, Value>) -> Result<String, String> {
        let text = |key| map.get(key).and_then(Value::as_str).filter(|_| map.len() == 1);
        if let Some(name) = text("_env") {
            let value = self.layers.env.get(name).cloned();
            value.ok_or_else(|| format!("the environment has no {name}"))
        } else if let Some(file) = text("_file") {
            let path = self.layers.folder.join(Path::new(file));
            (self.layers.read_file)(&path)
                .map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
                .map_err(|error| format!("{} can't be read: {error}", path.display()))
        } else {
            Err("must have one key, \"_env\" or \"_file\", with a text".to_owned())
        }
    }

    /// What is left was not asked for.
    pub(crate) fn finish(self) {
        let left = self.tree.values.keys().chain(self.tree.sections.keys());
        for key in left {
            let what = match nearest(key, &self.known) {
                Some(near) => format!("is not a setting; did you mean {near}?"),
                None => format!("is not a setting; there are {}", self.known.join(", ")),
            };
            self.problems.add(&format!("{}{key}", self.prefix), what);
        }
    }

    /// `null` is as good as absent.
    fn take(&mut self, key: &'static str) -> Option<(String, Given)> {
        self.known.push(key);
        let place = self.shown(key);
        if self.tree.sections.remove(key).is_some() {
            self.problems.add(&place, "must not be an object");
        }
        let given = self.tree.values.remove(key).filter(|given| !given.value.is_null())?;
        Some((place, given))
    }

    /// The key as the file has it, or the flag or variable that set it.
    fn shown(&self, key: &str) -> String {
        self.tree
            .values
            .get(key)
            .and_then(|given| given.by)
            .map_or_else(|| self.place(key), str::to_owned)
    }

    fn place(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn refuse<T>(&mut self, place: &str, what: impl Into<String>) -> Option<T> {
        self.problems.add(place, what);
        None
    }
}

/// The known key that is at most two edits away.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|candidate| (edits(key, candidate), *candidate))
        .filter(|(edits, _)| *edits <= 2)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, dropped, changed or swapped with their neighbor to make one
/// text of the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    let at = |rows: &[Vec<usize>], i: usize, j: usize| {
        rows.get(i).and_then(|row| row.get(j)).copied().unwrap_or(usize::MAX / 2)
    };
    for i in 1..=a.len() {
        rows.push(vec![i]);
        for j in 1..=b.len() {
            let changed = usize::from(a.get(i - 1) != b.get(j - 1));
            let mut least = (at(&rows, i - 1, j - 1) + changed)
                .min(at(&rows, i - 1, j) + 1)
                .min(at(&rows, i, j - 1) + 1);
            if i > 1 && j > 1 && a.get(i - 1) == b.get(j - 2) && a.get(i - 2) == b.get(j - 1) {
                least = least.min(at(&rows, i - 2, j - 2) + 1);
            }
            if let Some(row) = rows.last_mut() {
                row.push(least);
            }
        }
    }
    at(&rows, a.len(), b.len())
}
