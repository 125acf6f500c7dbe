//! Where a value comes from, and everything that is wrong with them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

/// The keys that the environment can set, and their place in the file.
const ENVIRONMENT: &[(&str, &[&str])] = &[
    ("SANDBOXO_STATE", &["state"]),
    ("SANDBOXO_HOST", &["host"]),
    ("SANDBOXO_PORT", &["port"]),
    ("SANDBOXO_DOMAIN", &["domain"]),
    ("SANDBOXO_REGION", &["region"]),
    ("SANDBOXO_TOKEN", &["token"]),
    ("SANDBOXO_RUNSC", &["zone", "runsc"]),
    ("SANDBOXO_AGENT", &["zone", "agent"]),
    ("SANDBOXO_LOG", &["log", "filter"]),
];

/// What the command line says to every command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// A JSON file of settings [env: `SANDBOXO_CONFIG`]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The folder that holds everything to be kept [env: `SANDBOXO_STATE`]
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) state: Option<String>,
    #[arg(skip)]
    pub(crate) settings: Settings,
}

/// What it says to those who read all settings; each is also a key of the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// The address to listen on [env: `SANDBOXO_HOST`]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// The port to listen on; 0 takes a free one [env: `SANDBOXO_PORT`]
    #[arg(long)]
    pub(crate) port: Option<String>,
    /// What sandboxes are named under [env: `SANDBOXO_DOMAIN`]
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Three lowercase letters, part of each new id [env: `SANDBOXO_REGION`]
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// What to log, such as `info` or `sandboxo_zone=debug,info` [env: `SANDBOXO_LOG`]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

impl Flags {
    fn given(&self) -> impl Iterator<Item = (&'static str, &'static [&'static str], &String)> {
        let Self { config: _, state, settings: Settings { host, port, domain, region, log } } =
            self;
        [
            ("--state", &["state"] as &'static [&'static str], state),
            ("--host", &["host"], host),
            ("--port", &["port"], port),
            ("--domain", &["domain"], domain),
            ("--region", &["region"], region),
            ("--log", &["log", "filter"], log),
        ]
        .into_iter()
        .filter_map(|(name, key, value)| Some((name, key, value.as_ref()?)))
    }
}

/// One thing that is wrong: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) place: String,
    pub(crate) what: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn one(place: &str, what: String) -> Self {
        Self(vec![Problem { place: place.to_owned(), what }])
    }

    pub(crate) fn add(&mut self, place: &str, what: impl Into<String>) {
        self.0.push(Problem { place: place.to_owned(), what: what.into() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration has problems:")?;
        self.0.iter().try_for_each(|Problem { place, what }| write!(f, "\n  {place}: {what}"))
    }
}

impl std::error::Error for Problems {}

/// A value and who gave it.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) value: Value,
    /// Set for a flag or a variable: its text may stand for a number, and its paths start in the
    /// working folder.
    pub(crate) by: Option<&'static str>,
}

/// A section of the file with what the environment and the flags put over it.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) values: BTreeMap<String, Given>,
    pub(crate) sections: BTreeMap<String, Tree>,
}

type ReadFile = dyn Fn(&Path) -> Result<String, String>;

pub(crate) struct Layers<'a> {
    /// Name and text.
    pub(crate) file: Option<(String, String)>,
    /// Where the file's own paths start.
    pub(crate) folder: PathBuf,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) flags: &'a Flags,
    /// Reads what `{"_file": …}` names.
    pub(crate) read_file: &'a ReadFile,
}

impl Layers<'_> {
    pub(crate) fn tree(&self) -> (Tree, Problems) {
        let mut problems = Problems::default();
        let mut tree = match &self.file {
            None => Tree::default(),
            Some((name, text)) => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(map)) => Tree::from_map(&map),
                Ok(_) => {
                    problems.add(name, "must be a JSON object");
                    Tree::default()
                }
                Err(error) => {
                    problems.add(name, format!("is not JSON: {error}"));
                    Tree::default()
                }
            },
        };
        for (name, key) in ENVIRONMENT {
            if let Some(text) = self.env.get(*name).filter(|text| !text.is_empty()) {
                tree.put(key, name, text);
            }
        }
        for (name, key, text) in self.flags.given() {
            tree.put(key, name, text);
        }
        (tree, problems)
    }
}

impl Tree {
    /// An object is a section, unless it says where its value is to be found.
    fn from_map(map: &Map<String, Value>) -> Self {
        let mut tree = Self::default();
        for (key, value) in map {
            let key = key.clone();
            if let Value::Object(map) = value
                && !is_reference(map)
            {
                tree.sections.insert(key, Self::from_map(map));
            } else {
                tree.values.insert(key, Given { value: value.clone(), by: None });
            }
        }
        tree
    }

    fn put(&mut self, key: &[&str], by: &'static str, text: &str) {
        match key {
            [] => {}
            [last] => {
                let value = Value::String(text.to_owned());
                self.values.insert((*last).to_owned(), Given { value, by: Some(by) });
            }
            [first, rest @ ..] => {
                self.sections.entry((*first).to_owned()).or_default().put(rest, by, text);
            }
        }
    }
}

fn is_reference(map: &Map<String, Value>) -> bool {
    map.contains_key("_env") || map.contains_key("_file")
}
