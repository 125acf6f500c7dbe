//! What a fuzzer does with a configuration: it is refused with a reason, or means the same when
//! it is printed and read again.

use std::{collections::BTreeMap, path::PathBuf};

use super::{Config, Flags, layers::Layers, print};

/// The file, and after a zero byte lines of the environment.
pub(crate) fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (file, lines) = text.split_once('\0').unwrap_or((text, ""));
    let env: BTreeMap<String, String> = lines
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match parse(file, &env) {
        Ok(config) if env.is_empty() && config.token.is_none() => {
            let printed = print(&config).to_string();
            assert_eq!(parse(&printed, &env).as_ref(), Ok(&config), "{printed}");
        }
        Ok(_) => {}
        Err(problems) => assert!(!problems.is_empty()),
    }
}

fn parse(file: &str, env: &BTreeMap<String, String>) -> Result<Config, super::Problems> {
    Config::parse(&Layers {
        file: Some(("config.json".to_owned(), file.to_owned())),
        folder: PathBuf::from("/etc/sandboxo"),
        env,
        flags: &Flags::default(),
        read_file: &|_path| Err("no such file".to_owned()),
    })
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_refused_or_reads_back() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "config", settings);
    }
}
