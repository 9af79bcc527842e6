//! The clock of a simulated host.

/// A clock that started at another time than the network's, and runs too fast or too slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimClock {
    /// What it shows when the network's clock shows 0, in nanoseconds.
    pub offset_ns: u64,
    /// How much faster than the network's clock it runs, in millionths; negative if it is slower.
    pub fast_ppm: i16,
}

const MILLION: u64 = 1_000_000;

impl SimClock {
    /// What it shows when the network's clock shows `network_ns`.
    #[must_use]
    pub fn local_ns(&self, network_ns: u64) -> u64 {
        let elapsed_ns = u128::from(network_ns) * self.rate() / u128::from(MILLION);
        let shown_ns = elapsed_ns + u128::from(self.offset_ns);
        u64::try_from(shown_ns).unwrap_or(u64::MAX)
    }

    /// The first time on the network's clock at which it shows `local_ns`, or more.
    #[must_use]
    pub fn network_ns(&self, local_ns: u64) -> u64 {
        let elapsed_ns = u128::from(local_ns.saturating_sub(self.offset_ns));
        let network_ns = (elapsed_ns * u128::from(MILLION)).div_ceil(self.rate());
        u64::try_from(network_ns).unwrap_or(u64::MAX)
    }

    /// How far it moves while the network's clock moves by a million.
    fn rate(&self) -> u128 {
        MILLION.saturating_add_signed(self.fast_ppm.into()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_agree() {
        for fast_ppm in [-200, 0, 200] {
            let clock = SimClock {
                offset_ns: 5_000_000_000,
                fast_ppm,
            };
            for network_ns in [0, 1, 999, 1_000_001, 40_000_000_007] {
                let local_ns = clock.local_ns(network_ns);
                let back_ns = clock.network_ns(local_ns);
                assert!(back_ns <= network_ns && clock.local_ns(back_ns) == local_ns);
                let next_ns = clock.network_ns(local_ns + 1);
                assert!(next_ns > network_ns && clock.local_ns(next_ns) > local_ns);
            }
        }
        let fast = SimClock {
            offset_ns: 7,
            fast_ppm: 200,
        };
        assert_eq!(fast.local_ns(1_000_000_000), 1_000_200_007);
        assert_eq!(fast.network_ns(3), 0, "before the network's clock began");
    }
}
