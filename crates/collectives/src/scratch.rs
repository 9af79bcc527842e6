//! Memory of operations that have ended, which later operations use again.
//!
//! Large vectors are fresh pages of the operating system each time, and the first access to a page
//! costs more than a copy of its bytes.

/// Shorter vectors are not kept: the allocator itself uses their memory again.
const KEPT_BYTES: usize = 128 << 10;
/// The maximum number of vectors that are kept.
const MOST: usize = 64;

/// The vectors that no operation uses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    free: Vec<Vec<u8>>,
}

impl Scratch {
    /// A vector of `length` bytes of any content.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        let fits = |(_, bytes): &(usize, &Vec<u8>)| bytes.capacity() >= length;
        let fitting = self.free.iter().enumerate().filter(fits);
        let smallest = fitting.min_by_key(|(_, bytes)| bytes.capacity());
        match smallest.filter(|_| length >= KEPT_BYTES) {
            Some((place, _)) => {
                let mut bytes = self.free.swap_remove(place);
                bytes.resize(length, 0);
                bytes
            }
            None => vec![0; length],
        }
    }

    /// A vector of `length` zeros.
    pub(crate) fn take_zeroed(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = self.take(length);
        bytes.fill(0);
        bytes
    }

    /// Keeps a vector. If there are too many, the shortest one is freed.
    pub(crate) fn give(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() < KEPT_BYTES {
            return;
        }
        self.free.push(bytes);
        if self.free.len() > MOST {
            let by_length = self.free.iter().enumerate();
            if let Some((place, _)) = by_length.min_by_key(|(_, bytes)| bytes.capacity()) {
                self.free.swap_remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let mut scratch = Scratch::default();
        let mut large = scratch.take(3 * KEPT_BYTES);
        let small = scratch.take(2 * KEPT_BYTES);
        large.fill(7);
        let places = [large.as_ptr(), small.as_ptr()];
        scratch.give(large);
        scratch.give(small);
        let again = [
            scratch.take(2 * KEPT_BYTES),
            scratch.take_zeroed(2 * KEPT_BYTES + 1),
        ];
        assert_eq!([again[1].as_ptr(), again[0].as_ptr()], places);
        assert!(again[1].iter().all(|&byte| byte == 0));
        assert_eq!(again[1].len(), 2 * KEPT_BYTES + 1);
    }

    #[test]
    fn little_memory_is_kept() {
        let mut scratch = Scratch::default();
        scratch.give(vec![0; KEPT_BYTES - 1]);
        assert!(scratch.free.is_empty());
        for extra in 0..=MOST {
            scratch.give(vec![0; KEPT_BYTES + extra]);
        }
        assert_eq!(scratch.free.len(), MOST);
        assert!(scratch.free.iter().all(|bytes| bytes.len() > KEPT_BYTES));
    }
}
