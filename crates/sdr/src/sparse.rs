//! A map for values that only a few messages have.

use alloc::collections::BTreeMap;

/// Values by key, often a message number. Memory use follows the number of values. An empty map
/// uses no memory, unlike a [`BTreeMap`], which keeps its last node.
pub(crate) struct Sparse<K, V>(BTreeMap<K, V>);

impl<K: Ord + Copy, V> Sparse<K, V> {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.0.contains_key(&key)
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.0.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.0.get_mut(&key)
    }

    /// The lowest key.
    pub(crate) fn first(&self) -> Option<K> {
        self.0.first_key_value().map(|(&key, _)| key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let value = self.0.remove(&key);
        self.trim();
        value
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let first = self.0.pop_first();
        self.trim();
        first
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_values()
    }

    fn trim(&mut self) {
        if self.0.is_empty() {
            self.0.clear();
        }
    }
}
