//! What a process in a sandbox's namespace can do.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
};

use sandboxo_zone::network::Lease;

use super::world::{PORT, SOON, within};

/// What came of a try to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connects {
    Yes,
    /// Told so, without waiting.
    Refused,
    /// No answer came.
    TimedOut,
}

pub(super) struct Guest<'a>(pub(super) &'a Path);

impl<'a> Guest<'a> {
    pub(super) fn of(lease: &'a Lease) -> Self {
        Self(lease.netns_path())
    }

    pub(super) fn connects(&self, address: Ipv4Addr, port: u16) -> Connects {
        within(self.0, || match connect((address, port).into()) {
            Ok(_) => Connects::Yes,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Connects::TimedOut,
            Err(_) => Connects::Refused,
        })
    }

    pub(super) fn stream(&self, address: Ipv4Addr) -> Talk {
        within(self.0, || Talk::new(connect((address, PORT).into()).unwrap()))
    }

    /// What is heard back, until there is as much of it as is told.
    pub(super) fn says(
        &self,
        to: (Ipv4Addr, u16),
        what: &[u8],
        least: usize,
    ) -> io::Result<Vec<u8>> {
        within(self.0, || {
            let mut stream = connect(to.into())?;
            stream.write_all(what)?;
            hear(&mut stream, least)
        })
    }

    pub(super) fn connection(&self, to: (Ipv4Addr, u16)) -> TcpStream {
        within(self.0, || connect(to.into()).unwrap())
    }

    /// The address it is told, and how the answer ended.
    pub(super) fn told(
        &self,
        nameserver: IpAddr,
        name: &str,
    ) -> io::Result<(u8, Option<Ipv4Addr>)> {
        let answer = self.ask(nameserver, name)?;
        let end = answer.last_chunk::<4>().filter(|_| answer[7] == 1);
        Ok((answer[3] & 0x0f, end.map(|it| (*it).into())))
    }

    pub(super) fn ask(&self, nameserver: IpAddr, name: &str) -> io::Result<Vec<u8>> {
        within(self.0, || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_read_timeout(Some(SOON))?;
            socket.connect((nameserver, 53))?;
            socket.send(&question(name))?;
            let mut answer = vec![0; 4096];
            let length = socket.recv(&mut answer)?;
            answer.truncate(length);
            Ok(answer)
        })
    }

    pub(super) fn ask_by_tcp(&self, nameserver: IpAddr, name: &str) -> io::Result<Vec<u8>> {
        within(self.0, || {
            let mut stream = connect((nameserver, 53).into())?;
            let question = question(name);
            stream.write_all(&u16::try_from(question.len()).unwrap().to_be_bytes())?;
            stream.write_all(&question)?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut answer = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        })
    }
}

pub(super) fn hear(stream: &mut TcpStream, least: usize) -> io::Result<Vec<u8>> {
    let mut heard = vec![0; 16 * 1024];
    let mut length = 0;
    while length < least {
        match stream.read(&mut heard[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    heard.truncate(length);
    Ok(heard)
}

pub(super) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, SOON)?;
    stream.set_read_timeout(Some(SOON))?;
    Ok(stream)
}

fn question(name: &str) -> Vec<u8> {
    let mut message = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// A connection to the world's echo.
pub(super) struct Talk {
    stream: BufReader<TcpStream>,
    /// Whom the other side took us for.
    pub(super) seen_as: String,
}

impl Talk {
    fn new(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut seen_as = String::new();
        stream.read_line(&mut seen_as).unwrap();
        Self { stream, seen_as: seen_as.trim().to_owned() }
    }

    pub(super) fn says(&mut self, text: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut heard = String::new();
        self.stream.read_line(&mut heard)?;
        if heard.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(heard.trim().to_owned())
    }
}
