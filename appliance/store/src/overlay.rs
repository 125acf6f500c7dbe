//! What a closure has written and not committed yet, over what it reads.

use std::{collections::BTreeMap, ops::Bound};

use crate::{StoreError, schema::Table};

pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// `None`: removed.
pub(crate) type Staged = BTreeMap<(Table, Vec<u8>), Option<Vec<u8>>>;

pub trait Source {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Rows in key order, the first of them behind `after`.
    fn rows(
        &mut self,
        table: Table,
        after: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError>;
}

pub(crate) struct Overlay<'a> {
    base: &'a mut dyn Source,
    staged: Staged,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(base: &'a mut dyn Source) -> Self {
        Self { base, staged: Staged::new() }
    }

    pub(crate) fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.staged.insert((table, key), Some(value));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.staged.insert((table, key), None);
    }

    pub(crate) fn into_staged(self) -> Staged {
        self.staged
    }
}

impl Source for Overlay<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.staged.get(&(table, key.to_owned())) {
            Some(staged) => Ok(staged.clone()),
            None => self.base.get(table, key),
        }
    }

    fn rows(
        &mut self,
        table: Table,
        after: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let from = match after {
            Bound::Included(key) => Bound::Included((table, key.to_owned())),
            Bound::Excluded(key) => Bound::Excluded((table, key.to_owned())),
            Bound::Unbounded => Bound::Included((table, Vec::new())),
        };
        let staged: Vec<_> = self
            .staged
            .range((from, Bound::Unbounded))
            .take_while(|((of, _), _)| *of == table)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        // Removed rows may be among the first ones below.
        let below = self.base.rows(table, after, limit.saturating_add(staged.len()))?;
        let mut rows: BTreeMap<_, _> = below.into_iter().collect();
        for (key, value) in staged {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Source for BTreeMap<(Table, Vec<u8>), Vec<u8>> {
        fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(BTreeMap::get(self, &(table, key.to_owned())).cloned())
        }

        fn rows(
            &mut self,
            table: Table,
            after: Bound<&[u8]>,
            limit: usize,
        ) -> Result<Vec<Row>, StoreError> {
            let behind = |key: &[u8]| match after {
                Bound::Included(after) => key >= after,
                Bound::Excluded(after) => key > after,
                Bound::Unbounded => true,
            };
            let rows = self.iter().filter(|((of, key), _)| *of == table && behind(key));
            Ok(rows.map(|((_, key), value)| (key.clone(), value.clone())).take(limit).collect())
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Put(u8, u8),
        Remove(u8),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            (0..8u8, any::<u8>()).prop_map(|(key, value)| Op::Put(key, value)),
            (0..8u8).prop_map(Op::Remove),
        ];
        proptest::collection::vec(op, 0..20)
    }

    proptest! {
        /// Reading through the overlay is reading after applying it.
        #[test]
        fn reads_its_own_writes(before in ops(), during in ops(), after in 0..9u8, limit in 0..9usize) {
            let mut base = BTreeMap::new();
            let apply = |map: &mut BTreeMap<(Table, Vec<u8>), Vec<u8>>, ops: &[Op]| {
                for op in ops {
                    match op {
                        Op::Put(key, value) => map.insert((Table::Teams, vec![*key]), vec![*value]),
                        Op::Remove(key) => map.remove(&(Table::Teams, vec![*key])),
                    };
                }
            };
            apply(&mut base, &before);
            base.insert((Table::Zones, vec![1]), vec![1]);
            let mut applied = base.clone();
            apply(&mut applied, &during);

            let mut overlay = Overlay::new(&mut base);
            for op in &during {
                match op {
                    Op::Put(key, value) => overlay.put(Table::Teams, vec![*key], vec![*value]),
                    Op::Remove(key) => overlay.remove(Table::Teams, vec![*key]),
                }
            }
            for key in 0..8 {
                prop_assert_eq!(
                    Source::get(&mut overlay, Table::Teams, &[key]).unwrap(),
                    Source::get(&mut applied, Table::Teams, &[key]).unwrap()
                );
            }
            for bound in [Bound::Unbounded, Bound::Excluded(&[after][..]), Bound::Included(&[after][..])] {
                prop_assert_eq!(
                    overlay.rows(Table::Teams, bound, limit).unwrap(),
                    applied.rows(Table::Teams, bound, limit).unwrap()
                );
            }
        }
    }
}
