//! The same with a real guest: the sentry has a network stack of its own.

use std::{
    fs,
    process::{Command, Output},
    thread,
};

use sandboxo_tasks::Tasks;
use sandboxo_zone::network::Lease;
use sandboxo_zone_protocol::NetworkPolicy;

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
        let policy = NetworkPolicy { deny, ..NetworkPolicy::OPEN };
        lease.apply(&policy).await.unwrap();

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
        let output = run(&lease, &script);
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

#[test]
fn a_guest_of_gvisor_is_held_to_names() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let (deny, names) = (vec!["0.0.0.0/0".parse().unwrap()], vec!["*.test".parse().unwrap()]);
        lease.apply(&NetworkPolicy { deny, names, ..NetworkPolicy::OPEN }).await.unwrap();
        let outside = OUTSIDE.to_string();
        let tries = [
            ("a.test", "a.test", "HTTP/1.1 200 OK"),
            ("other.test", "other.test", "HTTP/1.1 200 OK"),
            (&outside, "a.test", "HTTP/1.1 200 OK"),
            (&outside, "other.test", ""),
            ("a.test", "evil.example", ""),
            ("evil.example", "a.test", ""),
            ("inside.test", "inside.test", ""),
        ];
        let script: Vec<String> = tries
            .iter()
            .map(|(address, name, _)| {
                format!(
                    "timeout 20 bash -c 'exec 3<>/dev/tcp/{address}/80; \
                     printf \"GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n\" >&3; \
                     head -c 15 <&3' 2>/dev/null; echo \" by $?\" | sed s/124/time/\n"
                )
            })
            .collect();
        // Another resolver does not answer, and nobody waits for it.
        let resolver = format!(
            "timeout 20 bash -c 'exec 3<>/dev/udp/{outside}/53; echo x >&3; head -c 1 <&3' \
             2>/dev/null; echo \" by $?\" | sed s/124/time/\n"
        );
        let output = run(&lease, &(script.concat() + &resolver));
        let text = String::from_utf8(output.stdout).unwrap();
        let seen: Vec<&str> = text.lines().map(|it| it.split(" by ").next().unwrap()).collect();
        let expected: Vec<&str> = tries.iter().map(|(.., answer)| *answer).chain([""]).collect();
        assert_eq!(seen, expected, "{text}");
        assert!(!text.contains("time"), "{text}");
        assert!(tasks.shut_down(SOON).await);
    });
}

/// That script, as the only process of a sandbox.
fn run(lease: &Lease, script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let resolv_conf = folder.path().join("resolv.conf");
    fs::write(&resolv_conf, format!("nameserver {}\n", lease.nameservers()[0])).unwrap();
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

    thread::scope(|scope| {
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
    })
}
