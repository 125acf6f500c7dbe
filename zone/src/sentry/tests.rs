//! What is said to a sentry, byte by byte where it matters, and what is made of its answers.

use std::{
    fs::File,
    io::IoSliceMut,
    os::{fd::FromRawFd, unix::net::UnixListener},
    thread::{JoinHandle, spawn},
};

use nix::{
    cmsg_space,
    sys::socket::{ControlMessageOwned, recvmsg},
};
use sandboxo_zone_protocol::fake::SeededRandom;

use super::*;

#[test]
fn masks_are_as_go_writes_them() {
    for (prefix, length, expected) in [
        (8, 4, "/wAAAA=="),
        (0, 4, "AAAAAA=="),
        (30, 4, "/////A=="),
        (128, 16, "/////////////////////w=="),
    ] {
        assert_eq!(mask(prefix, length), expected, "/{prefix}");
    }
}

#[test]
fn a_network_is_told_as_runsc_tells_it() {
    let loopback = json!([{
        "Name": "lo",
        "Addresses": [
            { "Address": "127.0.0.1", "PrefixLen": 8 },
            { "Address": "::1", "PrefixLen": 128 },
        ],
        "Routes": [
            { "Destination": { "IP": "127.0.0.0", "Mask": "/wAAAA==" } },
            { "Destination": { "IP": "::1", "Mask": "/////////////////////w==" } },
        ],
    }]);
    let alone = json!({ "LoopbackLinks": loopback, "DisconnectOk": false });
    assert_eq!(network(None, false), alone);
    let link = Handover {
        socket: File::open("/dev/null").unwrap().into(),
        name: "eth0",
        mtu: 1500,
        hardware: vec![2, 0, 0, 0, 0, 1],
        gso_max: 65536,
        address: "10.7.0.10/30".parse().unwrap(),
        gateway: "10.7.0.9/30".parse().unwrap(),
    };
    let told = network(Some(&link), true);
    assert_eq!(told["LoopbackLinks"], loopback);
    assert_eq!(told["DisconnectOk"], true);
    let linked = &told["FDBasedLinks"][0];
    assert_eq!(linked["Addresses"], json!([{ "Address": "10.7.0.10", "PrefixLen": 30 }]));
    let near = json!([{ "Destination": { "IP": "10.7.0.8", "Mask": "/////A==" } }]);
    assert_eq!(linked["Routes"], near);
    assert_eq!(linked["LinkAddress"], "AgAAAAAB");
    let route =
        json!({ "Destination": { "IP": "0.0.0.0", "Mask": "AAAAAA==" }, "Gateway": "10.7.0.9" });
    assert_eq!(told["Defaultv4Gateway"], json!({ "Name": "eth0", "Route": route }));
}

/// Hears one call, and answers in two pieces.
fn answering(answer: &'static str) -> (tempfile::TempDir, ContainerId, JoinHandle<(Value, usize)>) {
    let folder = tempfile::tempdir().unwrap();
    let container = ContainerId::random(&SeededRandom::new(1));
    let socket = UnixListener::bind(folder.path().join(format!("runsc-{container}.sock"))).unwrap();
    let heard = spawn(move || {
        let (mut peer, _) = socket.accept().unwrap();
        let mut bytes = [0; 4096];
        let mut room = cmsg_space!([i32; 4]);
        let (count, files) = {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::empty();
            let heard =
                recvmsg::<()>(peer.as_raw_fd(), &mut parts, Some(&mut room), flags).unwrap();
            let files: Vec<i32> = heard
                .cmsgs()
                .unwrap()
                .flat_map(|message| {
                    let ControlMessageOwned::ScmRights(files) = message else {
                        panic!("{message:?}");
                    };
                    files
                })
                .collect();
            (heard.bytes, files)
        };
        for file in &files {
            #[expect(unsafe_code, reason = "they were sent to be owned")]
            // SAFETY: nobody else knows of it.
            drop(unsafe { OwnedFd::from_raw_fd(*file) });
        }
        let (first, rest) = answer.split_at(answer.len() / 2);
        peer.write_all(first.as_bytes()).unwrap();
        peer.write_all(rest.as_bytes()).unwrap();
        (serde_json::from_slice(&bytes[..count]).unwrap(), files.len())
    });
    (folder, container, heard)
}

fn image(with_pages: bool) -> ImageFiles {
    let file = || OwnedFd::from(File::open("/dev/null").unwrap());
    ImageFiles { state: file(), pages: with_pages.then(|| (file(), file())) }
}

#[test]
fn a_restore_hands_over_its_files() {
    for (with_pages, files) in [(false, 1), (true, 3)] {
        let (folder, container, heard) = answering(r#"{"success":true,"err":"","result":{}}"#);
        let mut sentry = Sentry::connect(folder.path(), container).unwrap();
        sentry.restore(&image(with_pages), CALL_TIMEOUT).unwrap();
        let arguments = json!({ "HavePagesFile": with_pages });
        let call = json!({ "method": "containerManager.Restore", "arg": arguments });
        assert_eq!(heard.join().unwrap(), (call, files));
    }
}

#[test]
fn what_goes_wrong_is_told() {
    for (answer, expected) in [
        (r#"{"success":false,"err":"no"}"#, "the sentry refuses containerManager.Restore: no"),
        (r#"{"fine":true}"#, "the sentry's answer to containerManager.Restore can't be read"),
        ("nonsense", "the sentry's answer to containerManager.Restore can't be read"),
        (r#"{"success":tr"#, "speak to the sentry"),
    ] {
        let (folder, container, heard) = answering(answer);
        let mut sentry = Sentry::connect(folder.path(), container).unwrap();
        let error = sentry.restore(&image(false), CALL_TIMEOUT).unwrap_err();
        assert_eq!(error.to_string(), expected);
        heard.join().unwrap();
    }
    let nowhere = tempfile::tempdir().unwrap();
    let container = ContainerId::random(&SeededRandom::new(1));
    let error = Sentry::connect(nowhere.path(), container).err().unwrap();
    assert!(matches!(error, SentryError::Io(_)), "{error:?}");
}
