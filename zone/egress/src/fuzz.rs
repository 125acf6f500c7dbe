//! What a fuzzer does with what sandboxes and resolvers say.

use crate::{
    dns,
    proxy::{Said, head, hello},
};

/// The first bytes of a connection: what is said of some of them is said of all.
pub fn said(data: &[u8]) {
    for read in [hello, |data: &[u8]| head(data, 80)] {
        let whole = read(data);
        let some = read(data.get(..data.len() / 2).unwrap_or_default());
        assert!(some == Said::More || some == whole, "{some:?}, {whole:?}");
    }
}

pub fn dns(data: &[u8]) {
    dns::read(data);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_said() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "said", said);
    }

    #[test]
    fn the_corpus_is_told() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "dns", dns);
    }
}
