//! The zone's namespace and the links in it.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd, OwnedFd},
};

use nix::errno::Errno;

use super::{
    NetworkError, Uplink,
    host::{self, Host},
    making, namespace,
    netlink::Netlink,
    plan::{self, Plan},
    rules::UPLINK,
};

pub(super) const GUEST: &str = "eth0";

/// Nobody there but sandboxes, who must not speak with another's address, and no router that
/// could send them elsewhere.
const SYSCTLS: [(&str, &str); 8] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv4/conf/all/rp_filter", "1"),
    ("net/ipv4/conf/default/rp_filter", "1"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    // Last: nothing is forwarded before all else is set.
    ("net/ipv4/ip_forward", "1"),
];

pub(super) struct Begun {
    pub(super) plan: Plan,
    pub(super) namespace: OwnedFd,
    pub(super) host: Host,
}

/// The zone's namespace, with the forwarder's address and the uplink; what is there already
/// stays. To be called from the host's namespace.
pub(super) fn begin(instance: &str, uplink: Uplink) -> Result<Begun, NetworkError> {
    let name = plan::name(instance);
    namespace::prepare_directory().map_err(making("/run/netns"))?;
    let host = host::read(instance)?;
    let (namespace, mut zone) = match open(&name)? {
        Some(found) => found,
        None => namespace::create(&name, &SYSCTLS).map_err(making("the zone's namespace"))?,
    };
    let forwarder = forwarder(&mut zone).map_err(making("the forwarder's address"))?;
    let plan = forwarder
        .and_then(|address| Plan::of_forwarder(instance, address))
        .or_else(|| Some(Plan::new(instance, plan::choose_pool(instance, &host.known)?)))
        .ok_or(NetworkError::NoFreeNetwork)?;
    (|| {
        let loopback = zone.link("lo")?.ok_or(Errno::ENODEV)?;
        zone.add_address(loopback.index, plan.forwarder().into())?;
        match uplink {
            Uplink::Forward => add_uplink(&plan, &namespace, &mut zone, host.mtu),
            Uplink::None => Netlink::open()?.delete_link(&name),
        }
    })()
    .map_err(making("the zone's uplink"))?;
    Ok(Begun { plan, namespace, host })
}

fn open(name: &str) -> Result<Option<(OwnedFd, Netlink)>, NetworkError> {
    let open = || {
        let Some(namespace) = namespace::open(name)? else {
            // A file that no namespace was mounted on.
            namespace::remove(name)?;
            return Ok(None);
        };
        let netlink = namespace::netlink(&namespace)?;
        Ok(Some((namespace, netlink)))
    };
    open().map_err(making("the zone's namespace"))
}

/// The address on the zone's loopback that is none of the usual ones.
pub(super) fn forwarder(zone: &mut Netlink) -> io::Result<Option<Ipv4Addr>> {
    let Some(loopback) = zone.link("lo")? else { return Ok(None) };
    let addresses = zone.addresses()?.into_iter();
    Ok(addresses
        .filter(|it| it.link == loopback.index)
        .map(|it| it.net.addr())
        .find(|it| !it.is_loopback()))
}

fn add_uplink(plan: &Plan, namespace: &OwnedFd, zone: &mut Netlink, mtu: u32) -> io::Result<()> {
    let mut host = Netlink::open()?;
    let name = plan.name();
    if host.link(&name)?.is_none() || zone.link(UPLINK)?.is_none() {
        host.delete_link(&name)?;
        zone.delete_link(UPLINK)?;
        host.add_veth(&name, UPLINK, namespace.as_fd(), mtu)?;
    }
    let near = host.link(&name)?.ok_or(Errno::ENODEV)?;
    // The host has it for nothing but this one network.
    namespace::set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")?;
    host.add_address(near.index, plan.uplink_host())?;
    host.set_up(near.index)?;
    let far = zone.link(UPLINK)?.ok_or(Errno::ENODEV)?;
    zone.add_address(far.index, plan.uplink_zone())?;
    zone.set_up(far.index)?;
    zone.add_default_route(plan.uplink_host().addr())
}

/// A sandbox's namespace and its link. To be called from the zone's namespace.
pub(super) fn add(plan: &Plan, number: u32, mtu: u32) -> Result<(), NetworkError> {
    let name = plan.namespace(number);
    let add = || {
        let (namespace, mut guest) = namespace::create(&name, &[])?;
        let mut zone = Netlink::open()?;
        let link = Plan::link(number);
        zone.add_veth(&link, GUEST, namespace.as_fd(), mtu)?;
        let near = zone.link(&link)?.ok_or(Errno::ENODEV)?;
        zone.add_address(near.index, plan.gateway(number))?;
        zone.set_up(near.index)?;
        let far = guest.link(GUEST)?.ok_or(Errno::ENODEV)?;
        guest.add_address(far.index, plan.guest(number))?;
        guest.set_up(far.index)?;
        guest.add_default_route(plan.gateway(number).addr())
    };
    add().map_err(making(&name))
}

/// Whatever is there of them. To be called from the zone's namespace.
pub(super) fn remove(plan: &Plan, numbers: &[u32]) -> Result<(), NetworkError> {
    let removing = |what: String| move |source| NetworkError::Remove { what, source };
    // The links first and by name: with its namespace one would go at some later time, and its
    // name would not be free.
    let links: Vec<String> = numbers.iter().map(|number| Plan::link(*number)).collect();
    Netlink::open()
        .and_then(|mut zone| zone.delete_links(&links))
        .map_err(removing(links.join(", ")))?;
    for number in numbers {
        let name = plan.namespace(*number);
        namespace::remove(&name).map_err(removing(name.clone()))?;
    }
    Ok(())
}

/// Whether namespace and link are there. To be called from the zone's namespace.
pub(super) fn is_whole(plan: &Plan, number: u32) -> Result<bool, NetworkError> {
    let look = || {
        Ok(namespace::open(&plan.namespace(number))?.is_some()
            && Netlink::open()?.link(&Plan::link(number))?.is_some())
    };
    look().map_err(making(&plan.namespace(number)))
}

/// Deletes the host's end of the uplink, and with it the zone's. To be called from the host's
/// namespace.
pub(super) fn remove_uplink(instance: &str) -> io::Result<()> {
    Netlink::open()?.delete_link(&plan::name(instance))
}
