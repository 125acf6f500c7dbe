//! One entry after the other. A few packed bytes may be names or zeros without end, so what is
//! between two files is bounded, for it is held in memory, and so is the whole, for it takes time.

use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

use tar::{Archive, Entry};

/// Names and extended headers of one entry.
const MAX_HEAD: u64 = 1 << 20;

/// `most`: bytes of the archive, with its heads. `fault`: what an error of its reader is; what
/// `take` leaves of an entry is skipped.
pub fn each<R: Read, E>(
    tar: R,
    most: u64,
    fault: impl Fn(io::Error) -> E,
    mut take: impl FnMut(&mut Entry<'_, Metered<R>>) -> Result<(), E>,
) -> Result<(), E> {
    let head = Rc::new(Cell::new(MAX_HEAD));
    let mut archive =
        Archive::new(Metered { inner: tar, head: Rc::clone(&head), most, left: most });
    for entry in archive.entries().map_err(&fault)? {
        let mut entry = entry.map_err(&fault)?;
        head.set(u64::MAX);
        take(&mut entry)?;
        io::copy(&mut entry, &mut io::sink()).map_err(&fault)?;
        head.set(MAX_HEAD);
    }
    Ok(())
}

/// No more is read than is left, of a head or of all.
pub struct Metered<R> {
    inner: R,
    head: Rc<Cell<u64>>,
    most: u64,
    left: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let head = self.head.get();
        let room = head.min(self.left);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 && !buffer.is_empty() {
            let why = if head == 0 {
                format!("the head of an entry is longer than {} KiB", MAX_HEAD >> 10)
            } else {
                format!("there is more in it than {} MiB", self.most >> 20)
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let count = self.inner.read(buffer.get_mut(..room).unwrap_or_default())?;
        self.head.set(head.saturating_sub(count as u64));
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn archive(entries: &[(EntryType, &[u8])]) -> Vec<u8> {
        let mut out = Builder::new(Vec::new());
        for (kind, content) in entries {
            let mut header = Header::new_gnu();
            header.set_path("a").unwrap();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_cksum();
            out.append(&header, *content).unwrap();
        }
        out.into_inner().unwrap()
    }

    #[test]
    fn there_is_an_end_to_everything() {
        let (name, file) = (EntryType::GNULongName, EntryType::Regular);
        let (long, large) = (vec![b'a'; 2 << 20], vec![0; 3 << 20]);
        for (why, entries, most, expected) in [
            (
                "no head is held in memory whole",
                vec![(name, &*long), (file, b"x")],
                8 << 20,
                Err("head of an entry is longer than 1024 KiB"),
            ),
            (
                "what is skipped takes time",
                vec![(file, &*large)],
                2 << 20,
                Err("more in it than 2 MiB"),
            ),
            (
                "so do many",
                vec![(file, b"x".as_slice()); 3000],
                2 << 20,
                Err("more in it than 2 MiB"),
            ),
            (
                "a file may be longer than a head",
                vec![(file, &*large), (file, b"x")],
                8 << 20,
                Ok(2),
            ),
        ] {
            let mut count = 0;
            let read = each(
                archive(&entries).as_slice(),
                most,
                |error| error.to_string(),
                |_| {
                    count += 1;
                    Ok(())
                },
            );
            match expected {
                Ok(expected) => assert_eq!((read, count), (Ok(()), expected), "{why}"),
                Err(part) => assert!(read.unwrap_err().contains(part), "{why}"),
            }
        }
    }
}
