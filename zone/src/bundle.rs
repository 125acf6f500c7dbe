//! The OCI `config.json` of one sandbox, as a function of a value.
//!
//! gVisor is the wall, so what a container has within it is generous: users have sudo, install
//! packages and debug. Limits are the cgroup's, on the host.

use std::path::Path;

use serde_json::{Value, json};

/// Where the agent lies inside, and where an image must have a place for it.
pub(crate) const AGENT_PATH: &str = "/.sandboxo/agent";
/// Its volumes, by their numbers, which the agent binds to where they are wanted.
pub(crate) const VOLUMES_PATH: &str = "/.sandboxo/volumes";
pub(crate) const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The usual ones of a container; `SYS_ADMIN` for the host name that comes at the claim and for
/// mounts within, `SYS_PTRACE` for debuggers, `SYS_RESOURCE` and `SYS_NICE` for services. Not
/// `NET_ADMIN`: addresses are the zone's to give.
const CAPABILITIES: [&str; 18] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SYS_NICE",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RESOURCE",
];

/// When the host itself runs short, a sandbox goes before its owner.
pub(crate) const OOM_SCORE: i16 = 500;

pub(crate) struct Bundle<'a> {
    pub(crate) rootfs: &'a Path,
    pub(crate) agent: &'a Path,
    pub(crate) boot_id: &'a Path,
    pub(crate) volumes: &'a Path,
    pub(crate) hostname: &'a str,
    /// `None`: a new one with nothing but loopback.
    pub(crate) netns: Option<&'a Path>,
    pub(crate) memory_mib: u32,
}

pub(crate) fn config(bundle: &Bundle<'_>) -> Value {
    let network = match bundle.netns {
        Some(path) => json!({"type": "network", "path": path}),
        None => json!({"type": "network"}),
    };
    json!({
        "ociVersion": "1.0.2",
        "hostname": bundle.hostname,
        "root": {"path": bundle.rootfs, "readonly": false},
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": [AGENT_PATH],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": false,
            "capabilities": {
                "bounding": CAPABILITIES,
                "effective": CAPABILITIES,
                "permitted": CAPABILITIES,
                "inheritable": [],
                "ambient": [],
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 65_536, "hard": 1_048_576}],
            "oomScoreAdj": OOM_SCORE,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {
                "destination": "/dev/shm",
                "type": "tmpfs",
                "source": "shm",
                "options": [
                    "nosuid",
                    "nodev",
                    "mode=1777",
                    format!("size={}m", (bundle.memory_mib / 2).max(16)),
                ],
            },
            {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
            {
                "destination": AGENT_PATH,
                "type": "bind",
                "source": bundle.agent,
                "options": ["bind", "ro"],
            },
            {
                "destination": BOOT_ID_PATH,
                "type": "bind",
                "source": bundle.boot_id,
                "options": ["bind", "ro"],
            },
            {
                "destination": VOLUMES_PATH,
                "type": "bind",
                "source": bundle.volumes,
                // With those that are attached already; the folder itself is read-only outside.
                "options": ["rbind", "rw", "nosuid", "nodev"],
            },
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "ipc"},
                {"type": "uts"},
                network,
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let full = config(&Bundle {
            rootfs: Path::new("/state/images/aa/rootfs"),
            agent: Path::new("/opt/agent"),
            boot_id: Path::new("/state/slots/c/boot_id"),
            volumes: Path::new("/run/a/c"),
            hostname: "sandbox",
            netns: Some(Path::new("/run/netns/x")),
            memory_mib: 512,
        });
        let golden: Value = serde_json::from_str(include_str!("bundle/golden.json")).unwrap();
        assert_eq!(full, golden, "{full:#}");
    }

    #[test]
    fn without_a_netns_runsc_makes_one() {
        let none = config(&Bundle {
            rootfs: Path::new("/r"),
            agent: Path::new("/a"),
            boot_id: Path::new("/b"),
            volumes: Path::new("/v"),
            hostname: "sandbox",
            netns: None,
            memory_mib: 16,
        });
        assert_eq!(none["linux"]["namespaces"][4], json!({"type": "network"}));
        assert_eq!(none["mounts"][2]["options"][3], "size=16m");
    }
}
