//! What sandboxes reach: an internet of one host, in a namespace behind this machine, whose
//! certificate an appliance can be told to believe.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// Dropping it takes it away.
pub struct Outside {
    name: String,
    address: String,
    folder: TempDir,
    server: Option<Child>,
}

const SERVER: &str = include_str!("outside.py");

impl Outside {
    /// What its host is called.
    pub const HOST: &str = "relying.test";

    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sbxo-outside").tempdir()?;
        let (number, name) = claim()?;
        // As documents have addresses of the internet: nobody's, and not refused to sandboxes.
        let address = format!("203.0.113.{number}");
        let mut outside = Self { name, address, folder, server: None };
        outside.build(number)?;
        outside.certify()?;
        outside.serve()?;
        Ok(outside)
    }

    /// Who tells names.
    pub fn resolver(&self) -> &str {
        &self.address
    }

    /// Who has signed for the host.
    pub fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    /// The file that gets a line for each request.
    pub fn hearing(&self) -> PathBuf {
        self.folder.path().join("heard")
    }

    /// The last request with that path.
    pub fn heard(&self, path: &str) -> Result<Value> {
        let lines = std::fs::read_to_string(self.hearing())?;
        let mut all = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let asked = |it: &Value| it.get("path").and_then(Value::as_str) == Some(path);
        all.rfind(asked).with_context(|| format!("nobody asked for {path}: {lines}"))
    }

    fn build(&self, number: u8) -> Result<()> {
        let Self { name, address, .. } = self;
        let (here, there) = (4 * u16::from(number) + 1, 4 * u16::from(number) + 2);
        ip(&format!("link set {name} netns {name} name outside"))?;
        ip(&format!("addr add 198.51.100.{here}/30 dev {name}h"))?;
        ip(&format!("link set {name}h up"))?;
        ip(&format!("-n {name} addr add 198.51.100.{there}/30 dev outside"))?;
        ip(&format!("-n {name} addr add {address}/32 dev lo"))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set outside up"))?;
        ip(&format!("-n {name} route add default via 198.51.100.{here}"))?;
        ip(&format!("route add {address}/32 via 198.51.100.{there}"))?;
        // An appliance forwards to where default routes lead. Of this one nothing else takes notice.
        let metric = 4_000_000 + u32::from(number);
        ip(&format!("route add default via 198.51.100.{there} metric {metric}"))
    }

    fn certify(&self) -> Result<()> {
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let ca = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign";
        let host = format!(
            "-addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:{}",
            Self::HOST
        );
        self.openssl(&format!(
            "req -x509 {new} -subj /CN=roots -keyout ca.key -out roots.pem {ca}"
        ))?;
        self.openssl(&format!(
            "req -x509 {new} -subj /CN=host -keyout host.key -out host.pem {host} \
             -CA roots.pem -CAkey ca.key"
        ))
    }

    fn openssl(&self, arguments: &str) -> Result<()> {
        run(Command::new("openssl").args(arguments.split_whitespace()).current_dir(&self.folder))
    }

    fn serve(&mut self) -> Result<()> {
        let mut server = Command::new("ip")
            .args(["netns", "exec", &self.name, "python3", "-c", SERVER, &self.address])
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = server.stdout.take();
        self.server = Some(server);
        let mut said = String::new();
        BufReader::new(stdout.context("what it says")?).read_line(&mut said)?;
        ensure!(said == "ready\n", "it does not serve: {said:?}");
        Ok(())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let ended = self.server.as_mut().map_or(Ok(()), |server| {
            server.kill()?;
            server.wait().map(drop)
        });
        let removed = ip(&format!("netns del {}", self.name));
        // A second panic would hide the first.
        if !std::thread::panicking() {
            assert!(ended.is_ok() && removed.is_ok(), "{ended:?} {removed:?}");
        }
    }
}

/// Tests run side by side: whoever has made the namespace has the number.
fn claim() -> Result<(u8, String)> {
    for number in 1..=60 {
        let name = format!("outside{number}");
        if ip(&format!("netns add {name}")).is_ok() {
            ip(&format!("link add {name}h type veth peer name {name}"))?;
            return Ok((number, name));
        }
    }
    anyhow::bail!("sixty of them are there already: ip netns")
}

fn ip(arguments: &str) -> Result<()> {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
