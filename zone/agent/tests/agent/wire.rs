//! The bytes of answers in both codecs, as clients of any make read them.

use sandboxo_agent_proto::{
    connect::{Codec, Envelope, Envelopes},
    filesystem::{ListDirRequest, ListDirResponse, StatRequest, StatResponse},
    process::{
        ListRequest, ListResponse, ProcessConfig, StartRequest, StartResponse,
        process_event::{Event, data_event::Output},
    },
};

use crate::harness::{Agent, envelope, shell};

async fn post(agent: &Agent, path: &str, content_type: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let request = agent.client.post(agent.url(path)).header("content-type", content_type);
    let response = request.body(body).send().await.unwrap();
    let status = response.status().as_u16();
    if status == 200 {
        assert_eq!(response.headers()["content-type"], content_type);
    }
    (status, response.bytes().await.unwrap().to_vec())
}

#[tokio::test]
async fn a_stream_in_json_has_these_bytes() {
    let agent = Agent::start();
    let body = envelope(&shell("printf hi; exit 3"));
    let (_status, bytes) =
        post(&agent, "/process.Process/Start", "application/connect+json", body).await;
    let text = String::from_utf8(bytes).unwrap();
    let pid: String =
        text.split("\"pid\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    let message = |text: String| {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        String::from_utf8(bytes).unwrap() + &text
    };
    let wanted = [
        message(format!("{{\"event\":{{\"start\":{{\"pid\":{pid}}}}}}}")),
        message("{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}".to_owned()),
        message(
            "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\
             \"error\":\"exit status 3\"}}}"
                .to_owned(),
        ),
        "\x02\0\0\0\x02{}".to_owned(),
    ];
    assert_eq!(text, wanted.concat());
}

#[tokio::test]
async fn protobuf_says_the_same() {
    let agent = Agent::start();
    let process = ProcessConfig {
        cmd: "/bin/sh".into(),
        args: vec!["-c".into(), "printf hi; printf oops >&2; kill -9 $$".into()],
        ..ProcessConfig::default()
    };
    let request = StartRequest { process: Some(process), stdin: Some(false), ..Default::default() };
    let body = Codec::Proto.envelop(&request).to_vec();
    let (_status, bytes) =
        post(&agent, "/process.Process/Start", "application/connect+proto", body).await;
    let mut envelopes = Envelopes::new(1 << 20);
    envelopes.push(&bytes);
    let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), None);
    loop {
        match envelopes.next().unwrap().unwrap() {
            Envelope::Message(bytes) => {
                let response: StartResponse = Codec::Proto.decode(&bytes).unwrap();
                match response.event.unwrap().event.unwrap() {
                    Event::Data(data) => match data.output.unwrap() {
                        Output::Stdout(bytes) => out.extend(bytes),
                        Output::Stderr(bytes) => err.extend(bytes),
                        Output::Pty(_) => panic!("no terminal was asked for"),
                    },
                    Event::End(event) => end = Some(event),
                    Event::Start(start) => assert!(start.pid > 1),
                    Event::Keepalive(_) => {}
                }
            }
            Envelope::End(outcome) => break outcome.unwrap(),
        }
    }
    let end = end.unwrap();
    assert_eq!((&out[..], &err[..]), (&b"hi"[..], &b"oops"[..]));
    assert_eq!((end.exit_code, end.exited, end.status.as_str()), (-1, false, "signal: killed"));

    let (status, bytes) = post(
        &agent,
        "/process.Process/List",
        "application/proto",
        Codec::Proto.encode(&ListRequest {}).to_vec(),
    )
    .await;
    let list: ListResponse = Codec::Proto.decode(&bytes.into()).unwrap();
    assert_eq!((status, list.processes.len()), (200, 0));
    let stat = StatRequest { path: "/etc/passwd".into() };
    let body = Codec::Proto.encode(&stat).to_vec();
    let (_status, bytes) =
        post(&agent, "/filesystem.Filesystem/Stat", "application/proto", body).await;
    let stat: StatResponse = Codec::Proto.decode(&bytes.into()).unwrap();
    assert_eq!(stat.entry.unwrap().path, "/etc/passwd");
    let list = ListDirRequest { path: "/etc".into(), depth: 3 };
    let body = Codec::Proto.encode(&list).to_vec();
    let (_status, bytes) =
        post(&agent, "/filesystem.Filesystem/ListDir", "application/proto", body).await;
    let list: ListDirResponse = Codec::Proto.decode(&bytes.into()).unwrap();
    assert!(list.entries.iter().any(|entry| entry.path == "/etc/passwd"));
}

#[tokio::test]
async fn failures_have_their_status_and_shape() {
    let agent = Agent::start();
    let stat = StatRequest { path: "/no/such".into() };
    for codec in [Codec::Json, Codec::Proto] {
        let content_type = match codec {
            Codec::Json => "application/json",
            Codec::Proto => "application/proto",
        };
        let body = codec.encode(&stat).to_vec();
        let (status, bytes) = post(&agent, "/filesystem.Filesystem/Stat", content_type, body).await;
        let wanted = r#"{"code":"not_found","message":"file not found: /no/such"}"#;
        assert_eq!((status, String::from_utf8(bytes).unwrap().as_str()), (404, wanted));
    }
    let body = envelope(&serde_json::json!({"process": {"pid": 4_000_000}}));
    let path = "/process.Process/Connect";
    let (status, bytes) = post(&agent, path, "application/connect+json", body).await;
    assert_eq!(status, 200);
    assert_eq!(
        &bytes[5..],
        br#"{"error":{"code":"not_found","message":"process with pid 4000000 not found"}}"#
    );
    assert_eq!(bytes[0], 2);
    for (path, content_type) in [
        ("/process.Process/Connect", "application/json"),
        ("/process.Process/List", "application/connect+json"),
    ] {
        assert_eq!(post(&agent, path, content_type, b"{}".to_vec()).await.0, 415);
    }
}
