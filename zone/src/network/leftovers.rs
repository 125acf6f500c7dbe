//! What exists of an instance, and its end.

use std::{collections::BTreeSet, io, net::Ipv4Addr};

use super::{
    NetworkError, host, making, namespace,
    netlink::Netlink,
    nft::{self, NftError},
    plan::{self, Plan},
    rules, zone_side,
};

/// The numbers of sandboxes' networks, by the kind of what exists of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    pub(crate) namespaces: BTreeSet<u32>,
    pub(crate) links: BTreeSet<u32>,
    pub(crate) chains: BTreeSet<u32>,
    /// Of the maps that lead to the chains.
    pub(crate) elements: BTreeSet<u32>,
}

impl Census {
    pub(crate) fn kinds(&self) -> [(&'static str, &BTreeSet<u32>); 4] {
        [
            ("network namespaces", &self.namespaces),
            ("links", &self.links),
            ("nft chains", &self.chains),
            ("nft elements", &self.elements),
        ]
    }
}

/// To be called from the zone's namespace.
pub(super) fn census(instance: &str) -> Result<Census, NetworkError> {
    let read = making("a list of what exists");
    let name = plan::name(instance);
    let namespaces = namespace::list().map_err(&read)?;
    let links = Netlink::open().and_then(|mut zone| zone.links()).map_err(&read)?;
    let mut elements = BTreeSet::new();
    for map in rules::MAPS {
        elements.extend(targets(&name, map)?.iter().filter_map(|it| rules::chain_number(it)));
    }
    Ok(Census {
        namespaces: namespaces
            .iter()
            .filter_map(|name| plan::namespace_number(instance, name))
            .collect(),
        links: links.iter().filter_map(|link| Plan::link_number(&link.name)).collect(),
        chains: chains(&name)?.iter().filter_map(|chain| rules::chain_number(chain)).collect(),
        elements,
    })
}

/// The numbers of which anything exists. To be called from the zone's namespace.
pub(super) fn numbers(plan: &Plan) -> Result<BTreeSet<u32>, NetworkError> {
    let census = census(plan.instance())?;
    Ok(census.kinds().into_iter().flat_map(|(_, numbers)| numbers).copied().collect())
}

/// The sandboxes whose connections are led to the proxy. To be called from the zone's namespace.
pub(super) fn named(plan: &Plan) -> Result<BTreeSet<Ipv4Addr>, NetworkError> {
    let mut found = BTreeSet::new();
    for map in [rules::NAMED, rules::TUNNELED] {
        let listed = nft::list(&["map", "ip", &plan.name(), map])?;
        found.extend(listed.iter().flat_map(strings).filter_map(|it| it.parse::<Ipv4Addr>().ok()));
    }
    Ok(found)
}

fn strings(value: &serde_json::Value) -> Vec<&str> {
    let mut found: Vec<&str> = value.as_str().into_iter().collect();
    found.extend(value.as_array().into_iter().flatten().flat_map(strings));
    found.extend(value.as_object().into_iter().flat_map(|it| it.values()).flat_map(strings));
    found
}

/// The chains that a map leads to.
fn targets(table: &str, map: &str) -> Result<Vec<String>, NftError> {
    fn collect(value: &serde_json::Value, found: &mut Vec<String>) {
        if let Some(fields) = value.as_object() {
            let target = fields.get("target").and_then(|it| it.as_str());
            found.extend(target.map(str::to_owned));
            fields.values().for_each(|it| collect(it, found));
        }
        value.as_array().into_iter().flatten().for_each(|it| collect(it, found));
    }
    let mut found = Vec::new();
    if let Some(listed) = nft::list(&["map", "ip", table, map])? {
        collect(&listed, &mut found);
    }
    Ok(found)
}

/// In the table of that name, in the namespace of the calling thread.
fn chains(table: &str) -> Result<Vec<String>, NftError> {
    let listed = nft::list(&["chains", "ip"])?;
    let objects = listed.as_ref().and_then(|it| it.get("nftables")?.as_array());
    Ok(objects
        .into_iter()
        .flatten()
        .filter_map(|object| object.get("chain"))
        .filter(|chain| chain.get("table").and_then(|it| it.as_str()) == Some(table))
        .filter_map(|chain| Some(chain.get("name")?.as_str()?.to_owned()))
        .collect())
}

fn namespaces(instance: &str) -> io::Result<Vec<String>> {
    let zone = plan::name(instance);
    let mut names = namespace::list()?;
    names.retain(|it| *it == zone || plan::namespace_number(instance, it).is_some());
    names.sort();
    Ok(names)
}

/// To be called from the host's namespace.
pub(super) fn inventory(instance: &str) -> Result<Vec<String>, NetworkError> {
    let read = making("a list of what exists");
    let name = plan::name(instance);
    let mut found = Vec::new();
    for namespace in namespaces(instance).map_err(&read)? {
        found.push(format!("netns {namespace}"));
    }
    if Netlink::open().and_then(|mut host| host.link(&name)).map_err(&read)?.is_some() {
        found.push(format!("link {name}"));
    }
    if host::tables()?.contains(&name) {
        found.push(format!("nft table ip {name}"));
    }
    Ok(found)
}

/// The way out first, so that nothing leaves any more; then what is inside. To be called from the
/// host's namespace.
pub(super) fn tear_down(instance: &str) -> Result<(), NetworkError> {
    let remove = |what: &str| {
        let what = what.to_owned();
        move |source| NetworkError::Remove { what, source }
    };
    zone_side::remove_uplink(instance).map_err(remove("the uplink"))?;
    host::close_the_way(instance)?;
    for name in namespaces(instance).map_err(remove("the namespaces"))? {
        namespace::remove(&name).map_err(remove(&name))?;
    }
    Ok(())
}
