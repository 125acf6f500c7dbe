//! A sentry by its control socket: what runsc's command line says to it, without the command line.
//!
//! gVisor promises nothing of this protocol, so it is spoken only with releases that it was tried
//! with. One JSON text each way, with descriptors beside it.

use std::{
    io::{self, IoSlice, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ipnet::Ipv4Net;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{network::Handover, slot::ContainerId};

/// An answer is a line or two; what is longer is none.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Of a call that has next to nothing to do.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SentryError {
    #[error("speak to the sentry")]
    Io(#[from] io::Error),
    #[error("the sentry refuses {method}: {why}")]
    Refused { method: &'static str, why: String },
    #[error("the sentry's answer to {0} can't be read")]
    Garbled(&'static str),
}

/// A connection to the sentry of one sandbox. Blocking: it is one call and its answer.
pub(crate) struct Sentry {
    stream: UnixStream,
}

/// The files of one checkpoint, in the order in which they are handed over.
pub(crate) struct ImageFiles {
    pub(crate) state: OwnedFd,
    /// Where memory lies, and the memory; of an image that is not compressed.
    pub(crate) pages: Option<(OwnedFd, OwnedFd)>,
}

#[derive(Deserialize)]
struct Answer {
    success: bool,
    #[serde(default)]
    err: String,
}

impl Sentry {
    /// Of a sandbox that runsc has made below this root.
    pub(crate) fn connect(root: &Path, container: ContainerId) -> Result<Self, SentryError> {
        let stream = UnixStream::connect(root.join(format!("runsc-{container}.sock")))?;
        stream.set_write_timeout(Some(CALL_TIMEOUT))?;
        Ok(Self { stream })
    }

    /// Loopback, and a link to the world if there is one. Once, before anything runs in it.
    pub(crate) fn configure_network(
        &mut self,
        link: Option<&Handover>,
        connections_may_be_cut: bool,
    ) -> Result<(), SentryError> {
        let files: Vec<_> = link.iter().map(|link| link.socket.as_raw_fd()).collect();
        let arguments = network(link, connections_may_be_cut);
        self.call("Network.CreateLinksAndRoutes", &arguments, &files, CALL_TIMEOUT)
    }

    /// Returns once what was saved runs. A sandbox in which this fails is of no more use.
    pub(crate) fn restore(
        &mut self,
        image: &ImageFiles,
        timeout: Duration,
    ) -> Result<(), SentryError> {
        let mut files = vec![image.state.as_raw_fd()];
        if let Some((places, pages)) = &image.pages {
            files.extend([places.as_raw_fd(), pages.as_raw_fd()]);
        }
        let arguments = json!({ "HavePagesFile": image.pages.is_some() });
        self.call("containerManager.Restore", &arguments, &files, timeout)
    }

    /// Nothing in it runs once this has returned.
    pub(crate) fn pause(&mut self) -> Result<(), SentryError> {
        self.call("containerManager.Pause", &Value::Null, &[], CALL_TIMEOUT)
    }

    /// Once for each pause: a sentry that does not stand still ends of it.
    pub(crate) fn resume(&mut self) -> Result<(), SentryError> {
        self.call("containerManager.Resume", &Value::Null, &[], CALL_TIMEOUT)
    }

    fn call(
        &mut self,
        method: &'static str,
        arguments: &Value,
        files: &[i32],
        timeout: Duration,
    ) -> Result<(), SentryError> {
        let text = json!({ "method": method, "arg": arguments }).to_string();
        let text = text.as_bytes();
        let rights = [ControlMessage::ScmRights(files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let sent = sendmsg::<()>(
            self.stream.as_raw_fd(),
            &[IoSlice::new(text)],
            rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        // The descriptors go with the first byte.
        let rest = text.get(sent.map_err(io::Error::from)?..).unwrap_or_default();
        self.stream.write_all(rest)?;
        self.stream.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let count = self.stream.read(&mut chunk)?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            bytes.extend_from_slice(chunk.get(..count).unwrap_or_default());
            match answered(&bytes) {
                Ok(Some(Answer { success: true, .. })) => return Ok(()),
                Ok(Some(Answer { err, .. })) => {
                    let why = err.chars().take(400).collect();
                    return Err(SentryError::Refused { method, why });
                }
                Ok(None) if bytes.len() <= LONGEST_ANSWER => {}
                Ok(None) | Err(_) => return Err(SentryError::Garbled(method)),
            }
        }
    }
}

/// `None` while it is not whole.
fn answered(bytes: &[u8]) -> Result<Option<Answer>, serde_json::Error> {
    match serde_json::from_slice(bytes) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_eof() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The argument of `Network.CreateLinksAndRoutes`, with what runsc's flags are without being given.
fn network(link: Option<&Handover>, connections_may_be_cut: bool) -> Value {
    let loopback = [("127.0.0.1/8", 4), ("::1/128", 16)].map(|(net, length)| {
        let (address, prefix) = net.split_once('/').unwrap_or((net, "0"));
        let prefix: usize = prefix.parse().unwrap_or(0);
        let network = if length == 4 { "127.0.0.0" } else { address };
        (
            json!({ "Address": address, "PrefixLen": prefix }),
            json!({ "Destination": { "IP": network, "Mask": mask(prefix, length) } }),
        )
    });
    let (addresses, routes): (Vec<_>, Vec<_>) = loopback.into_iter().unzip();
    let mut arguments = json!({
        "LoopbackLinks": [{ "Name": "lo", "Addresses": addresses, "Routes": routes }],
        "DisconnectOk": connections_may_be_cut,
    });
    let Some(Handover { name, mtu, hardware, gso_max, address, gateway, .. }) = link else {
        return arguments;
    };
    let route = |net: Ipv4Net| {
        let prefix = usize::from(net.prefix_len());
        json!({ "IP": net.network(), "Mask": mask(prefix, 4) })
    };
    let link = json!({
        "Name": name,
        "MTU": mtu,
        "Addresses": [{ "Address": address.addr(), "PrefixLen": address.prefix_len() }],
        "Routes": [{ "Destination": route(*address) }],
        "GSOMaxSize": gso_max,
        "TXChecksumOffload": false,
        "RXChecksumOffload": true,
        "LinkAddress": BASE64.encode(hardware),
        // First in, first out.
        "QDisc": 1,
        "NumChannels": 1,
    });
    let default = json!({
        "Name": name,
        "Route": { "Destination": route(Ipv4Net::default()), "Gateway": gateway.addr() },
    });
    if let Some(map) = arguments.as_object_mut() {
        map.insert("FDBasedLinks".into(), json!([link]));
        map.insert("Defaultv4Gateway".into(), default);
    }
    arguments
}

/// Go's bytes of a mask.
fn mask(prefix: usize, length: usize) -> String {
    let bit = |at: usize| u8::from(at < prefix);
    let byte = |at: usize| (0..8).fold(0, |byte, n| byte << 1 | bit(at * 8 + n));
    BASE64.encode((0..length).map(byte).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests;
