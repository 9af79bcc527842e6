//! What the path has delivered: the bound of all rates.

/// The highest rate of the last two cycles at which a train, or the packets of a round trip, arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    /// Rates in bits a second of the current cycle and of the one before; 0 if there was none.
    most_bps: [u64; 2],
}

impl Delivered {
    /// Records that the path delivered this rate, in bits a second.
    pub(super) fn note(&mut self, rate_bps: u64) {
        self.most_bps[0] = self.most_bps[0].max(rate_bps);
    }

    /// Begins a cycle, unless nothing was delivered in the current one.
    pub(super) fn turn(&mut self) {
        if self.most_bps[0] > 0 {
            self.most_bps = [0, self.most_bps[0]];
        }
    }

    /// The highest rate in bits a second; `None` before the first one.
    pub(super) fn most_bps(&self) -> Option<u64> {
        self.most_bps.into_iter().max().filter(|&bps| bps > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_of_two_cycles_counts() {
        let mut delivered = Delivered::default();
        assert_eq!(delivered.most_bps(), None);
        for rate_bps in [5, 9, 7] {
            delivered.note(rate_bps);
        }
        assert_eq!(delivered.most_bps(), Some(9));
        delivered.turn();
        delivered.note(4);
        assert_eq!(delivered.most_bps(), Some(9));
        delivered.turn();
        assert_eq!(delivered.most_bps(), Some(4));
        // Cycles in which nothing was measured do not count.
        delivered.turn();
        delivered.turn();
        assert_eq!(delivered.most_bps(), Some(4));
    }
}
