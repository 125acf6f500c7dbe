//! Which images go: those that nobody may ask for any more, after a grace, unless a container has
//! one.
//!
//! The grace covers what is on its way: an import whose template is not recorded yet, a create
//! that was committed before its template got another image.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use sandboxo_zone_protocol::{ImageDigest, Timestamp};

use super::{Images, UNFINISHED};

/// Those that are not in the last list, and since when that is so.
#[derive(Debug, Default)]
pub(super) struct Unwanted(BTreeMap<ImageDigest, Timestamp>);

impl Unwanted {
    fn list(
        &mut self,
        present: &BTreeSet<ImageDigest>,
        kept: &BTreeSet<ImageDigest>,
        now: Timestamp,
    ) {
        self.0.retain(|image, _| present.contains(image) && !kept.contains(image));
        for image in present.difference(kept) {
            self.0.entry(*image).or_insert(now);
        }
    }

    /// Somebody asked for it, so its grace begins anew.
    pub(super) fn asked_for(&mut self, image: ImageDigest, now: Timestamp) {
        if let Some(since) = self.0.get_mut(&image) {
            *since = now;
        }
    }

    fn due(&self, grace: std::time::Duration, now: Timestamp) -> BTreeSet<ImageDigest> {
        let over = |since: Timestamp| {
            std::time::Duration::try_from(now.duration_since(since)).is_ok_and(|past| past >= grace)
        };
        self.0.iter().filter(|(_, since)| over(**since)).map(|(image, _)| *image).collect()
    }
}

impl Images {
    /// The images that may be asked for.
    pub(crate) fn keep(&self, kept: &BTreeSet<ImageDigest>) -> io::Result<()> {
        let mut unwanted = self.unwanted.lock();
        unwanted.list(&self.present()?, kept, self.clock.now());
        drop(unwanted);
        self.nudge.notify_one();
        Ok(())
    }

    /// Removes those whose time is over. `used` is asked only if there are any.
    pub(crate) fn collect(
        &self,
        used: impl FnOnce() -> io::Result<BTreeSet<ImageDigest>>,
    ) -> io::Result<Vec<ImageDigest>> {
        let mut unwanted = self.unwanted.lock();
        let due = unwanted.due(self.grace, self.clock.now());
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let mut gone = Vec::new();
        for image in due.difference(&used()?) {
            // Out of the way at once, so that nobody finds half of it; the rest may take a while.
            let aside = self.folder.join(format!("{UNFINISHED}{image}"));
            fs::rename(self.place(*image), &aside)?;
            unwanted.0.remove(image);
            gone.push((*image, aside));
        }
        drop(unwanted);
        gone.into_iter()
            .map(|(image, aside): (_, PathBuf)| fs::remove_dir_all(aside).map(|()| image))
            .collect()
    }

    fn present(&self) -> io::Result<BTreeSet<ImageDigest>> {
        let names = fs::read_dir(&self.folder)?.filter_map(Result::ok).map(|it| it.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_grace_begins_when_an_image_is_wanted_no_more_and_again_when_it_is_asked_for() {
        let image = |n| ImageDigest::from_bytes([n; 32]);
        let at = |second| Timestamp::from_second(second).unwrap();
        let grace = Duration::from_secs(10);
        let mut unwanted = Unwanted::default();
        let all = BTreeSet::from([image(1), image(2), image(3)]);
        unwanted.list(&all, &BTreeSet::from([image(1)]), at(100));
        unwanted.list(&all, &BTreeSet::from([image(1)]), at(105));
        unwanted.asked_for(image(3), at(108));
        unwanted.asked_for(image(1), at(108));
        for (second, due) in [
            (90, vec![]),
            (109, vec![]),
            (110, vec![image(2)]),
            (117, vec![image(2)]),
            (118, vec![image(2), image(3)]),
        ] {
            assert_eq!(unwanted.due(grace, at(second)), due.into_iter().collect(), "{second}");
        }
        // Wanted again, or gone from the disk.
        unwanted.list(&BTreeSet::from([image(2)]), &BTreeSet::from([image(2)]), at(120));
        assert!(unwanted.due(grace, at(1000)).is_empty());
    }
}
