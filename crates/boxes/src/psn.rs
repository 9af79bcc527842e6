//! Packet sequence numbers (IBTA 9.7.1): 24 bits that wrap.

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

pub(crate) fn add(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MASK
}

pub(crate) fn sub(psn: u32, packets: u32) -> u32 {
    psn.wrapping_sub(packets) & MASK
}

/// Distance from `from` to `to`: -2^23 to 2^23 - 1, negative if `to` is before `from`.
pub(crate) fn distance(from: u32, to: u32) -> i32 {
    let unsigned = to.wrapping_sub(from) << (32 - BITS);
    unsigned.cast_signed() >> (32 - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_follow_the_wrap() {
        for (from, to, want) in [
            (0, 0, 0),
            (MASK, 0, 1),
            (0, MASK, -1),
            (5, 3, -2),
            (0, 1 << 23, -(1 << 23)),
            (0, (1 << 23) - 1, (1 << 23) - 1),
        ] {
            assert_eq!(distance(from, to), want);
        }
        assert_eq!((add(MASK, 2), sub(1, 2)), (1, MASK));
    }
}
