//! A host of its own for each test: a namespace, with another one behind it that is the internet.
//!
//! The runtime runs on threads that were born in the host's namespace, so what the product does
//! there touches no other test and not this machine. Names are unique; nothing is left.

use std::{
    fs::File,
    future::Future,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use nix::sched::{CloneFlags, setns, unshare};
use sandboxo_tasks::Tasks;
use sandboxo_zone::network::{Network, NetworkConfig};

use super::secure::Secure;

/// The host's address, and its gateway's.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Somebody on the internet.
pub(super) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
pub(super) const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 99);
/// Somebody with a certificate.
pub(super) const SECURE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 20);
/// Reachable from the host, and none of a sandbox's business.
pub(super) const PRIVATE: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(10, 99, 0, 1),
    Ipv4Addr::new(192, 168, 77, 1),
    Ipv4Addr::new(172, 16, 9, 1),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
pub(super) const PORT: u16 = 8080;
pub(super) const HTTP: u16 = 80;
pub(super) const TLS: u16 = 443;
/// Where the internet's only name is told.
const RESOLVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(OUTSIDE), 53);

pub(super) struct World {
    pub(super) instance: String,
    outside: String,
    secure: Secure,
}

/// Runs a test in a world, and takes the world down whatever happens.
pub(super) fn run<F: Future<Output = ()>>(test: impl FnOnce(&'static World) -> F + Send + 'static) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let instance = format!("t{:x}{number:02}", std::process::id() % 0x000f_ffff);
    let outcome = thread::spawn(move || {
        let outside = format!("outside-{instance}");
        let world: &'static World =
            Box::leak(Box::new(World { instance, outside, secure: Secure::new() }));
        let _cleaner = Cleaner(world);
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        world.build();
        runtime().block_on(test(world));
        runtime().block_on(async {
            Network::tear_down(&world.instance).await.unwrap();
            assert_eq!(Network::inventory(&world.instance).await.unwrap(), [""; 0]);
        });
    })
    .join();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Dropped, it takes all tasks with it, as a kill does.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

struct Cleaner(&'static World);

impl Drop for Cleaner {
    fn drop(&mut self) {
        if thread::panicking() {
            for instance in [&self.0.instance, &self.0.second()] {
                let torn_down = runtime().block_on(Network::tear_down(instance));
                if let Err(error) = torn_down {
                    eprint(&format!("tear down: {error:?}"));
                }
            }
        }
        ip(&format!("netns del {}", self.0.outside));
    }
}

#[expect(clippy::print_stderr, reason = "a test that fails already")]
fn eprint(text: &str) {
    eprintln!("{text}");
}

impl World {
    fn build(&self) {
        let outside = &self.outside;
        ip(&format!("netns add {outside}"));
        ip("link set lo up");
        ip(&format!("link add eth0 type veth peer name eth0 netns {outside}"));
        ip(&format!("addr add {HOST}/24 dev eth0"));
        ip("link set eth0 up");
        ip(&format!("-n {outside} link set lo up"));
        ip(&format!("-n {outside} link set eth0 up"));
        ip(&format!("-n {outside} addr add {GATEWAY}/24 dev eth0"));
        for address in PRIVATE.iter().chain([&OUTSIDE, &OTHER, &SECURE]) {
            ip(&format!("-n {outside} addr add {address}/32 dev lo"));
        }
        ip(&format!("route add default via {GATEWAY}"));
        within(&self.internet(), || {
            serve(TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap());
            for address in PRIVATE.into_iter().chain([OUTSIDE, OTHER]) {
                serve(TcpListener::bind((address, TLS)).unwrap());
            }
            self.secure.serve(TcpListener::bind((SECURE, TLS)).unwrap());
            serve_http(TcpListener::bind((Ipv4Addr::UNSPECIFIED, HTTP)).unwrap());
            answer_names(UdpSocket::bind(RESOLVER).unwrap());
        });
        // Both end with the host's namespace, as the test's last thread does.
        serve(TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap());
    }

    pub(super) fn config(&self) -> NetworkConfig {
        NetworkConfig {
            resolvers: vec![RESOLVER],
            ready: 2,
            ..NetworkConfig::new(&*self.instance, self.secure.interception())
        }
    }

    pub(super) fn secure(&self) -> &Secure {
        &self.secure
    }

    pub(super) async fn network(&self, tasks: &Tasks) -> Network {
        Network::start(self.config(), tasks).await.unwrap()
    }

    /// Another instance on the same host.
    pub(super) fn second(&self) -> String {
        format!("{}x", self.instance)
    }

    pub(super) fn internet(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.outside)
    }

    pub(super) fn zone(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/sbxo-{}", self.instance))
    }
}

pub(super) fn ip(arguments: &str) {
    command(&format!("ip {arguments}"));
}

pub(super) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// In a thread that lives in that namespace.
pub(super) fn within<R: Send>(namespace: &Path, work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Says who calls, then repeats what it hears.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let peer = stream.peer_addr().unwrap().ip().to_string();
                let mut buffer = [0; 4096];
                let mut result = stream.write_all(format!("{peer}\n").as_bytes());
                while result.is_ok() {
                    result = match stream.read(&mut buffer) {
                        Ok(length) if length > 0 => stream.write_all(&buffer[..length]),
                        _ => return,
                    };
                }
            });
        }
    });
}

/// Answers each request with its own head.
fn serve_http(listener: TcpListener) {
    let converse = |mut stream: TcpStream| -> std::io::Result<()> {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            while let Some(end) = heard.windows(4).position(|it| it == b"\r\n\r\n") {
                let request: Vec<u8> = heard.drain(..end + 4).collect();
                let length = request.len();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                stream.write_all(&request)?;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                length => heard.extend(&buffer[..length]),
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // One that is cut is no surprise.
            thread::spawn(move || drop(converse(stream)));
        }
    });
}

/// Every name has the address [`OUTSIDE`], but that those that begin with `other` have [`OTHER`],
/// with `secure` [`SECURE`], and with `inside` a private one; a question for anything else has an empty answer.
fn answer_names(socket: UdpSocket) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let (length, client) = socket.recv_from(&mut buffer).unwrap();
            let name = buffer[12..length].iter().position(|byte| *byte == 0).unwrap() + 13;
            let mut answer = buffer[..name + 4].to_vec();
            let is_address = answer[name..] == [0, 1, 0, 1];
            answer[2] = 0x81;
            answer[3] = 0x80;
            answer[4..12].copy_from_slice(&[0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
            if is_address {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                let address = match &buffer[13..18] {
                    b"other" => OTHER,
                    b"insid" => PRIVATE[1],
                    b"secur" => SECURE,
                    _ => OUTSIDE,
                };
                answer.extend(address.octets());
            }
            socket.send_to(&answer, client).unwrap();
        }
    });
}

pub(super) const SOON: Duration = Duration::from_secs(2);
