//! The same with a real guest: the sentry has a network stack of its own.

use std::{fs, process::Command, thread};

use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{NetworkMode, NetworkPolicy};

use super::{
    guest::Connects,
    world::{self, GATEWAY, HOST, OTHER, OUTSIDE, PORT, SOON, within},
};

#[test]
fn a_guest_of_gvisor_is_held_to_the_same() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let deny = vec![format!("{OTHER}/32").parse().unwrap()];
        let policy = NetworkPolicy { mode: NetworkMode::Full, allow: vec![], deny };
        lease.apply(&policy).await.unwrap();

        let folder = tempfile::tempdir().unwrap();
        let resolv_conf = folder.path().join("resolv.conf");
        fs::write(&resolv_conf, format!("nameserver {}\n", lease.nameservers()[0])).unwrap();
        let targets = [
            ("outside", OUTSIDE.to_string(), Connects::Yes),
            ("by name", "example.com".to_owned(), Connects::Yes),
            ("denied", OTHER.to_string(), Connects::Refused),
            ("metadata", "169.254.169.254".to_owned(), Connects::Refused),
            ("host", HOST.to_string(), Connects::Refused),
            ("gateway", GATEWAY.to_string(), Connects::Refused),
            ("private", "10.99.0.1".to_owned(), Connects::Refused),
            ("sibling", sibling.record().address().to_string(), Connects::Refused),
        ];
        let tries: Vec<String> = targets
            .iter()
            .map(|(_, target, _)| {
                format!(
                    "if timeout 2 bash -c 'exec 3<>/dev/tcp/{target}/{PORT}' 2>/dev/null; then \
                     echo Yes; elif [ $? = 124 ]; then echo TimedOut; else echo Refused; fi\n"
                )
            })
            .collect();
        // Loopback is all there is of IPv6.
        let script = format!("grep -c . /proc/net/if_inet6\n{}", tries.concat());
        let config = serde_json::json!({
            "ociVersion": "1.0.0",
            "process": {
                "args": ["/bin/bash", "-c", script],
                "cwd": "/",
                "env": ["PATH=/usr/bin:/bin"],
                "user": {"uid": 65534, "gid": 65534},
            },
            "root": {"path": "/", "readonly": true},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/etc/resolv.conf", "type": "bind", "source": resolv_conf, "options": ["ro"]},
            ],
            "linux": {"namespaces": [
                {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"},
                {"type": "network", "path": lease.netns_path()},
            ]},
        });
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

        let output = thread::scope(|scope| {
            let run = scope.spawn(|| {
                within(lease.netns_path(), || {
                    Command::new("unshare")
                        .args(["-m", "--propagation", "slave", "sh", "-c"])
                        .arg(
                            "mount -t tmpfs -o size=4k none /proc/sys/net && exec runsc \
                             --root \"$1/state\" --platform=ptrace --network=sandbox \
                             --ignore-cgroups --overlay2=root:memory run --bundle \"$1\" n1",
                        )
                        .arg("sh")
                        .arg(folder.path())
                        .output()
                        .unwrap()
                })
            });
            run.join().unwrap()
        });
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let text = String::from_utf8(output.stdout).unwrap();
        let expected: Vec<String> = std::iter::once("1".to_owned())
            .chain(targets.iter().map(|(what, _, expected)| format!("{what}: {expected:?}")))
            .collect();
        let mut lines = text.lines();
        let seen: Vec<String> = std::iter::once(lines.next().unwrap_or_default().to_owned())
            .chain(targets.iter().zip(lines).map(|((what, ..), line)| format!("{what}: {line}")))
            .collect();
        assert_eq!(seen, expected, "{error}");
        assert!(tasks.shut_down(SOON).await);
    });
}
