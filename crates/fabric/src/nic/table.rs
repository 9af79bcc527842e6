//! A table with random keys and a fast path for repeated lookups.

use super::numbers::ByNumber;

/// Entries by their random number.
///
/// Packets and posts often name the same number several times in a row. A lookup therefore checks
/// the last entry first and hashes only if that fails.
pub(super) struct Table<T> {
    /// Index in `entries` of each number.
    indices: ByNumber<u32>,
    entries: Vec<Option<(u32, T)>>,
    /// Indices in `entries` that are `None`.
    free: Vec<u32>,
    /// Index of the last entry that was found.
    last: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            indices: ByNumber::default(),
            entries: Vec::new(),
            free: Vec::new(),
            last: 0,
        }
    }
}

impl<T> Table<T> {
    /// Replaces an entry with the same number.
    pub(super) fn insert(&mut self, number: u32, entry: T) {
        let entries = &mut self.entries;
        let index = *self.indices.entry(number).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                entries.push(None);
                // A table has at most 2^21 entries.
                u32::try_from(entries.len() - 1).unwrap_or(u32::MAX)
            })
        });
        entries[index as usize] = Some((number, entry));
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(index) = self.indices.remove(&number) {
            self.entries[index as usize] = None;
            self.free.push(index);
            debug_assert_eq!(self.indices.len() + self.free.len(), self.entries.len());
        }
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&T> {
        self.get_mut(number).map(|entry| &*entry)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let last = self.entries.get(self.last as usize);
        if !matches!(last, Some(Some((found, _))) if *found == number) {
            self.last = *self.indices.get(&number)?;
        }
        let entry = self.entries.get_mut(self.last as usize)?.as_mut();
        entry.map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The keys are few, so that the steps find, miss, remove and reuse them.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..4_u8, 0..6_u32), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (value, (kind, number)) in steps.into_iter().enumerate() {
                match kind {
                    0 => {
                        table.insert(number, value);
                        map.insert(number, value);
                    }
                    1 => {
                        table.remove(number);
                        map.remove(&number);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.get(number), map.get(&number));
                prop_assert_eq!(table.entries.len(), map.len() + table.free.len());
                prop_assert!(table.entries.len() <= 6);
            }
        }
    }
}
