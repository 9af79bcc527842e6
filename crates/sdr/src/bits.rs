//! A bitmap that several workers write and anyone reads.

use alloc::boxed::Box;
use core::ops::Range;

use crate::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// A set of bits. Several workers set bits, and each bit is set by one of them.
///
/// All writes are sequentially consistent. On x86 this costs nothing, because every atomic
/// read-modify-write already is. So a worker that sets a bit and then reads another word needs no
/// fence: if two workers each set a bit and then read the other's word, at least one of them sees
/// the other's write.
pub(crate) struct Bits {
    /// Bit `i` is bit `i % 64` of word `i / 64`. Words are little-endian on every machine.
    words: Box<[AtomicU64]>,
    /// One past the index of the highest word in which a bit was set.
    touched: AtomicU32,
    /// A reader has seen that all bits of words `0..full` are set.
    full: AtomicU32,
}

impl Bits {
    /// Room for at least `bits` bits, all clear.
    pub(crate) fn new(bits: u32) -> Self {
        Self {
            words: zeroed(bits.div_ceil(64) as usize),
            touched: AtomicU32::new(0),
            full: AtomicU32::new(0),
        }
    }

    pub(crate) fn clear(&mut self) {
        for word in &mut self.words {
            *word = AtomicU64::new(0);
        }
        self.touched = AtomicU32::new(0);
        self.full = AtomicU32::new(0);
    }

    pub(crate) fn has_room_for(&self, bits: u32) -> bool {
        bits.div_ceil(64) as usize <= self.words.len()
    }

    /// Sets a bit. Returns `None` if the bit was set already, or is past the end.
    #[inline]
    pub(crate) fn insert(&self, bit: u32) -> Option<Neighbours> {
        let (word, mask) = self.place(bit)?;
        // This comes first, so that a bit that a reader finds in its word is also counted.
        let touched = bit / 64 + 1;
        if self.touched.load(Ordering::SeqCst) < touched {
            self.touched.fetch_max(touched, Ordering::SeqCst);
        }
        let before = word.fetch_or(mask, Ordering::SeqCst);
        if before & mask != 0 {
            return None;
        }
        Some(Neighbours {
            first: bit / 64 * 64,
            bits: u64::from_le(before | mask),
        })
    }

    pub(crate) fn remove(&self, bit: u32) {
        if let Some((word, mask)) = self.place(bit) {
            word.fetch_and(!mask, Ordering::SeqCst);
        }
    }

    #[inline]
    pub(crate) fn has_all(&self, range: Range<u32>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let until = range.end.min((at / 64 + 1) * 64);
            let mask = mask(at % 64, until - at);
            let Some(word) = self.words.get((at / 64) as usize) else {
                return false;
            };
            if u64::from_le(word.load(Ordering::SeqCst)) & mask != mask {
                return false;
            }
            at = until;
        }
        true
    }

    /// Number of bits that are set. Bits `0..lasting` are never cleared once they are set, so full
    /// words among them are counted only once.
    pub(crate) fn count(&self, lasting: u32) -> u32 {
        let known = self.full.load(Ordering::Acquire);
        let touched = self.touched.load(Ordering::Acquire);
        let words = self.words.get(known as usize..touched as usize);
        let mut count = known * 64;
        let mut full = known;
        for (index, word) in (known..).zip(words.unwrap_or(&[])) {
            let ones = word.load(Ordering::Acquire).count_ones();
            if ones == 64 && index == full && index < lasting / 64 {
                full += 1;
            }
            count += ones;
        }
        if full > known {
            // Release: a reader that relies on the stored value has also seen the data published
            // with these bits. Another reader may store a smaller value later, which is also
            // correct.
            self.full.store(full, Ordering::Release);
        }
        count
    }

    /// One past the highest bit that is set, or 0 if no bit is set.
    pub(crate) fn end(&self) -> u32 {
        let touched = self.touched.load(Ordering::Acquire);
        let last = (0..touched).rev().find_map(|index| {
            let word = self.word(index);
            (word != 0).then(|| index * 64 + (64 - word.leading_zeros()))
        });
        last.unwrap_or(0)
    }

    /// Bits `64 * index..`, the first in the least significant bit. Returns 0 past the end.
    pub(crate) fn word(&self, index: u32) -> u64 {
        let word = self.words.get(index as usize);
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
    }

    /// The 64 bits from `first` on, the first in the least significant bit.
    pub(crate) fn window(&self, first: u32) -> u64 {
        let (index, shift) = (first / 64, first % 64);
        let low = self.word(index) >> shift;
        // Use two shifts, because a shift by 64 would not shift at all.
        let high = (self.word(index + 1) << (63 - shift)) << 1;
        low | high
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    #[inline]
    fn place(&self, bit: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.words.get((bit / 64) as usize)?;
        Some((word, (1_u64 << (bit % 64)).to_le()))
    }
}

/// The word of a bit that was just set, with its value after that write.
#[derive(Clone, Copy)]
pub(crate) struct Neighbours {
    /// The bit that is the lowest bit of the word.
    first: u32,
    bits: u64,
}

impl Neighbours {
    /// Returns whether a bit of the range is clear in this word. The range includes the bit that
    /// was just set. Usually a bit is clear, and then no other word needs to be read.
    #[inline]
    pub(crate) fn has_hole(self, range: &Range<u32>) -> bool {
        let start = range.start.max(self.first);
        let end = range.end.min(self.first + 64);
        let mask = mask(start - self.first, end.saturating_sub(start));
        self.bits & mask != mask
    }
}

/// A mask of `count` bits from bit `first` on. `first + count` is at most 64.
#[inline]
fn mask(first: u32, count: u32) -> u64 {
    u64::MAX.checked_shr(64 - count).unwrap_or(0) << first
}

// The bytes behind `as_ptr` are those of little-endian words.
const _: () = assert!(size_of::<core::sync::atomic::AtomicU64>() == 8);
