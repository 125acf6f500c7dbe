//! The JSON forms that clients send and expect.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use sandboxo_agent_proto::{
    connect::Codec,
    filesystem::{
        EntryInfo, EventType, FileType, FilesystemEvent, ListDirRequest, WatchDirRequest,
    },
    process::{
        ProcessEvent, SendInputRequest, SendSignalRequest, Signal, StartRequest, StartResponse,
        process_event, process_input, process_selector,
    },
};
use serde_json::{Value, json};

fn decode<M: prost::Message + Default + serde::de::DeserializeOwned>(json: &Value) -> M {
    Codec::Json.decode(&json.to_string().into()).unwrap()
}

fn encode<M: prost::Message + serde::Serialize>(message: &M) -> Value {
    serde_json::from_slice(&Codec::Json.encode(message)).unwrap()
}

#[test]
fn requests_are_read_with_either_spelling_and_unknown_fields() {
    let request: StartRequest = decode(&json!({
        "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"], "envs": {"A": "b"}, "cwd": "/"},
        "stdin": false, "future": {"deep": [1]},
    }));
    let process = request.process.unwrap();
    assert_eq!(process.args, ["-l", "-c", "true"]);
    assert_eq!(process.envs["A"], "b");
    assert_eq!(
        (process.cwd.as_deref(), request.stdin, request.tag),
        (Some("/"), Some(false), None)
    );

    for form in
        [json!({"path": "/", "includeEntry": true}), json!({"path": "/", "include_entry": true})]
    {
        assert!(decode::<WatchDirRequest>(&form).include_entry);
    }
    assert_eq!(decode::<ListDirRequest>(&json!({})), ListDirRequest::default());
    assert_eq!(Codec::Json.decode::<ListDirRequest>(&"".into()).unwrap().depth, 0);
}

#[test]
fn signals_are_read_by_name_and_number() {
    for form in [json!("SIGNAL_SIGKILL"), json!(9)] {
        let request: SendSignalRequest = decode(&json!({"process": {"pid": 7}, "signal": form}));
        assert_eq!(request.signal(), Signal::Sigkill);
        let selector = request.process.unwrap().selector.unwrap();
        assert_eq!(selector, process_selector::Selector::Pid(7));
    }
}

#[test]
fn input_is_base64_of_either_alphabet() {
    for text in ["+/8=", "-_8=", "-_8"] {
        let request: SendInputRequest =
            decode(&json!({"process": {"tag": "t"}, "input": {"stdin": text}}));
        let input = request.input.unwrap().input.unwrap();
        assert_eq!(input, process_input::Input::Stdin(vec![0xfb, 0xff].into()));
    }
}

#[test]
fn events_have_these_forms() {
    let event = |event| StartResponse { event: Some(ProcessEvent { event: Some(event) }) };
    let data = process_event::DataEvent {
        output: Some(process_event::data_event::Output::Stdout("hé".into())),
    };
    let end = process_event::EndEvent {
        exit_code: -1,
        exited: false,
        status: "signal: killed".into(),
        error: Some("signal: killed".into()),
    };
    for (message, wanted) in [
        (event(process_event::Event::Data(data)), json!({"event": {"data": {"stdout": "aMOp"}}})),
        (
            event(process_event::Event::End(end.clone())),
            json!({"event": {"end": {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}}}),
        ),
        (
            event(process_event::Event::Keepalive(process_event::KeepAlive {})),
            json!({"event": {"keepalive": {}}}),
        ),
    ] {
        assert_eq!(encode(&message), wanted);
    }
    // sint32: minus one is one byte.
    assert_eq!(&Codec::Proto.encode(&end)[..2], b"\x08\x01");
}

#[test]
fn entries_have_these_forms() {
    let entry = EntryInfo {
        name: "a".into(),
        r#type: FileType::File.into(),
        path: "/tmp/a".into(),
        size: 5_000_000_000,
        mode: 0o644,
        permissions: "-rw-r--r--".into(),
        owner: "user".into(),
        group: "user".into(),
        modified_time: Some(sandboxo_agent_proto::Timestamp { seconds: 1, nanos: 500_000_000 }),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        ..EntryInfo::default()
    };
    let event =
        FilesystemEvent { name: "a".into(), r#type: EventType::Create.into(), entry: Some(entry) };
    assert_eq!(
        encode(&event),
        json!({"name": "a", "type": "EVENT_TYPE_CREATE", "entry": {
            "name": "a", "type": "FILE_TYPE_FILE", "path": "/tmp/a", "size": "5000000000", "mode": 420,
            "permissions": "-rw-r--r--", "owner": "user", "group": "user",
            "modifiedTime": "1970-01-01T00:00:01.5Z", "metadata": {"k": "v"},
        }})
    );
    let back: FilesystemEvent = decode(&encode(&event));
    assert_eq!(back, event);
}
