//! The sections of the file, each with its defaults and bounds.

use std::{
    fmt,
    net::{AddrParseError, IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
};

use ipnet::Ipv4Net;
use sandboxo_api_e2b::RateMode;
use sandboxo_model::{Issuer, TrustDomain};
use sandboxo_registry::Registry;
use sandboxo_zone_protocol::ZoneName;
use tracing_subscriber::{EnvFilter, filter::ParseError};

use super::reader::Reader;

/// Zone `local1`, which runs in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneSection {
    pub(crate) name: ZoneName,
    pub(crate) runsc: PathBuf,
    /// `None`: `sandboxo-agent` beside this program.
    pub(crate) agent: Option<PathBuf>,
    /// Who answers the sandboxes' DNS questions. Empty: the host's own resolvers.
    pub(crate) resolvers: Vec<Resolver>,
    /// Where sandboxes' own proxies may be beside the public internet.
    pub(crate) proxy_networks: Vec<Ipv4Net>,
    /// How long nobody uses a sandbox before it is frozen; 0: never.
    pub(crate) freeze_after_seconds: u64,
}

/// An address, with a port if it is not 53.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolver(pub(crate) SocketAddr);

impl FromStr for Resolver {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
        plain.or_else(|_no_bare_address| text.parse()).map(Self)
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            53 => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

/// The warm pool: sandboxes started ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) size: u32,
    /// Made and not started, for what is resumed.
    pub(crate) blanks: u32,
}

/// What the zone never goes beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) sandboxes: u32,
    /// Stays free on the host, whatever is asked for.
    pub(crate) memory_reserve_mib: u64,
    /// How many times the host's memory may be promised in sum.
    pub(crate) memory_overcommit: u64,
    /// Stays free in the state folder's file system.
    pub(crate) disk_reserve_mib: u64,
    /// Of each volume.
    pub(crate) volume_mib: u32,
}

/// What recipes may begin with that is not here yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Images {
    /// Registries that may be in the host's own network.
    pub(crate) registries: Vec<Registry>,
    /// Of one image. 0: none are pulled.
    pub(crate) max_mib: u64,
}

/// How often a team may ask for each thing. Zero: as often as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) mode: RateMode,
    pub(crate) list_per_second: u32,
    pub(crate) delete_per_second: u32,
}

/// By whose word sandboxes are who they say they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentitySection {
    /// `None`: this appliance, as clients reach it.
    pub(crate) issuer: Option<Issuer>,
    /// `None`: the domain.
    pub(crate) trust_domain: Option<TrustDomain>,
}

/// What is kept of sandboxes' logs and measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpoolSection {
    pub(crate) max_mib: u64,
    pub(crate) max_age_hours: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON elsewhere.
    Auto,
    Human,
    Json,
}

impl LogFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Human => "human",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

pub(crate) fn zone(top: &mut Reader<'_>) -> ZoneSection {
    let mut section = top.section("zone");
    let zone = ZoneSection {
        name: section
            .parsed("name", "a DNS label of at most 32 characters")
            .unwrap_or_else(default_zone),
        runsc: section.program("runsc").unwrap_or_else(|| PathBuf::from("runsc")),
        agent: section.path("agent"),
        resolvers: section
            .list("resolvers", "an IP address, perhaps with a port")
            .unwrap_or_default(),
        proxy_networks: section
            .list("proxy_networks", "an IPv4 network such as \"10.1.0.0/16\"")
            .unwrap_or_default(),
        freeze_after_seconds: section.number("freeze_after_seconds", 0..=86_400).unwrap_or(0),
    };
    section.finish();
    zone
}

pub(crate) fn pool(top: &mut Reader<'_>) -> Pool {
    let mut section = top.section("pool");
    let pool = Pool {
        size: section.number32("size", 0..=1000).unwrap_or(20),
        blanks: section.number32("blanks", 0..=1000).unwrap_or(4),
    };
    section.finish();
    pool
}

pub(crate) fn limits(top: &mut Reader<'_>) -> Limits {
    let mut section = top.section("limits");
    let limits = Limits {
        sandboxes: section.number32("sandboxes", 1..=100_000).unwrap_or(200),
        memory_reserve_mib: section.number("memory_reserve_mib", 0..=1_048_576).unwrap_or(512),
        memory_overcommit: section.number("memory_overcommit", 1..=100).unwrap_or(4),
        disk_reserve_mib: section.number("disk_reserve_mib", 0..=16_777_216).unwrap_or(1024),
        volume_mib: section.number32("volume_mib", 16..=16_777_216).unwrap_or(10_240),
    };
    section.finish();
    limits
}

pub(crate) fn images(top: &mut Reader<'_>) -> Images {
    let mut section = top.section("images");
    let images = Images {
        registries: section
            .list("registries", "a URL such as \"http://localhost:5000\"")
            .unwrap_or_default(),
        // The largest that are in wide use have half of it.
        max_mib: section.number("max_mib", 0..=16_777_216).unwrap_or(20_480),
    };
    section.finish();
    images
}

pub(crate) fn rates(top: &mut Reader<'_>) -> Rates {
    let mut section = top.section("rates");
    let mode = section.checked("mode", |text| match text {
        "off" => Ok(RateMode::Off),
        "shadow" => Ok(RateMode::Shadow),
        "enabled" => Ok(RateMode::Enabled),
        _ => Err("must be \"off\", \"shadow\" or \"enabled\"".to_owned()),
    });
    let rates = Rates {
        mode: mode.unwrap_or_default(),
        list_per_second: section.number32("list_per_second", 0..=100_000).unwrap_or(0),
        delete_per_second: section.number32("delete_per_second", 0..=100_000).unwrap_or(0),
    };
    section.finish();
    rates
}

pub(crate) fn identity(top: &mut Reader<'_>) -> IdentitySection {
    let mut section = top.section("identity");
    let identity = IdentitySection {
        issuer: section.parsed(
            "issuer",
            "an https:// or http:// URL without a query and without a slash at its end",
        ),
        trust_domain: section
            .parsed("trust_domain", "1 to 255 lowercase letters, digits, '.', '-' and '_'"),
    };
    section.finish();
    identity
}

pub(crate) fn spool(top: &mut Reader<'_>) -> SpoolSection {
    let mut section = top.section("spool");
    let spool = SpoolSection {
        max_mib: section.number("max_mib", 1..=1_048_576).unwrap_or(256),
        // At most ten years.
        max_age_hours: section.number("max_age_hours", 1..=87_600).unwrap_or(168),
    };
    section.finish();
    spool
}

pub(crate) fn log(top: &mut Reader<'_>) -> Log {
    let mut section = top.section("log");
    let log = Log {
        filter: section
            .checked("filter", |text| {
                // Its parser cuts other texts in the middle of a character.
                if !text.is_ascii() {
                    return Err("is not a log filter: it has to be ASCII".to_owned());
                }
                log_filter(text)
                    .map(|_filter| text.to_owned())
                    .map_err(|error| format!("is not a log filter: {error}"))
            })
            .unwrap_or_else(|| "info".to_owned()),
        format: section
            .parsed("format", "\"auto\", \"human\" or \"json\"")
            .unwrap_or(LogFormat::Auto),
    };
    section.finish();
    log
}

#[expect(clippy::expect_used, reason = "the literal is a zone name; a test reads it")]
fn default_zone() -> ZoneName {
    "local1".parse().expect("a DNS label")
}

/// Values of fields are compared as they are: a pattern of a hundred characters takes minutes.
pub(crate) fn log_filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().with_regex(false).parse(text)
}
