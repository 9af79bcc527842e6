//! Refuses packets that were opened before (P4.2).

/// Which counters of one direction have been accepted.
///
/// The highest [`ReplayWindow::COUNTERS`] are remembered one by one; older ones are refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayWindow {
    highest: u64,
    /// Bit i: `highest - i` was accepted. No bit is set before the first.
    accepted: u128,
}

impl ReplayWindow {
    /// Counters that are remembered.
    pub const COUNTERS: u64 = 128;

    /// A window that has accepted nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: 0,
            accepted: 0,
        }
    }

    /// Whether a counter is neither old nor accepted before; it is accepted then. Ask only about
    /// packets whose tag is right: any other moves the window for a stranger.
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
