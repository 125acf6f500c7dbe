//! What a field may hold. A surface maps a [`Field`] to its own name for it.

use std::{collections::BTreeMap, time::Duration};

use sandboxo_zone_protocol::{AGENT_PORT, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field:?} {rule}")]
pub struct Invalid {
    pub field: Field,
    /// Reads after the field's name: "must be between 1 and 64".
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Template,
    Timeout,
    Metadata,
    Env,
    Network,
    MaskRequestHost,
    HttpsPorts,
    Vcpus,
    MemoryMib,
    DiskMib,
    Pids,
    User,
    Workdir,
    Count,
    Value,
}

impl Invalid {
    pub(crate) fn new(field: Field, rule: impl Into<String>) -> Self {
        Self { field, rule: rule.into() }
    }
}

/// Long enough for whoever hosts it himself, short enough for every clock.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(30 * 24);

/// The agent gets the environment in one message of at most 128 KiB, as JSON.
const MAX_ENV_BYTES: usize = 64 * 1024;
const MAX_METADATA_BYTES: usize = 64 * 1024;
const MAX_ENTRIES: usize = 1024;
/// Copies of one sandbox that are asked for at once.
const MAX_COPIES: usize = 100;

/// For a timeout that is set later, where zero means now.
pub fn timeout(timeout: Duration) -> Result<(), Invalid> {
    if timeout > MAX_TIMEOUT {
        let rule = format!("must be at most {} seconds", MAX_TIMEOUT.as_secs());
        return Err(Invalid::new(Field::Timeout, rule));
    }
    Ok(())
}

pub fn first_timeout(asked: Duration) -> Result<(), Invalid> {
    if asked.is_zero() {
        return Err(Invalid::new(Field::Timeout, "must be greater than 0"));
    }
    timeout(asked)
}

pub fn copies(count: usize) -> Result<(), Invalid> {
    if (1..=MAX_COPIES).contains(&count) {
        Ok(())
    } else {
        Err(Invalid::new(Field::Count, format!("must be between 1 and {MAX_COPIES}")))
    }
}

pub(crate) fn metadata(metadata: &BTreeMap<String, String>) -> Result<(), Invalid> {
    size(metadata, Field::Metadata, MAX_METADATA_BYTES)
}

pub fn env(env: &BTreeMap<String, String>) -> Result<(), Invalid> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            let rule = format!("{name:?} can't be the name of a variable");
            return Err(Invalid::new(Field::Env, rule));
        }
        if value.contains('\0') {
            let rule = format!("{name:?} can't hold a NUL character");
            return Err(Invalid::new(Field::Env, rule));
        }
    }
    size(env, Field::Env, MAX_ENV_BYTES)
}

/// What can stand in a `Host` header: it is copied there.
pub(crate) fn mask_request_host(host: &str) -> Result<(), Invalid> {
    let fits = (1..=255).contains(&host.len()) && host.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(())
    } else {
        Err(Invalid::new(Field::MaskRequestHost, "must be a host name of at most 255 characters"))
    }
}

/// More than programs of one sandbox serve by themselves.
const MAX_HTTPS_PORTS: usize = 64;

pub(crate) fn https_ports(ports: &[u16]) -> Result<(), Invalid> {
    let wrong = |rule: String| Err(Invalid::new(Field::HttpsPorts, rule));
    if ports.len() > MAX_HTTPS_PORTS {
        wrong(format!("must have at most {MAX_HTTPS_PORTS} ports"))
    } else if ports.contains(&0) {
        wrong("has 0, which is no port: 1 to 65535 are".to_owned())
    } else if ports.contains(&AGENT_PORT) {
        wrong(format!("has {AGENT_PORT}, where the agent listens, which does not speak TLS"))
    } else {
        Ok(())
    }
}

fn size(map: &BTreeMap<String, String>, field: Field, max: usize) -> Result<(), Invalid> {
    if map.len() > MAX_ENTRIES {
        return Err(Invalid::new(field, format!("must have at most {MAX_ENTRIES} entries")));
    }
    if map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > max {
        return Err(Invalid::new(field, format!("must have at most {max} bytes")));
    }
    Ok(())
}

/// The far end of time where it would overflow.
pub fn after(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}
