//! Refuses sealed packets that were opened before (P2.7).

use alloc::boxed::Box;
use alloc::vec;

/// Bits of a word.
const WORD_BITS: u64 = u64::BITS as u64;
/// Words of the window. One of them is only in part in use, as in RFC 6479.
const WORDS: usize = 1 + (CounterWindow::COUNTERS / WORD_BITS) as usize;

/// The accepted counters of one data queue pair. Control packets have the smaller
/// [`ReplayWindow`](crate::control::ReplayWindow), which needs no heap.
///
/// The window stores the highest [`CounterWindow::COUNTERS`] counters one by one, and refuses older
/// ones. A repeat has a new counter, so the window covers packets that overtake each other, and no
/// round trip. It takes its memory (8 KiB) when it accepts the first counter.
///
/// ```
/// use farwrite_wire::sealing::CounterWindow;
///
/// let mut window = CounterWindow::default();
/// assert!(window.is_new(7), "nothing was accepted yet");
/// window.accept(7);
/// assert!(!window.is_new(7) && window.is_new(0) && window.is_new(u64::MAX));
/// window.accept(70_000);
/// assert!(!window.is_new(6), "too old to remember");
/// ```
#[derive(Clone, Debug, Default)]
pub struct CounterWindow {
    /// The highest counter accepted.
    highest: u64,
    /// A ring: the bit of a counter is at the counter modulo the number of bits. Empty before the
    /// first counter.
    words: Box<[u64]>,
}

impl CounterWindow {
    /// The number of counters that are stored at least.
    pub const COUNTERS: u64 = 1 << 16;

    /// Whether a counter is neither too old nor accepted before.
    #[must_use]
    pub fn is_new(&self, counter: u64) -> bool {
        if self.words.is_empty() || counter > self.highest {
            return true;
        }
        let (word, bit) = Self::place(counter);
        self.highest - counter < Self::COUNTERS && self.words[word] & bit == 0
    }

    /// Accepts a counter. Call this only after the tag of its packet was verified: otherwise an
    /// attacker can move the window.
    pub fn accept(&mut self, counter: u64) {
        if self.words.is_empty() {
            self.words = vec![0; WORDS].into_boxed_slice();
            self.highest = counter;
        }
        if counter > self.highest {
            // Words that enter the window have bits of counters that leave it.
            let (from, to) = (self.highest / WORD_BITS, counter / WORD_BITS);
            for word in from + 1..=to.min(from + WORDS as u64) {
                self.words[Self::word(word)] = 0;
            }
            self.highest = counter;
        } else if self.highest - counter >= Self::COUNTERS {
            return;
        }
        let (word, bit) = Self::place(counter);
        self.words[word] |= bit;
    }

    /// The highest counter accepted; `None` before the first.
    #[must_use]
    pub fn highest(&self) -> Option<u64> {
        (!self.words.is_empty()).then_some(self.highest)
    }

    fn place(counter: u64) -> (usize, u64) {
        (Self::word(counter / WORD_BITS), 1 << (counter % WORD_BITS))
    }

    /// Where a word of counters is in the ring.
    fn word(number: u64) -> usize {
        // Less than `WORDS`, so the cast loses nothing.
        #[allow(clippy::cast_possible_truncation)]
        let place = (number % WORDS as u64) as usize;
        place
    }
}
