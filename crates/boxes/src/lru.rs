//! The order in which things were last used.

use alloc::vec::Vec;

/// Values by their last use, as a linked list in a vector. Each operation takes a constant time. A place
/// keeps its number until its value is removed.
#[derive(Debug)]
pub(crate) struct LruList<T> {
    places: Vec<LruEntry<T>>,
    /// The places without a value.
    free: Vec<usize>,
    /// The places with the oldest and with the latest use.
    ends: Option<[usize; 2]>,
    #[cfg(test)]
    visited: usize,
}

#[derive(Debug)]
struct LruEntry<T> {
    value: Option<T>,
    used_ns: u64,
    /// The places used directly before and after this one.
    before: Option<usize>,
    after: Option<usize>,
}

impl<T> Default for LruList<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            ends: None,
            #[cfg(test)]
            visited: 0,
        }
    }
}

impl<T> LruList<T> {
    /// Adds a value that is used now. Returns its place.
    pub(crate) fn push(&mut self, now_ns: u64, value: T) -> usize {
        let new = LruEntry {
            value: Some(value),
            used_ns: now_ns,
            before: None,
            after: None,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place] = new;
                place
            }
            None => {
                self.places.push(new);
                self.places.len() - 1
            }
        };
        self.link_last(place);
        place
    }

    /// Records that the value at a place is used now.
    pub(crate) fn touch(&mut self, place: usize, now_ns: u64) {
        self.places[place].used_ns = now_ns;
        if self.ends.is_some_and(|[_, last]| last != place) {
            self.unlink(place);
            self.link_last(place);
        }
    }

    /// Removes the value with the oldest use if `wanted` accepts the time of that use.
    pub(crate) fn pop_if(&mut self, wanted: impl FnOnce(u64) -> bool) -> Option<T> {
        let [oldest, _] = self.ends?;
        #[cfg(test)]
        {
            self.visited += 1;
        }
        if !wanted(self.places[oldest].used_ns) {
            return None;
        }
        self.unlink(oldest);
        self.free.push(oldest);
        self.places[oldest].value.take()
    }

    fn unlink(&mut self, place: usize) {
        let LruEntry { before, after, .. } = self.places[place];
        if let Some(before) = before {
            self.places[before].after = after;
        }
        if let Some(after) = after {
            self.places[after].before = before;
        }
        if let Some([first, last]) = self.ends {
            let first = if first == place { after } else { Some(first) };
            let last = if last == place { before } else { Some(last) };
            self.ends = first.zip(last).map(|(first, last)| [first, last]);
        }
    }

    fn link_last(&mut self, place: usize) {
        let last = self.ends.map(|[_, last]| last);
        self.places[place].before = last;
        self.places[place].after = None;
        if let Some(last) = last {
            self.places[last].after = Some(place);
        }
        let first = self.ends.map_or(place, |[first, _]| first);
        self.ends = Some([first, place]);
    }

    /// Places that [`pop_if`](Self::pop_if) has looked at so far.
    #[cfg(test)]
    pub(crate) fn visited(&self) -> usize {
        self.visited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_rng::SplitMix;

    /// Compares with a vector, which is sorted by use.
    #[test]
    fn the_least_recently_used_comes_first() {
        let mut rng = SplitMix::new(1);
        let (mut uses, mut model) = (LruList::default(), Vec::<(usize, u32)>::new());
        for now_ns in 0..5000 {
            match rng.below(5) {
                0 | 1 => {
                    let value = u32::try_from(now_ns).unwrap();
                    model.push((uses.push(now_ns, value), value));
                }
                2 | 3 if !model.is_empty() => {
                    let at = usize::try_from(rng.below(model.len() as u64)).unwrap();
                    let used = model.remove(at);
                    uses.touch(used.0, now_ns);
                    model.push(used);
                }
                _ => {
                    assert_eq!(uses.pop_if(|_| false), None);
                    let want = (!model.is_empty()).then(|| model.remove(0).1);
                    assert_eq!(uses.pop_if(|_| true), want);
                }
            }
        }
        assert!(uses.places.len() < 2000);
    }
}
