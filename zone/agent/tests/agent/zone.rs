//! The agent as its zone meets it: over the channel on its standard input.
//!
//! No claim here has a host name or resolvers: they would be this host's.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sandboxo_channel::{
    Claim, Noticed, OpenError, Request, Response, Stream, Target, ZoneEnd, attach,
};
use sandboxo_tasks::Tasks;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

struct Sandbox {
    child: Child,
    /// None between one zone and the next.
    zone: Option<ZoneEnd>,
    /// A keeper's: the channel stays open without a zone.
    kept: OwnedFd,
    driver: JoinHandle<()>,
}

impl Sandbox {
    fn boot() -> Self {
        let kind = SockType::SeqPacket;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sandboxo-agent"))
            .stdin(Stdio::from(theirs))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let kept = ours.try_clone().unwrap();
        let (zone, driver) = take(ours, 1);
        Self { child, zone: Some(zone), kept, driver }
    }

    fn zone(&self) -> &ZoneEnd {
        self.zone.as_ref().unwrap()
    }

    async fn claim(&self, sandbox_id: &str) -> Response {
        self.zone().request(Request::Claim(claim(sandbox_id))).await.unwrap()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn take(fd: OwnedFd, epoch: u64) -> (ZoneEnd, JoinHandle<()>) {
    let (zone, driver) = attach(fd, epoch).unwrap();
    (zone, Tasks::new().spawn("channel", |_stop| driver))
}

fn claim(sandbox_id: &str) -> Claim {
    Claim {
        sandbox_id: sandbox_id.into(),
        template_id: "base".into(),
        env: BTreeMap::from([("GREETING".into(), "hi".into())]),
        hostname: String::new(),
        agent_token: Some("secret".into()),
        user: "root".into(),
        workdir: None,
        nameservers: Vec::new(),
        pids: 0,
        authority: None,
    }
}

async fn ask(mut stream: Stream, path: &str) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nx-access-token: secret\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn nothing_is_served_before_a_claim_and_there_is_one() {
    let sandbox = Sandbox::boot();
    let zone = sandbox.zone();
    assert_eq!(zone.hello().await.unwrap().claimed, None);
    assert_eq!(zone.request(Request::Ping).await.unwrap(), Response::Pong);
    assert_eq!(zone.request(Request::WarmUp).await.unwrap(), Response::Warm);
    // A process on a host changes none of its files.
    let believe = Request::Believe("x".into());
    assert_eq!(zone.request(believe).await.unwrap(), Response::Believes);
    assert_eq!(zone.open(Target::Port(1)).await.map(drop), Err(OpenError::PortClosed));
    // A stream to the agent is open at once, and breaks.
    let mut refused = zone.open(Target::Agent).await.unwrap();
    let broken = refused.read_u8().await.unwrap_err();
    assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(sandbox.claim("sbx-loc-1").await, Response::Claimed);
    assert_eq!(sandbox.claim("sbx-loc-1").await, Response::Claimed);
    let refused = Response::Refused("the sandbox is another's".into());
    assert_eq!(sandbox.claim("sbx-loc-2").await, refused);
    let answer = ask(zone.open(Target::Agent).await.unwrap(), "/envs").await;
    let body: serde_json::Value =
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let wanted = json!({
        "GREETING": "hi", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "sbx-loc-1",
        "E2B_TEMPLATE_ID": "base",
    });
    assert_eq!(body, wanted);
}

#[tokio::test]
async fn programs_are_told_of_once_and_without_their_environment() {
    let sandbox = Sandbox::boot();
    sandbox.zone().hello().await.unwrap();
    assert_eq!(sandbox.claim("sbx-loc-1").await, Response::Claimed);
    let notices = async || {
        let answer = sandbox.zone().request(Request::Notices).await.unwrap();
        let Response::Notices(notices) = answer else { panic!("{answer:?}") };
        notices
    };
    assert_eq!(notices().await, []);
    let start = json!({
        "process": { "cmd": "/bin/sh", "args": ["-c", "exit $CODE"], "envs": { "CODE": "3" } },
    });
    let message = start.to_string();
    let mut request = format!(
        "POST /process.Process/Start HTTP/1.1\r\nhost: x\r\nx-access-token: secret\r\n\
         content-type: application/connect+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        message.len() + 5
    )
    .into_bytes();
    request.push(0);
    request.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    request.extend(message.as_bytes());
    let mut stream = sandbox.zone().open(Target::Agent).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let told = notices().await;
    let [started, ended] = &told[..] else { panic!("{told:?}") };
    let Noticed::Started { pid, command } = &started.what else { panic!("{started:?}") };
    assert_eq!(command, "/bin/sh -c exit $CODE");
    let status = "exit status 3".to_owned();
    assert_eq!(ended.what, Noticed::Ended { pid: *pid, exit_code: 3, status });
    assert!(started.at_ms <= ended.at_ms && started.at_ms > 0);
    assert_eq!(notices().await, []);
}

#[tokio::test]
async fn ports_are_carried_with_their_half_closes() {
    let sandbox = Sandbox::boot();
    sandbox.zone().hello().await.unwrap();
    sandbox.claim("sbx-loc-1").await;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let echo = async {
            let (mut inside, _from) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            inside.read_to_end(&mut seen).await.unwrap();
            inside.write_all(&seen).await.unwrap();
        };
        let speak = async {
            let mut stream = sandbox.zone().open(Target::Port(port)).await.unwrap();
            stream.write_all(b"all of it").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = String::new();
            stream.read_to_string(&mut back).await.unwrap();
            back
        };
        let ((), back) = tokio::join!(echo, speak);
        assert_eq!(back, "all of it", "{address}");
        drop(listener);
        let refused = sandbox.zone().open(Target::Port(port)).await;
        assert!(matches!(refused, Err(OpenError::PortClosed)), "{address}");
    }
}

#[tokio::test]
async fn a_new_zone_finds_everything_as_it_was() {
    let mut sandbox = Sandbox::boot();
    sandbox.zone().hello().await.unwrap();
    sandbox.claim("sbx-loc-1").await;
    let mut open = sandbox.zone().open(Target::Agent).await.unwrap();
    open.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    open.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 204");

    // Gone with all that it had open.
    drop(open);
    drop(sandbox.zone.take());
    (&mut sandbox.driver).await.unwrap();
    let (next, driver) = take(sandbox.kept.try_clone().unwrap(), 2);
    (sandbox.zone, sandbox.driver) = (Some(next), driver);
    assert_eq!(sandbox.zone().hello().await.unwrap().claimed.as_deref(), Some("sbx-loc-1"));
    let answer = ask(sandbox.zone().open(Target::Agent).await.unwrap(), "/health").await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}
