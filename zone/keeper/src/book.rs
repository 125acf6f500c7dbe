//! What the keeper knows: who it is, what it holds, what it started.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{BATCH, Failure, Greeting, Identity, Label, MAX_LABEL, MAX_META};

/// `C` is a channel; tests use something simpler.
pub(crate) struct Book<C> {
    identity: Identity,
    /// Some zone has been here, so there is something of our own to be true to.
    met: bool,
    held: BTreeMap<String, (String, C)>,
    /// Started by us and not yet reaped.
    commands: BTreeSet<i32>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Saved<C> {
    pub(crate) identity: Identity,
    pub(crate) met: bool,
    pub(crate) held: Vec<(Label, C)>,
    pub(crate) commands: Vec<i32>,
}

impl<C: Clone> Book<C> {
    pub(crate) fn new(boot_id: String) -> Self {
        Self {
            identity: Identity { boot_id, epoch: 0 },
            met: false,
            held: BTreeMap::new(),
            commands: BTreeSet::new(),
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// For the program that this one becomes; `number` gives a channel's.
    pub(crate) fn save<N>(&self, number: impl Fn(&C) -> N) -> Saved<N> {
        let held = self.held.iter().map(|(label, (meta, channel))| {
            (Label { label: label.clone(), meta: meta.clone() }, number(channel))
        });
        Saved {
            identity: self.identity.clone(),
            met: self.met,
            held: held.collect(),
            commands: self.commands.iter().copied().collect(),
        }
    }

    pub(crate) fn restore(saved: Saved<C>) -> Self {
        let Saved { identity, met, held, commands } = saved;
        let held = held.into_iter().map(|(Label { label, meta }, one)| (label, (meta, one)));
        Self { identity, met, held: held.collect(), commands: commands.into_iter().collect() }
    }

    /// Who we are to this connection.
    pub(crate) fn greet(&mut self, greeting: &Greeting) -> Identity {
        if let (Some(before), false) = (&greeting.resume, self.met) {
            self.identity = before.clone();
        }
        self.met = true;
        self.identity.epoch += 1;
        self.identity.clone()
    }

    pub(crate) fn check(&self, label: &Label) -> Result<(), Failure> {
        if label.label.len() > MAX_LABEL || label.meta.len() > MAX_META {
            Err(Failure::LabelTooLong)
        } else if self.held.contains_key(&label.label) {
            Err(Failure::LabelInUse { label: label.label.clone() })
        } else {
            Ok(())
        }
    }

    pub(crate) fn hold(&mut self, label: Label, channel: C) -> Result<(), Failure> {
        self.check(&label)?;
        self.held.insert(label.label, (label.meta, channel));
        Ok(())
    }

    pub(crate) fn release(&mut self, label: &str) {
        self.held.remove(label);
    }

    pub(crate) fn get(&self, label: &str) -> Option<&C> {
        self.held.get(label).map(|(_, channel)| channel)
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        self.held.keys().cloned().collect()
    }

    /// All that is held, in portions for a message each.
    pub(crate) fn batches(&self) -> Vec<(Vec<Label>, Vec<C>)> {
        let all: Vec<_> = self.held.iter().collect();
        all.chunks(BATCH)
            .map(|batch| {
                let label = |(label, meta): (&String, &String)| Label {
                    label: label.clone(),
                    meta: meta.clone(),
                };
                batch
                    .iter()
                    .map(|(name, (meta, channel))| (label((name, meta)), channel.clone()))
                    .unzip()
            })
            .collect()
    }

    pub(crate) fn started(&mut self, pid: i32) {
        self.commands.insert(pid);
    }

    /// `true`: it was a command, not an orphan.
    pub(crate) fn ended(&mut self, pid: i32) -> bool {
        self.commands.remove(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PROTOCOL;

    fn label(name: &str) -> Label {
        Label { label: name.into(), meta: format!("about {name}") }
    }

    fn greeting(resume: Option<(&str, u64)>) -> Greeting {
        let resume = resume.map(|(boot_id, epoch)| Identity { boot_id: boot_id.into(), epoch });
        Greeting { protocol: PROTOCOL, detached: vec![], resume }
    }

    #[test]
    fn the_epoch_grows_and_the_boot_id_stays() {
        let mut book = Book::<()>::new("own".into());
        for epoch in 1..=3 {
            let identity = book.greet(&greeting(None));
            assert_eq!(identity, Identity { boot_id: "own".into(), epoch });
        }
        // Only a keeper that nobody has met can be a successor.
        let identity = book.greet(&greeting(Some(("other", 9))));
        assert_eq!(identity, Identity { boot_id: "own".into(), epoch: 4 });
    }

    #[test]
    fn a_successor_goes_on_where_the_other_ended() {
        let mut book = Book::<()>::new("own".into());
        let identity = book.greet(&greeting(Some(("other", 9))));
        assert_eq!(identity, Identity { boot_id: "other".into(), epoch: 10 });
    }

    #[test]
    fn a_restored_book_is_the_same_one() {
        let mut book = Book::new("own".into());
        book.greet(&greeting(None));
        book.hold(label("a"), 1).unwrap();
        book.started(7);
        let saved = book.save(|channel| *channel);
        let mut again = Book::restore(book.save(|channel| *channel));
        assert_eq!(again.save(|channel| *channel), saved);
        let identity = again.greet(&greeting(Some(("other", 9))));
        assert_eq!(identity, Identity { boot_id: "own".into(), epoch: 2 });
        assert_eq!(again.get("a"), Some(&1));
        assert!(again.ended(7));
    }

    #[test]
    fn labels_are_unique_and_short() {
        let mut book = Book::new("b".into());
        book.hold(label("a"), 1).unwrap();
        assert_eq!(book.hold(label("a"), 2), Err(Failure::LabelInUse { label: "a".into() }));
        assert_eq!(book.get("a"), Some(&1));
        assert_eq!(book.hold(label(&"x".repeat(MAX_LABEL + 1)), 3), Err(Failure::LabelTooLong));
        book.release("a");
        book.release("never held");
        assert_eq!(book.hold(label("a"), 2), Ok(()));
    }

    #[test]
    fn everything_held_is_in_exactly_one_batch() {
        let mut book = Book::new("b".into());
        assert!(book.batches().is_empty());
        for number in 0..=2 * BATCH {
            book.hold(label(&format!("{number:04}")), number).unwrap();
        }
        let batches = book.batches();
        let sizes: Vec<_> = batches.iter().map(|(labels, _)| labels.len()).collect();
        assert_eq!(sizes, [BATCH, BATCH, 1]);
        let mut expected = 0;
        for (labels, channels) in batches {
            for (one, channel) in labels.into_iter().zip(channels) {
                assert_eq!((one, channel), (label(&format!("{expected:04}")), expected));
                expected += 1;
            }
        }
    }

    #[test]
    fn a_command_is_told_from_an_orphan_and_ends_once() {
        let mut book = Book::<()>::new("b".into());
        book.started(7);
        assert_eq!([book.ended(8), book.ended(7), book.ended(7)], [false, true, false]);
    }
}
