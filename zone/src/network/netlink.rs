//! Links, addresses and routes of the namespace that the calling thread is in.
//!
//! One blocking socket, one request at a time: the callers are threads that live in a namespace.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel has many kinds of messages and attributes, and more each year"
)]

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use ipnet::Ipv4Net;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket},
};
use tokio::io::{Interest, unix::AsyncFd};

/// More than the kernel puts into one message of a dump.
const BUFFER: usize = 64 * 1024;

/// A group of links that only those are in which are about to be deleted.
const LEAVING: u32 = 0x5b;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;

pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) hardware: Vec<u8>,
    /// The largest packet that it cuts up by itself.
    pub(super) gso_max: u32,
}

/// An address of an interface, with the length of the network it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) link: u32,
    pub(super) net: Ipv4Net,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) to: Ipv4Net,
    /// Several for a multipath route.
    pub(super) links: Vec<u32>,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let answers =
            self.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(read_link(&link)),
                _ => None,
            })
            .collect())
    }

    pub(super) fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.request(RouteNetlinkMessage::GetLink(message), NLM_F_ACK) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(read_link(&link)),
                _ => None,
            })),
            Err(error) if is(&error, Errno::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A pair: `name` here, `peer` in another namespace.
    pub(super) fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_namespace: BorrowedFd<'_>,
        mtu: u32,
    ) -> io::Result<()> {
        let mut far = LinkMessage::default();
        far.attributes = vec![
            LinkAttribute::IfName(peer.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()),
        ];
        let mut near = LinkMessage::default();
        near.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(mtu),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
            ]),
        ];
        self.change(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub(super) fn set_up(&mut self, link: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Returns once the name is free again. One that isn't there is no error.
    pub(super) fn delete_link(&mut self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.change(RouteNetlinkMessage::DelLink(message), 0) {
            Err(error) if is(&error, Errno::ENODEV) => Ok(()),
            other => other,
        }
    }

    /// All at once: the kernel waits for each deletion until no packet uses the link, and waits
    /// once for a group. Ones that aren't there are no error.
    pub(super) fn delete_links(&mut self, names: &[String]) -> io::Result<()> {
        if let [name] = names {
            return self.delete_link(name);
        }
        for name in names {
            let mut message = LinkMessage::default();
            message.attributes.push(LinkAttribute::IfName(name.clone()));
            message.attributes.push(LinkAttribute::Group(LEAVING));
            match self.change(RouteNetlinkMessage::SetLink(message), 0) {
                Err(error) if is(&error, Errno::ENODEV) => {}
                other => other?,
            }
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(LEAVING));
        match self.change(RouteNetlinkMessage::DelLink(message), 0) {
            Err(error) if is(&error, Errno::ENODEV) => Ok(()),
            other => other,
        }
    }

    /// An address that is there already is no error.
    pub(super) fn add_address(&mut self, link: u32, net: Ipv4Net) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = net.prefix_len();
        message.header.index = link;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(net.addr())),
            AddressAttribute::Address(IpAddr::V4(net.addr())),
        ];
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// One that isn't there is no error.
    pub(super) fn remove_address(&mut self, link: u32, net: Ipv4Net) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = net.prefix_len();
        message.header.index = link;
        message.attributes = vec![AddressAttribute::Local(IpAddr::V4(net.addr()))];
        match self.change(RouteNetlinkMessage::DelAddress(message), 0) {
            Err(error) if is(&error, Errno::EADDRNOTAVAIL) => Ok(()),
            other => other,
        }
    }

    pub(super) fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        let answers = self.request(RouteNetlinkMessage::GetAddress(message), NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(address) => read_address(&address),
                _ => None,
            })
            .collect())
    }

    pub(super) fn add_default_route(&mut self, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Of all tables but the one that lists the addresses of this host.
    pub(super) fn routes(&mut self) -> io::Result<Vec<Route>> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        let answers = self.request(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(route) => read_route(&route),
                _ => None,
            })
            .collect())
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, flags | NLM_F_ACK).map(drop)
    }

    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let (header, one, after) = split(rest)?;
                rest = after;
                // Left over from a request that failed half way.
                if header.sequence != self.sequence {
                    continue;
                }
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
                    .payload
                {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(answers),
                            Some(_) => Err(error.to_io()),
                        };
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Overrun(_) => {
                        return Err(io::Error::from(io::ErrorKind::InvalidData));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Tells when addresses or routes change.
pub(super) struct Changes {
    socket: AsyncFd<OwnedFd>,
}

impl Changes {
    /// In the namespace of the calling thread.
    #[expect(unsafe_code, reason = "the runtime wants a promise about the descriptor")]
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let route = SockProtocol::NetlinkRoute;
        let socket = socket(nix::sys::socket::AddressFamily::Netlink, SockType::Raw, flags, route)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE))?;
        // SAFETY: an `OwnedFd` names one open descriptor for as long as it lives.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
        Ok(Self { socket })
    }

    /// Returns after one or more changes.
    pub(super) async fn next(&self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        let mut seen = false;
        while !seen {
            let mut ready = self.socket.readable().await?;
            while let Ok(received) =
                ready.try_io(|socket| Ok(recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?))
            {
                seen = true;
                match received {
                    // More changes than the kernel could keep.
                    Err(error) if is(&error, Errno::ENOBUFS) => {}
                    other => drop(other?),
                }
            }
        }
        Ok(())
    }
}

struct Header {
    sequence: u32,
}

/// The first message of a datagram, and what comes after it.
fn split(bytes: &[u8]) -> io::Result<(Header, &[u8], &[u8])> {
    let parse = || {
        let length = u32::from_ne_bytes(bytes.first_chunk().copied()?);
        let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length >= 16)?;
        let one = bytes.get(..length)?;
        let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Header { sequence }, one, after))
    };
    parse().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn read_link(link: &LinkMessage) -> Link {
    let mut name = String::new();
    let mut mtu = 0;
    let mut hardware = Vec::new();
    let mut gso_max = 0;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name.clone_from(text),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            LinkAttribute::Address(bytes) => hardware.clone_from(bytes),
            LinkAttribute::GsoMaxSize(bytes) => gso_max = *bytes,
            _ => {}
        }
    }
    Link { index: link.header.index, name, mtu, hardware, gso_max }
}

fn read_address(address: &AddressMessage) -> Option<Address> {
    // On a point-to-point link `Address` is the other end; `Local` is always ours.
    let ours = address.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(ours)) => Some(*ours),
        _ => None,
    })?;
    let net = Ipv4Net::new(ours, address.header.prefix_len).ok()?;
    Some(Address { link: address.header.index, net })
}

fn read_route(route: &RouteMessage) -> Option<Route> {
    const LOCAL: u8 = 255;
    if route.header.table == LOCAL || route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut to = Ipv4Addr::UNSPECIFIED;
    let mut links = Vec::new();
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = *address,
            RouteAttribute::Oif(index) => links.push(*index),
            RouteAttribute::MultiPath(hops) => {
                links.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    let to = Ipv4Net::new(to, route.header.destination_prefix_length).ok()?;
    Some(Route { to, links })
}

pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
