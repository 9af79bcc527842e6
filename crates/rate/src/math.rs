//! Saturating integer arithmetic.

/// Nanoseconds per second times bits per byte, to convert between bytes per nanosecond and bits a
/// second.
const BIT_NS: u64 = 8_000_000_000;

/// `a * b / c`, rounded down, at most `u64::MAX`; a divisor of 0 counts as 1.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b) / u128::from(c.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// Bytes that a rate in bits a second moves in `ns` nanoseconds.
pub(crate) fn bytes_in(rate_bps: u64, ns: u64) -> u64 {
    mul_div(rate_bps, ns, BIT_NS)
}

/// Bits a second that move `bytes` in `ns` nanoseconds.
pub(crate) fn rate_of(bytes: u64, ns: u64) -> u64 {
    mul_div(bytes, BIT_NS, ns)
}

/// Time in nanoseconds to send `bytes` at a rate in bits a second.
pub(crate) fn time_of(bytes: u64, rate_bps: u64) -> u64 {
    mul_div(bytes, BIT_NS, rate_bps)
}

/// The largest integer whose cube is at most `value`.
pub(crate) fn cube_root(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle.saturating_pow(3) <= value {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_bytes_and_times_agree() {
        assert_eq!(bytes_in(8_000_000_000, 25_000_000), 25_000_000);
        assert_eq!(rate_of(25_000_000, 25_000_000), 8_000_000_000);
        assert_eq!(time_of(25_000_000, 8_000_000_000), 25_000_000);
        assert_eq!(mul_div(u64::MAX, u64::MAX, 0), u64::MAX);
    }

    proptest! {
        #[test]
        fn cube_roots_are_floors(value in any::<u64>()) {
            let root = u128::from(cube_root(value));
            prop_assert!(root.pow(3) <= u128::from(value));
            prop_assert!((root + 1).pow(3) > u128::from(value));
        }
    }
}
