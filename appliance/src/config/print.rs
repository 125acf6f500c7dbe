//! The whole configuration as the file would have it, for `sandboxo config print`. Secrets are
//! told by whether they are there.

use sandboxo_api_e2b::RateMode;
use serde_json::{Value, json};

use super::{Config, IdentitySection, Images, Limits, Log, Pool, Rates, SpoolSection, ZoneSection};

const HIDDEN: &str = "(hidden)";

pub(crate) fn print(config: &Config) -> Value {
    let Config {
        state,
        host,
        port,
        domain,
        region,
        token,
        zone: ZoneSection { name, runsc, agent, resolvers, proxy_networks, freeze_after_seconds },
        pool: Pool { size, blanks },
        limits:
            Limits { sandboxes, memory_reserve_mib, memory_overcommit, disk_reserve_mib, volume_mib },
        images: Images { registries, max_mib: image_max_mib },
        rates: Rates { mode, list_per_second, delete_per_second },
        identity: IdentitySection { issuer, trust_domain },
        spool: SpoolSection { max_mib, max_age_hours },
        log: Log { filter, format },
    } = config;
    json!({
        "state": state,
        "host": host,
        "port": port,
        "domain": domain,
        "region": region,
        "token": token.as_ref().map(|_secret| HIDDEN),
        "zone": {
            "name": name,
            "runsc": runsc,
            "agent": agent,
            "resolvers": resolvers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "proxy_networks": proxy_networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "freeze_after_seconds": freeze_after_seconds,
        },
        "pool": { "size": size, "blanks": blanks },
        "limits": {
            "sandboxes": sandboxes,
            "memory_reserve_mib": memory_reserve_mib,
            "memory_overcommit": memory_overcommit,
            "disk_reserve_mib": disk_reserve_mib,
            "volume_mib": volume_mib,
        },
        "images": {
            "registries": registries.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "max_mib": image_max_mib,
        },
        "rates": {
            "mode": match mode {
                RateMode::Off => "off",
                RateMode::Shadow => "shadow",
                RateMode::Enabled => "enabled",
            },
            "list_per_second": list_per_second,
            "delete_per_second": delete_per_second,
        },
        "identity": {
            "issuer": issuer.as_ref().map(ToString::to_string),
            "trust_domain": trust_domain.as_ref().map(ToString::to_string),
        },
        "spool": { "max_mib": max_mib, "max_age_hours": max_age_hours },
        "log": { "filter": filter, "format": format.name() },
    })
}
