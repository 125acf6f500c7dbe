//! One packet: bytes, and descriptors beside them. Never blocks.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
};

/// The kernel's limit of descriptors in one message.
const MOST_DESCRIPTORS: usize = 253;

/// Receives into the same buffers again and again.
pub struct Receiver {
    bytes: Box<[u8]>,
    control: Vec<u8>,
}

pub struct Packet<'a> {
    /// Empty: the peer has closed.
    pub bytes: &'a [u8],
    pub descriptors: Vec<OwnedFd>,
}

pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        let socket = socket.as_fd().as_raw_fd();
        match sendmsg::<()>(socket, &[IoSlice::new(bytes)], control, flags, None) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop),
        }
    }
}

impl Receiver {
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: vec![0; longest].into_boxed_slice(),
            control: nix::cmsg_space!([i32; MOST_DESCRIPTORS]),
        }
    }

    /// `EMSGSIZE`: it did not fit, and is gone.
    pub fn receive(&mut self, socket: impl AsFd) -> Result<Packet<'_>, Errno> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let (length, received, descriptors) = loop {
            let mut slices = [IoSliceMut::new(&mut self.bytes)];
            let socket = socket.as_fd().as_raw_fd();
            match recvmsg::<()>(socket, &mut slices, Some(&mut self.control), flags) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(message) => {
                    let mut descriptors = Vec::new();
                    if let Ok(control) = message.cmsgs() {
                        control.for_each(|control| descriptors.extend(owned(control)));
                    }
                    break (message.bytes, message.flags, descriptors);
                }
            }
        };
        if received.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
            return Err(Errno::EMSGSIZE);
        }
        Ok(Packet { bytes: self.bytes.get(..length).unwrap_or_default(), descriptors })
    }
}

#[expect(unsafe_code, reason = "the kernel hands descriptors over as numbers")]
#[expect(clippy::wildcard_enum_match_arm, reason = "other control messages carry none")]
fn owned(control: ControlMessageOwned) -> Vec<OwnedFd> {
    match control {
        ControlMessageOwned::ScmRights(raw) => raw
            .into_iter()
            // SAFETY: the kernel made these for us with this message; nobody else knows them.
            .map(|raw| unsafe { OwnedFd::from_raw_fd(raw) })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Seek, Write},
        os::fd::AsFd,
    };

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn descriptors_travel_with_their_message() {
        let (left, right) = pair();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        let all = vec![file.as_fd(); MOST_DESCRIPTORS];
        send(&left, b"first", &all).unwrap();
        send(&left, b"second", &[]).unwrap();
        let mut receiver = Receiver::new(64);
        let packet = receiver.receive(&right).unwrap();
        assert_eq!((packet.bytes, packet.descriptors.len()), (&b"first"[..], MOST_DESCRIPTORS));
        let mut last = std::fs::File::from(packet.descriptors.into_iter().next_back().unwrap());
        let mut text = String::new();
        last.rewind().unwrap();
        last.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        let packet = receiver.receive(&right).unwrap();
        assert_eq!((packet.bytes, packet.descriptors.len()), (&b"second"[..], 0));
        assert_eq!(receiver.receive(&right).err(), Some(Errno::EAGAIN));
        drop(left);
        assert!(receiver.receive(&right).unwrap().bytes.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (left, right) = pair();
        send(&left, &[0; 65], &[]).unwrap();
        assert_eq!(Receiver::new(64).receive(&right).err(), Some(Errno::EMSGSIZE));
    }
}
