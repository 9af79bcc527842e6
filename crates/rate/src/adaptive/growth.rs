//! The growth of a window between two cuts.

use super::constants::{DOUBLING_HALVES, FIRST_STEP, GROWTH_UNIT, MAX_DOUBLINGS};
use crate::math::mul_div;

/// Growth since a cut, in units of the first step, in 256ths: `2^(t / d) - 1`, with a d of one and a
/// half round trips.
///
/// It depends only on the time since the cut and the round trip. Flows at one bottleneck see the
/// same queue, cut at about the same time, and so have the same growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Growth(u64);

impl Growth {
    /// The growth after `elapsed_ns`, with a round trip of `base_ns`.
    pub(super) fn after(elapsed_ns: u64, base_ns: u64) -> Self {
        let doubling_ns = (base_ns.saturating_mul(DOUBLING_HALVES) / 2).max(1);
        let doublings = elapsed_ns / doubling_ns;
        if doublings >= MAX_DOUBLINGS {
            return Self((GROWTH_UNIT << MAX_DOUBLINGS) - GROWTH_UNIT);
        }
        // Interpolate linearly between two powers of two.
        let part = mul_div(elapsed_ns % doubling_ns, GROWTH_UNIT, doubling_ns);
        Self(((GROWTH_UNIT + part) << doublings) - GROWTH_UNIT)
    }

    /// Bytes that this growth adds to a window of `window_bytes`. The added bytes double until they
    /// are a quarter of the window. After that, the window itself grows by a quarter per doubling
    /// time.
    pub(super) fn bytes(self, window_bytes: u64, packet_bytes: u64) -> u64 {
        let packets = window_bytes / packet_bytes.max(1);
        let step_bytes = packets.max(1).isqrt().saturating_mul(packet_bytes);
        let doubled_bytes = mul_div(step_bytes, self.0, GROWTH_UNIT * FIRST_STEP);
        let quarter_bytes = (window_bytes / 4).max(packet_bytes);
        let times = doubled_bytes / quarter_bytes.max(1);
        if times < 1 {
            return doubled_bytes;
        }
        let rounds = times.ilog2();
        let mut added_bytes = quarter_bytes;
        let mut step_bytes = window_bytes.saturating_add(quarter_bytes) / 4;
        for _ in 0..rounds {
            added_bytes = added_bytes.saturating_add(step_bytes);
            step_bytes = step_bytes.saturating_add(step_bytes / 4);
        }
        // Interpolate the logarithm linearly between two powers of two.
        let power_bytes = quarter_bytes.saturating_mul(1 << rounds);
        let part_bytes = mul_div(step_bytes, doubled_bytes - power_bytes, power_bytes);
        added_bytes.saturating_add(part_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn growth_doubles_in_one_and_a_half_round_trips() {
        let at = |ms: u64| Growth::after(ms * MS, 20 * MS).0;
        assert_eq!(
            [at(0), at(15), at(30), at(60), at(90)],
            [0, 128, 256, 768, 1_792]
        );
        let step = Growth::after(30 * MS, 20 * MS);
        assert_eq!(step.bytes(400 * 4096, 4096), 20 * 4096 / 8);
    }

    #[test]
    fn a_window_grows_by_at_most_a_quarter_each_round_trip() {
        let window = 1_000 * 4096;
        let mut before = 0;
        for round in 1..30 {
            let added = Growth::after(round * 10 * MS, 10 * MS).bytes(window, 4096);
            assert!(added - before <= (window + before) * 3 / 10, "{round}");
            before = added;
        }
        assert!(before > 20 * window);
    }

    proptest! {
        #[test]
        fn growth_never_falls_and_never_overflows(
            a in any::<u64>(), b in any::<u64>(), base in any::<u64>(), window in any::<u64>(),
            packet in any::<u64>(),
        ) {
            let early = Growth::after(a.min(b), base);
            let late = Growth::after(a.max(b), base);
            prop_assert!(early <= late);
            prop_assert!(early.bytes(window, packet) <= late.bytes(window, packet));
        }
    }
}
