//! A sandbox's link as its sentry takes it over: a packet socket, and what is configured on it.
//!
//! runsc's command line does the same at a start; a sandbox that is started without it needs this.
//! Two stacks must not answer for one address, so the kernel's loses it.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use ipnet::Ipv4Net;
use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt},
};

use super::{
    namespace,
    netlink::{Link, Netlink},
    plan::Plan,
    zone_side::GUEST,
};

/// As runsc has it: the kernel's own bound is too low for bursts.
const SOCKET_BUFFER: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Handover {
    /// Bound to the link; speaks in packets with the kernel's offload header.
    pub(crate) socket: OwnedFd,
    pub(crate) name: &'static str,
    pub(crate) mtu: u32,
    pub(crate) hardware: Vec<u8>,
    pub(crate) gso_max: u32,
    pub(crate) address: Ipv4Net,
    pub(crate) gateway: Ipv4Net,
}

pub(super) fn take(plan: &Plan, number: u32) -> io::Result<Handover> {
    let (address, gateway) = (plan.guest(number), plan.gateway(number));
    namespace::within(&plan.namespace(number), || {
        let mut netlink = Netlink::open()?;
        let link = netlink.link(GUEST)?.ok_or(Errno::ENODEV)?;
        let socket = packet_socket(&link)?;
        netlink.remove_address(link.index, address)?;
        let Link { mtu, hardware, gso_max, .. } = link;
        Ok(Handover { socket, name: GUEST, mtu, hardware, gso_max, address, gateway })
    })
}

/// Nothing arrives before it is bound, since it is made for no protocol.
fn packet_socket(link: &Link) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    bind(&socket, link.index)?;
    if link.gso_max > 0 {
        with_offload_header(&socket)?;
    }
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER)?;
    setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER)?;
    Ok(socket)
}

#[expect(unsafe_code, reason = "nix makes no address of a link from its number")]
fn bind(socket: &OwnedFd, link: u32) -> io::Result<()> {
    let every_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be();
    // SAFETY: all zeroes are a valid value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
    address.sll_protocol = every_protocol;
    address.sll_ifindex = i32::try_from(link).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
    // SAFETY: the address lives longer than the call, and has that length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    Ok(Errno::result(bound).map(drop)?)
}

#[expect(unsafe_code, reason = "nix does not know this option")]
fn with_offload_header(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or_default();
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_VNET_HDR);
    // SAFETY: the value lives longer than the call, and has that length.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length)
    };
    Ok(Errno::result(set).map(drop)?)
}
