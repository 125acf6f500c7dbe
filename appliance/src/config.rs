//! What the appliance is told: a JSON file, then the environment, then flags; the later one wins.
//!
//! Reading is a function of values: the texts come in, and either the whole configuration or the
//! list of everything that is wrong comes out. Only this module reads the environment.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod layers;
mod print;
mod reader;
mod sections;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::{Region, Secret};

pub(crate) use layers::{Flags, Problems, Settings};
pub(crate) use print::print;
pub(crate) use sections::{
    IdentitySection, Images, Limits, Log, LogFormat, Pool, Rates, SpoolSection, ZoneSection,
    log_filter,
};

use layers::Layers;
use reader::Reader;

/// Where the state lies when nothing says otherwise.
const DEFAULT_STATE: &str = "/var/lib/sandboxo";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) state: PathBuf,
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    /// What sandboxes are named under, such as `8080-sbx-….<domain>`.
    pub(crate) domain: Option<String>,
    pub(crate) region: Region,
    /// Of the admin surface. `None`: made at the first start and kept in the state folder.
    pub(crate) token: Option<Secret>,
    pub(crate) zone: ZoneSection,
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
    pub(crate) images: Images,
    pub(crate) rates: Rates,
    pub(crate) identity: IdentitySection,
    pub(crate) spool: SpoolSection,
    pub(crate) log: Log,
}

impl Config {
    pub(crate) fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// Reads the file that `--config` or `SANDBOXO_CONFIG` names, the environment and the flags.
    pub(crate) fn load(flags: &Flags) -> Result<Self, Problems> {
        let env = environment();
        let path = flags.config.clone().or_else(|| env.get("SANDBOXO_CONFIG").map(PathBuf::from));
        let (file, folder) = match &path {
            None => (None, PathBuf::new()),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Problems::one(&path.display().to_string(), format!("can't be read: {error}"))
                })?;
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                (Some((path.display().to_string(), text)), folder)
            }
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        Self::parse(&Layers { file, folder, env: &env, flags, read_file: &read })
    }

    pub(crate) fn parse(layers: &Layers<'_>) -> Result<Self, Problems> {
        let (tree, mut problems) = layers.tree();
        let mut top = Reader::top(tree, layers, &mut problems);
        let state = top.path("state").unwrap_or_else(|| PathBuf::from(DEFAULT_STATE));
        let host =
            top.parsed("host", "an IP address").unwrap_or_else(|| IpAddr::from([127, 0, 0, 1]));
        let port = top.number("port", 0..=65535).unwrap_or(8000);
        let domain = top.checked("domain", domain);
        let region = top.parsed("region", "three lowercase letters");
        let token = top.secret("token");
        let zone = sections::zone(&mut top);
        let pool = sections::pool(&mut top);
        let limits = sections::limits(&mut top);
        let images = sections::images(&mut top);
        let rates = sections::rates(&mut top);
        let identity = sections::identity(&mut top);
        let spool = sections::spool(&mut top);
        let log = sections::log(&mut top);
        top.finish();
        if problems.is_empty() {
            Ok(Self {
                state,
                host,
                port: u16::try_from(port).unwrap_or_default(),
                domain,
                region: region.unwrap_or_else(default_region),
                token,
                zone,
                pool,
                limits,
                images,
                rates,
                identity,
                spool,
                log,
            })
        } else {
            Err(problems)
        }
    }
}

#[expect(clippy::expect_used, reason = "the literal is a region; a test reads it")]
fn default_region() -> Region {
    "loc".parse().expect("three lowercase letters")
}

/// A host name, perhaps with a port: clients accept `sandboxo.localhost:8443`.
fn domain(text: &str) -> Result<String, String> {
    let (name, port) = match text.split_once(':') {
        None => (text, None),
        Some((name, port)) => (name, Some(port)),
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 200 || !name.split('.').all(label) {
        return Err("must be a host name in lowercase".to_owned());
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err("has a port that is not a number from 1 to 65535".to_owned());
    }
    Ok(text.to_owned())
}

/// The environment, without what is not text.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// What the command line of a client reads from the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientEnvironment {
    pub(crate) api_url: Option<String>,
    pub(crate) sandbox_url: Option<String>,
    pub(crate) api_key: Option<Secret>,
    pub(crate) token: Option<Secret>,
    pub(crate) term: Option<String>,
}

impl ClientEnvironment {
    pub(crate) fn read() -> Self {
        Self::of(&environment())
    }

    fn of(env: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            api_url: get("SANDBOXO_URL").or_else(|| get("E2B_API_URL")),
            sandbox_url: get("SANDBOXO_URL").or_else(|| get("E2B_SANDBOX_URL")),
            api_key: get("E2B_API_KEY").map(Secret::new),
            token: get("SANDBOXO_TOKEN").map(Secret::new),
            term: get("TERM"),
        }
    }
}

/// The folders of `PATH`.
pub(crate) fn program_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

/// The socket on which systemd waits to hear that the service is ready.
pub(crate) fn notify_socket() -> Option<std::ffi::OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())
}

/// The file in which a test says at which moment this process has to die.
#[cfg(feature = "crashpoints")]
pub(crate) fn crash_order() -> Option<std::path::PathBuf> {
    std::env::var_os("SANDBOXO_CRASH_ORDER").map(Into::into)
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
