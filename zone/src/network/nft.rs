//! The `nft` program, in the namespace of the calling thread. A batch is one transaction.

use std::{
    io::{self, Write},
    process::{Command, Stdio},
};

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("start nft (is the package nftables installed?)")]
    Start(#[source] io::Error),
    #[error("talk to nft")]
    Talk(#[source] io::Error),
    #[error("nft refused: {0}")]
    Refused(String),
}

pub(super) fn apply(batch: &str) -> Result<(), NftError> {
    run(&["-f", "-"], batch).map(drop)
}

/// `None`: there is no such thing.
pub(super) fn list(what: &[&str]) -> Result<Option<serde_json::Value>, NftError> {
    let mut arguments = vec!["-j", "list"];
    arguments.extend(what);
    match run(&arguments, "") {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| NftError::Talk(io::Error::new(io::ErrorKind::InvalidData, error))),
        Err(NftError::Refused(reason)) if reason.contains("No such file or directory") => Ok(None),
        Err(error) => Err(error),
    }
}

fn run(arguments: &[&str], input: &str) -> Result<String, NftError> {
    let mut child = Command::new("nft")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(NftError::Start)?;
    // nft reads all of it before it prints anything, and one that ended early says why.
    if let Some(mut stdin) = child.stdin.take()
        && let Err(error) = stdin.write_all(input.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(NftError::Talk(error));
    }
    let output = child.wait_with_output().map_err(NftError::Talk)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(NftError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}
