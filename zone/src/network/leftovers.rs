//! What exists of an instance, and its end.

use std::{collections::BTreeSet, io};

use super::{
    NetworkError, host, making, namespace,
    netlink::Netlink,
    nft::{self, NftError},
    plan::{self, Plan},
    rules, zone_side,
};

/// The numbers of which anything exists. To be called from the zone's namespace.
pub(super) fn numbers(plan: &Plan) -> Result<BTreeSet<u32>, NetworkError> {
    let read = making("a list of what exists");
    let mut numbers = BTreeSet::new();
    for name in namespace::list().map_err(&read)? {
        numbers.extend(plan::namespace_number(plan.instance(), &name));
    }
    for link in Netlink::open().and_then(|mut zone| zone.links()).map_err(&read)? {
        numbers.extend(Plan::link_number(&link.name));
    }
    for chain in chains(&plan.name())? {
        numbers.extend(rules::chain_number(&chain));
    }
    Ok(numbers)
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
