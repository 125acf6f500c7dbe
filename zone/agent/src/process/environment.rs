//! What a program finds in its environment. Decided here alone; nothing of the agent's own goes in
//! but its `PATH`.

use std::{collections::BTreeMap, ffi::CString};

use crate::users::User;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadText {
    #[error("invalid name of an environment variable: {0:?}")]
    Name(String),
    #[error("the value of environment variable {0:?} has a zero byte in it")]
    Value(String),
    #[error("{0:?} has a zero byte in it")]
    Argument(String),
}

/// Later sources win: what is there anyway, the user's own, the sandbox's, the request's.
pub(crate) fn environment(
    path: &str,
    user: &User,
    anyway: &[(&str, String)],
    sandbox: &BTreeMap<String, String>,
    request: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own = [
        ("PATH", path),
        ("HOME", user.home.as_str()),
        ("USER", user.name.as_str()),
        ("LOGNAME", user.name.as_str()),
    ];
    let mut all: BTreeMap<String, String> =
        anyway.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    all.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for (name, value) in sandbox.iter().chain(request) {
        all.insert(name.clone(), value.clone());
    }
    all
}

pub(crate) fn to_block(variables: &BTreeMap<String, String>) -> Result<Vec<CString>, BadText> {
    let line = |(name, value): (&String, &String)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(BadText::Name(name.clone()));
        }
        CString::new(format!("{name}={value}")).map_err(|_zero| BadText::Value(name.clone()))
    };
    variables.iter().map(line).collect()
}

pub(crate) fn to_argument(text: &str) -> Result<CString, BadText> {
    CString::new(text).map_err(|_zero| BadText::Argument(text.replace('\0', "\\0")))
}

/// The files that may be meant by a command, in the order of trying.
pub(crate) fn candidates(command: &str, path: &str) -> Vec<String> {
    if command.contains('/') {
        return vec![command.to_owned()];
    }
    path.split(':')
        .map(|folder| if folder.is_empty() { "." } else { folder })
        .map(|folder| format!("{folder}/{command}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn user() -> User {
        User {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            home: "/home/user".into(),
            groups: vec![1000],
        }
    }

    #[test]
    fn later_sources_win() {
        let sandbox = map(&[("A", "sandbox"), ("B", "sandbox"), ("HOME", "/elsewhere")]);
        let anyway = [("A", "anyway".to_owned()), ("HOME", String::new()), ("C", "c".into())];
        let request = map(&[("B", "request"), ("QUOTED", "a\"b'c\n$(id)\\n")]);
        assert_eq!(
            environment("/bin", &user(), &anyway, &sandbox, &request),
            map(&[
                ("PATH", "/bin"),
                ("HOME", "/elsewhere"),
                ("USER", "user"),
                ("LOGNAME", "user"),
                ("A", "sandbox"),
                ("B", "request"),
                ("C", "c"),
                ("QUOTED", "a\"b'c\n$(id)\\n"),
            ])
        );
    }

    #[test]
    fn what_no_program_could_be_given_is_refused() {
        for (name, value, wanted) in [
            ("", "x", BadText::Name(String::new())),
            ("A=B", "x", BadText::Name("A=B".into())),
            ("A\0", "x", BadText::Name("A\0".into())),
            ("A", "x\0y", BadText::Value("A".into())),
        ] {
            assert_eq!(to_block(&map(&[(name, value)])), Err(wanted));
        }
        assert_eq!(to_block(&map(&[("A", "=")])).unwrap(), [c"A==".to_owned()]);
        assert!(to_argument("a\0b").is_err());
    }

    #[test]
    fn a_command_is_looked_for_in_the_path() {
        for (command, path, wanted) in [
            ("/bin/sh", "/usr/bin", &["/bin/sh"][..]),
            ("./sh", "/usr/bin", &["./sh"]),
            ("sh", "/usr/bin:/bin", &["/usr/bin/sh", "/bin/sh"]),
            ("sh", ":/bin", &["./sh", "/bin/sh"]),
        ] {
            assert_eq!(candidates(command, path), wanted);
        }
    }
}
