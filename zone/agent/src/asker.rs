//! Whose connection it is that a program of the sandbox has made to its agent.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tokio::net::TcpStream;

const CONNECTIONS: &str = "/proc/net/tcp";
const ESTABLISHED: &str = "01";

/// Both ends of a connection, as the one that asks has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    own: SocketAddrV4,
    other: SocketAddrV4,
}

impl Asker {
    /// `None`: not by IPv4.
    pub(crate) fn of(accepted: &TcpStream) -> Option<Self> {
        let (SocketAddr::V4(own), SocketAddr::V4(other)) =
            (accepted.peer_addr().ok()?, accepted.local_addr().ok()?)
        else {
            return None;
        };
        Some(Self { own, other })
    }

    /// Of whom the kernel says that he asks. It reads a file.
    pub(crate) fn uid(self) -> Option<u32> {
        self.uid_in(&std::fs::read_to_string(CONNECTIONS).ok()?)
    }

    fn uid_in(self, connections: &str) -> Option<u32> {
        let wanted = [&hex(self.own), &hex(self.other), ESTABLISHED];
        connections.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let is_it = wanted.iter().all(|wanted| fields.next() == Some(wanted));
            // Two of queues, one of a timer and one of retries come before it.
            fields.nth(3).filter(|_| is_it)?.parse().ok()
        })
    }
}

/// The kernel prints the address's bytes as one number of its own order.
fn hex(address: SocketAddrV4) -> String {
    let ip: Ipv4Addr = *address.ip();
    format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   2: 0100007F:C33F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0        3 1
   9: 0100007F:E0F2 0100007F:C33F 01 00000000:00000000 00:00000000 00000000  1000        0       10 1
  10: 0100007F:C33F 0100007F:E0F2 01 00000000:00000000 00:00000000 00000000     0        0       11 1
  11: 0100007F:E0F3 0100007F:C33F 06 00000000:00000000 00:00000000 00000000     0        0        0 1
";

    #[test]
    fn the_end_that_asks_says_who_it_is() {
        let asker = |own: &str, other: &str| Asker {
            own: own.parse().unwrap(),
            other: other.parse().unwrap(),
        };
        for (own, other, uid) in [
            ("127.0.0.1:57586", "127.0.0.1:49983", Some(1000)),
            ("127.0.0.1:49983", "127.0.0.1:57586", Some(0)),
            // Over already, to another, and of nobody.
            ("127.0.0.1:57587", "127.0.0.1:49983", None),
            ("127.0.0.1:57586", "127.0.0.1:49984", None),
            ("127.0.0.2:57586", "127.0.0.1:49983", None),
        ] {
            assert_eq!(asker(own, other).uid_in(TABLE), uid, "{own} to {other}");
        }
        assert_eq!(asker("1.1.1.1:1", "1.1.1.1:2").uid_in("  sl\n 0:\n"), None);
    }

    #[tokio::test]
    async fn this_process_is_found() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _asks = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _from) = listener.accept().await.unwrap();
        let asker = Asker::of(&accepted).unwrap();
        assert_eq!(asker.uid(), Some(nix::unistd::getuid().as_raw()));
    }
}
