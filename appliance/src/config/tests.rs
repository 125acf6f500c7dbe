//! The tables of `config`.

use std::{collections::BTreeMap, path::PathBuf};

use super::{layers::Layers, *};

fn load(file: &str, env: &[(&str, &str)], flags: &Flags) -> Result<Config, Vec<String>> {
    let env: BTreeMap<String, String> =
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let read = |path: &Path| match path.to_str() {
        Some("/etc/sbx/zone.token") => Ok("from-a-file\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let layers = Layers {
        file: (!file.is_empty()).then(|| ("/etc/sbx/config.json".to_owned(), file.to_owned())),
        folder: PathBuf::from("/etc/sbx"),
        env: &env,
        flags,
        read_file: &read,
    };
    Config::parse(&layers).map_err(|problems| {
        problems.iter().map(|problem| format!("{}: {}", problem.place, problem.what)).collect()
    })
}

fn of_file(file: &str) -> Result<Config, Vec<String>> {
    load(file, &[], &Flags::default())
}

fn port(port: &str) -> Flags {
    let settings = Settings { port: Some(port.to_owned()), ..Settings::default() };
    Flags { settings, ..Flags::default() }
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = load("", &[], &Flags::default()).unwrap();
    assert_eq!(config.listen().to_string(), "127.0.0.1:8000");
    assert_eq!(config.state, PathBuf::from("/var/lib/sandboxo"));
    assert_eq!(config.region.to_string(), "loc");
    assert_eq!(config.zone.name.as_str(), "local1");
    assert_eq!(config.token, None);
    assert_eq!(config.images.registries, []);
}

#[test]
fn problems() {
    for (why, file, expected) in [
        (
            "not JSON",
            "{",
            &["/etc/sbx/config.json: is not JSON: EOF while parsing an object at line 1 column 1"]
                [..],
        ),
        ("not an object", "[]", &["/etc/sbx/config.json: must be a JSON object"]),
        (
            "a port too high",
            r#"{"port": 70000}"#,
            &["port: must be a whole number from 0 to 65535"],
        ),
        (
            "a port as a text",
            r#"{"port": "80"}"#,
            &["port: must be a whole number from 0 to 65535"],
        ),
        (
            "a region",
            r#"{"region": "LOC"}"#,
            &[r#"region: must be three lowercase letters, not "LOC""#],
        ),
        ("a typing error", r#"{"prot": 80}"#, &["prot: is not a setting; did you mean port?"]),
        (
            "a typing error in a section",
            r#"{"zone": {"resolver": []}}"#,
            &["zone.resolver: is not a setting; did you mean resolvers?"],
        ),
        (
            "nothing like it",
            r#"{"pool": {"warmth": 3}}"#,
            &["pool.warmth: is not a setting; there are size, blanks"],
        ),
        (
            "an identity that nobody can verify",
            r#"{"identity": {"issuer": "https://a/", "trust_domain": "A"}}"#,
            &[
                "identity.issuer: must be an https:// or http:// URL without a query and without a slash at its end, not \"https://a/\"",
                "identity.trust_domain: must be 1 to 255 lowercase letters, digits, '.', '-' and '_', not \"A\"",
            ],
        ),
        (
            "a spool without room",
            r#"{"spool": {"max_mib": 0, "max_age_hours": "8"}}"#,
            &[
                "spool.max_mib: must be a whole number from 1 to 1048576",
                "spool.max_age_hours: must be a whole number from 1 to 87600",
            ],
        ),
        ("a section that is none", r#"{"zone": 3}"#, &["zone: must be an object"]),
        ("a value that is a section", r#"{"port": {"x": 1}}"#, &["port: must not be an object"]),
        (
            "a secret from nowhere",
            r#"{"token": {"_env": "NONE"}}"#,
            &["token: the environment has no NONE"],
        ),
        (
            "a secret from no file",
            r#"{"token": {"_file": "gone"}}"#,
            &["token: /etc/sbx/gone can't be read: no such file"],
        ),
        (
            "a secret of two kinds",
            r#"{"token": {"_env": "A", "_file": "b"}}"#,
            &[r#"token: must have one key, "_env" or "_file", with a text"#],
        ),
        ("an empty secret", r#"{"token": ""}"#, &["token: is empty"]),
        (
            "a secret with a space",
            r#"{"token": "a b"}"#,
            &["token: has a space or a line break in it"],
        ),
        (
            "a list",
            r#"{"zone": {"resolvers": ["1.1.1.1", "no", 3]}}"#,
            &[
                "zone.resolvers[1]: must be an IP address, perhaps with a port",
                "zone.resolvers[2]: must be an IP address, perhaps with a port",
            ],
        ),
        ("a domain", r#"{"domain": "Not A Host"}"#, &["domain: must be a host name in lowercase"]),
        (
            "a domain's port",
            r#"{"domain": "a.test:0"}"#,
            &["domain: has a port that is not a number from 1 to 65535"],
        ),
        (
            "everything at once",
            r#"{"host": "nowhere", "port": -1, "limits": {"memory_overcommit": 0}, "colour": "red"}"#,
            &[
                r#"host: must be an IP address, not "nowhere""#,
                "port: must be a whole number from 0 to 65535",
                "limits.memory_overcommit: must be a whole number from 1 to 100",
                "colour: is not a setting; there are state, host, port, domain, region, token, zone, pool, limits, images, rates, identity, spool, log",
            ],
        ),
    ] {
        assert_eq!(of_file(file).unwrap_err(), expected, "{why}");
    }
}

#[test]
fn a_later_layer_wins() {
    let file = r#"{"port": 1000, "host": "127.0.0.1", "region": "ord"}"#;
    let env = [("SANDBOXO_PORT", "2000"), ("SANDBOXO_HOST", "127.0.0.2"), ("SANDBOXO_REGION", "")];
    let flags = port("3000");
    let config = load(file, &env, &flags).unwrap();
    assert_eq!(config.port, 3000);
    assert_eq!(config.host.to_string(), "127.0.0.2");
    assert_eq!(config.region.to_string(), "ord", "an empty variable says nothing");
}

#[test]
fn a_problem_names_the_flag_or_the_variable_that_caused_it() {
    let flags = port("x");
    let problems = load("", &[("SANDBOXO_REGION", "x")], &flags).unwrap_err();
    assert_eq!(
        problems,
        [
            "--port: must be a whole number from 0 to 65535",
            r#"SANDBOXO_REGION: must be three lowercase letters, not "x""#,
        ]
    );
}

#[test]
fn paths_of_the_file_start_in_its_folder() {
    let config = of_file(r#"{"state": "state", "zone": {"runsc": "bin/runsc"}}"#).unwrap();
    assert_eq!(config.state, PathBuf::from("/etc/sbx/state"));
    assert_eq!(config.zone.runsc, PathBuf::from("/etc/sbx/bin/runsc"));
    let config = of_file(r#"{"zone": {"runsc": "runsc"}}"#).unwrap();
    assert_eq!(config.zone.runsc, PathBuf::from("runsc"), "a bare name is looked up on PATH");
    let flags = Flags { state: Some("here".to_owned()), ..Flags::default() };
    assert_eq!(load("{}", &[], &flags).unwrap().state, PathBuf::from("here"));
}

#[test]
fn secrets_are_read_and_never_shown() {
    for (file, env, expected) in [
        (r#"{"token": {"_file": "zone.token"}}"#, &[][..], "from-a-file"),
        (r#"{"token": {"_env": "HUSH"}}"#, &[("HUSH", "of-a-variable")], "of-a-variable"),
        ("{}", &[("SANDBOXO_TOKEN", "given")], "given"),
    ] {
        let config = load(file, env, &Flags::default()).unwrap();
        assert_eq!(config.token.as_ref().map(Secret::expose), Some(expected));
        let shown = format!("{}{config:?}", print(&config));
        assert!(shown.contains("(hidden)") && !shown.contains(expected), "{shown}");
    }
}

/// What is printed can be used as a file, but for the secrets.
#[test]
fn a_printed_configuration_reads_back() {
    let config = of_file(r#"{"port": 4000, "pool": {"size": 3}, "state": "/s", "zone": {"resolvers": ["127.0.0.1", "[::1]:5353"]}}"#).unwrap();
    assert_eq!(of_file(&print(&config).to_string()).unwrap(), config);
}

#[test]
fn a_client_prefers_our_own_variables() {
    let env = [("E2B_API_URL", "http://a"), ("SANDBOXO_URL", "http://b"), ("E2B_API_KEY", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let client = ClientEnvironment::of(&env.into());
    assert_eq!(client.api_url.as_deref(), Some("http://b"));
    assert_eq!(client.api_key, None);
}
