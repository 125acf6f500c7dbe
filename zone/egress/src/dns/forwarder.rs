//! The listening side: who may ask how much at a time.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::Random;
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    time::timeout,
};

use super::{
    Resolvers,
    ask::{Transport, ask, read_framed, write_framed},
    message::{self, Asked, Query},
    names::{Fate, fate},
};
use crate::Guests;

const LARGEST_QUERY: usize = 4096;
/// Questions and connections being worked on.
const AT_A_TIME: usize = 512;
/// Of one sandbox, so that it keeps none of the others from asking.
const OF_ONE: usize = 64;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Made by a thread in the namespace where sandboxes can reach them.
pub struct Sockets {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
}

impl Sockets {
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let udp = std::net::UdpSocket::bind(address)?;
        udp.set_nonblocking(true)?;
        let tcp = std::net::TcpListener::bind(udp.local_addr()?)?;
        tcp.set_nonblocking(true)?;
        Ok(Self { udp, tcp })
    }
}

pub struct Forwarder {
    udp: UdpSocket,
    tcp: TcpListener,
    resolvers: Resolvers,
    guests: Guests,
    random: Arc<dyn Random>,
}

impl Forwarder {
    pub fn new(
        sockets: Sockets,
        resolvers: Resolvers,
        guests: Guests,
        random: Arc<dyn Random>,
    ) -> io::Result<Self> {
        let udp = UdpSocket::from_std(sockets.udp)?;
        let tcp = TcpListener::from_std(sockets.tcp)?;
        Ok(Self { udp, tcp, resolvers, guests, random })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Serves until it is told to stop.
    pub async fn run(self, stop: Stop) {
        let mut desk = Desk::default();
        let mut work: FuturesUnordered<BoxFuture<'_, IpAddr>> = FuturesUnordered::new();
        let mut buffer = vec![0; LARGEST_QUERY];
        loop {
            let has_room = work.len() < AT_A_TIME;
            tokio::select! {
                () = stop.cancelled() => return,
                Some(done) = work.next() => desk.leave(done),
                received = self.udp.recv_from(&mut buffer), if has_room => match received {
                    Ok((length, client)) => {
                        let bytes = buffer.get(..length).unwrap_or_default();
                        match Asked::read(bytes) {
                            Asked::Query(query) if desk.enter(client.ip()) => {
                                work.push(Box::pin(self.answer(query, client)));
                            }
                            Asked::Refused(answer) => self.send(&answer, client).await,
                            // It asks too much at a time, or nonsense.
                            Asked::Query(_) | Asked::Nonsense => {}
                        }
                    }
                    Err(error) => tracing::debug!(%error, "receive a question"),
                },
                accepted = self.tcp.accept(), if has_room => match accepted {
                    Ok((stream, client)) if desk.enter(client.ip()) => {
                        work.push(Box::pin(self.converse(stream, client.ip())));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "accept a connection for DNS");
                        // Out of descriptors: the next accept would fail at once, too.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
    }

    async fn answer(&self, query: Query, client: SocketAddr) -> IpAddr {
        if let Some(answer) = self.ask(&query, Transport::Udp, client.ip()).await {
            self.send(&answer, client).await;
        }
        client.ip()
    }

    /// `None`: nobody is told anything.
    async fn ask(&self, query: &Query, transport: Transport, client: IpAddr) -> Option<Vec<u8>> {
        let ask = || ask(query, transport, &self.resolvers, &*self.random);
        let guest = self.guests.find_by(client);
        match fate(query, guest.as_deref()) {
            Fate::Ask => Some(ask().await),
            Fate::AskFor(name) => {
                let answer = ask().await;
                let (addresses, _) = message::addresses(&answer);
                if let Some(guest) = guest {
                    guest.note(&name, &addresses);
                }
                Some(answer)
            }
            Fate::Fail(failure) => Some(query.fail(failure)),
            Fate::Drop => None,
        }
    }

    async fn send(&self, answer: &[u8], client: SocketAddr) {
        if let Err(error) = self.udp.send_to(answer, client).await {
            tracing::debug!(%client, %error, "send an answer");
        }
    }

    async fn converse(&self, mut stream: TcpStream, client: IpAddr) -> IpAddr {
        if let Err(error) = self.converse_until(&mut stream, client).await {
            tracing::debug!(%client, %error, "a connection for DNS");
        }
        client
    }

    async fn converse_until(&self, stream: &mut TcpStream, client: IpAddr) -> io::Result<()> {
        while let Some(bytes) = timeout(SILENCE, read_framed(stream)).await?? {
            let answer = match Asked::read(&bytes) {
                Asked::Query(query) => match self.ask(&query, Transport::Tcp, client).await {
                    Some(answer) => answer,
                    None => return Ok(()),
                },
                Asked::Refused(answer) => answer,
                Asked::Nonsense => return Ok(()),
            };
            timeout(SILENCE, write_framed(stream, &answer)).await??;
        }
        Ok(())
    }
}

/// How many each client has.
#[derive(Default)]
struct Desk {
    clients: HashMap<IpAddr, usize>,
}

impl Desk {
    fn enter(&mut self, client: IpAddr) -> bool {
        let count = self.clients.entry(client).or_default();
        let may = *count < OF_ONE;
        if may {
            *count += 1;
        }
        may
    }

    fn leave(&mut self, client: IpAddr) {
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_tasks::Tasks;
    use sandboxo_zone_protocol::fake::SeededRandom;
    use tokio::time::Instant;

    use super::*;
    use crate::dns::message::tests::{answer, ask};

    const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    /// What a resolver under test does with a question.
    #[derive(Clone, Copy)]
    enum Manner {
        Says {
            rcode: u8,
            size: usize,
        },
        /// Wrong id first, then the right answer.
        IsImpersonated,
        IsSilent,
    }

    /// A port that is free for datagrams may be taken for connections.
    fn sockets() -> Sockets {
        let mut tries = (0..100).map(|_| Sockets::bind(SocketAddr::from(LOOPBACK)));
        let taken = |tried: &io::Result<Sockets>| {
            tried.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        tries.find(|tried| !taken(tried)).unwrap().unwrap()
    }

    #[expect(clippy::unused_async, reason = "its sockets need a runtime")]
    async fn resolver(tasks: &Tasks, manner: Manner) -> SocketAddr {
        let Sockets { udp, tcp } = sockets();
        let udp = UdpSocket::from_std(udp).unwrap();
        let tcp = TcpListener::from_std(tcp).unwrap();
        let address = udp.local_addr().unwrap();
        tasks.spawn("udp resolver", |_| async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, client) = udp.recv_from(&mut buffer).await.unwrap();
                let asked = &buffer[..length];
                match manner {
                    Manner::Says { rcode, size } => {
                        udp.send_to(&answer(asked, rcode, size), client).await.unwrap();
                    }
                    Manner::IsImpersonated => {
                        let mut wrong = answer(asked, 0, 4);
                        wrong[0] ^= 1;
                        udp.send_to(&wrong, client).await.unwrap();
                        udp.send_to(&answer(asked, 0, 8), client).await.unwrap();
                    }
                    Manner::IsSilent => {}
                }
            }
        });
        tasks.spawn("tcp resolver", |_| async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                while let Some(asked) = read_framed(&mut stream).await.unwrap() {
                    if let Manner::Says { rcode, size } = manner {
                        write_framed(&mut stream, &answer(&asked, rcode, size)).await.unwrap();
                    }
                }
            }
        });
        address
    }

    /// Nothing listens there.
    fn nobody() -> SocketAddr {
        std::net::UdpSocket::bind(SocketAddr::from(LOOPBACK)).unwrap().local_addr().unwrap()
    }

    fn forwarder(tasks: &Tasks, resolvers: Vec<SocketAddr>) -> SocketAddr {
        let sockets = sockets();
        let random = Arc::new(SeededRandom::new(1));
        let forwarder =
            Forwarder::new(sockets, Resolvers::new(resolvers), Guests::default(), random).unwrap();
        let address = forwarder.address().unwrap();
        tasks.spawn("forwarder", |stop| forwarder.run(stop));
        address
    }

    async fn client(forwarder: SocketAddr) -> UdpSocket {
        let socket = UdpSocket::bind(SocketAddr::from(LOOPBACK)).await.unwrap();
        socket.connect(forwarder).await.unwrap();
        socket
    }

    async fn exchange(client: &UdpSocket, asked: &[u8]) -> Vec<u8> {
        client.send(asked).await.unwrap();
        let mut answer = Vec::with_capacity(65_535);
        client.recv_buf(&mut answer).await.unwrap();
        answer
    }

    async fn over_tcp(forwarder: SocketAddr, asked: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut stream = TcpStream::connect(forwarder).await.unwrap();
        let mut answers = Vec::new();
        for asked in asked {
            write_framed(&mut stream, asked).await.unwrap();
            answers.push(read_framed(&mut stream).await.unwrap());
        }
        answers
    }

    #[tokio::test]
    async fn answers_pass_through() {
        let tasks = Tasks::new();
        let asked = ask([1, 2], "example.com");
        for (why, manner, expected) in [
            ("small", Manner::Says { rcode: 0, size: 16 }, answer(&asked, 0, 16)),
            ("over 512 bytes", Manner::Says { rcode: 0, size: 4000 }, answer(&asked, 0, 4000)),
            ("no such name", Manner::Says { rcode: 3, size: 0 }, answer(&asked, 3, 0)),
            ("the only one refuses", Manner::Says { rcode: 5, size: 0 }, answer(&asked, 5, 0)),
            ("somebody guesses", Manner::IsImpersonated, answer(&asked, 0, 8)),
        ] {
            let resolver = resolver(&tasks, manner).await;
            let client = client(forwarder(&tasks, vec![resolver])).await;
            assert_eq!(exchange(&client, &asked).await, expected, "{why}");
        }
    }

    #[tokio::test]
    async fn large_answers_go_over_tcp_and_a_connection_may_ask_twice() {
        let tasks = Tasks::new();
        let resolver = resolver(&tasks, Manner::Says { rcode: 0, size: 60_000 }).await;
        let forwarder = forwarder(&tasks, vec![nobody(), resolver]);
        let (first, second) = (ask([1, 2], "example.com"), ask([3, 4], "example.org"));
        assert_eq!(
            over_tcp(forwarder, &[&first, &second]).await,
            [Some(answer(&first, 0, 60_000)), Some(answer(&second, 0, 60_000))]
        );
        // An answer ends the conversation, a wrong question does not.
        assert_eq!(over_tcp(forwarder, &[&answer(&first, 0, 0)]).await, [None]);
        let mut nothing_asked = first[..12].to_vec();
        nothing_asked[5] = 0;
        let answers = over_tcp(forwarder, &[&nothing_asked, &first]).await;
        assert_eq!(answers[0].as_ref().unwrap()[3] & 0x0f, 1);
        assert_eq!(answers[1], Some(answer(&first, 0, 60_000)));
    }

    #[tokio::test]
    async fn the_next_resolver_answers_for_one_that_does_not() {
        let tasks = Tasks::new();
        let asked = ask([1, 2], "example.com");
        let good = resolver(&tasks, Manner::Says { rcode: 0, size: 16 }).await;
        let failing = resolver(&tasks, Manner::Says { rcode: 2, size: 0 }).await;
        let silent = resolver(&tasks, Manner::IsSilent).await;
        for (why, first) in [("closed", nobody()), ("failing", failing), ("silent", silent)] {
            let client = client(forwarder(&tasks, vec![first, good])).await;
            let started = Instant::now();
            assert_eq!(exchange(&client, &asked).await, answer(&asked, 0, 16), "{why}");
            assert!(started.elapsed() < Duration::from_secs(3), "{why}: {:?}", started.elapsed());
            if why == "silent" {
                // It is known by now.
                let started = Instant::now();
                assert_eq!(exchange(&client, &asked).await, answer(&asked, 0, 16));
                assert!(started.elapsed() < Duration::from_millis(900));
            }
        }
    }

    #[tokio::test]
    async fn without_a_resolver_the_server_has_failed() {
        let tasks = Tasks::new();
        let asked = ask([1, 2], "example.com");
        let failed = [&[1, 2, 0x81, 0x82, 0, 1, 0, 0, 0, 0, 0, 0], &asked[12..]].concat();
        for resolvers in [vec![], vec![nobody(), nobody()]] {
            let forwarder = forwarder(&tasks, resolvers);
            assert_eq!(exchange(&client(forwarder).await, &asked).await, failed);
            assert_eq!(over_tcp(forwarder, &[&asked]).await, [Some(failed.clone())]);
        }
    }

    #[test]
    fn one_client_cannot_take_every_place() {
        let mut desk = Desk::default();
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let entered = (0..100).filter(|_| desk.enter(one)).count();
        assert_eq!(entered, OF_ONE);
        assert!(desk.enter(other));
        desk.leave(one);
        assert!(desk.enter(one));
        assert!(!desk.enter(one));
        desk.leave(other);
        assert_eq!(desk.clients.len(), 1);
    }
}
