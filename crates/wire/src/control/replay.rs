//! Refuses packets that were opened before (P4.2).

/// The accepted counters of one direction.
///
/// The window stores the highest [`ReplayWindow::COUNTERS`] counters one by one, and refuses older
/// ones.
///
/// ```
/// use farwrite_wire::control::ReplayWindow;
///
/// let mut window = ReplayWindow::new();
/// assert!(window.accept(7) && window.accept(5));
/// assert!(!window.accept(7), "accepted before");
/// assert!(window.accept(500) && !window.accept(6), "too old to remember");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayWindow {
    highest: u64,
    /// Bit i: `highest - i` was accepted. No bit is set before the first packet.
    accepted: u128,
}

impl ReplayWindow {
    /// The number of counters in the window.
    pub const COUNTERS: u64 = 128;

    /// A window that has accepted nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: 0,
            accepted: 0,
        }
    }

    /// Accepts a counter that is neither old nor accepted before, and returns whether it did. Call
    /// this only for packets with a correct tag. Otherwise an attacker can move the window.
    #[must_use]
    pub fn accept(&mut self, counter: u64) -> bool {
        if self.accepted == 0 || counter > self.highest {
            let ahead = u32::try_from(counter.wrapping_sub(self.highest));
            let kept = ahead.ok().and_then(|n| self.accepted.checked_shl(n));
            self.accepted = kept.unwrap_or(0) | 1;
            self.highest = counter;
            return true;
        }
        let behind = self.highest - counter;
        if behind >= Self::COUNTERS || self.accepted >> behind & 1 == 1 {
            return false;
        }
        self.accepted |= 1 << behind;
        true
    }
}
