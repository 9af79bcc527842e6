//! Packet sequence numbers (IBTA, "Packet Sequence Numbers").
//!
//! A PSN has 24 bits and wraps. Inside this crate, packets have a 64-bit *count* instead, which
//! does not wrap and whose low 24 bits are the PSN. Only this module handles the wrap; all other
//! code compares counts as integers.

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

/// The count of the first PSN of a queue pair. It is above zero, so that packets from before the
/// first PSN have a count too.
pub(crate) fn start(psn: u32) -> u64 {
    1 << BITS | u64::from(psn & MASK)
}

/// The PSN of a count.
pub(crate) fn of(count: u64) -> u32 {
    let [.., a, b, c] = count.to_be_bytes();
    u32::from_be_bytes([0, a, b, c])
}

/// The count with this PSN that is nearest to `reference`: from 2^23 below it to 2^23 - 1 above it.
pub(crate) fn near(psn: u32, reference: u64) -> u64 {
    const HALF: u64 = 1 << (BITS - 1);
    let from = reference.saturating_sub(HALF);
    from + u64::from(psn.wrapping_sub(of(from)) & MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_psns_across_the_wrap() {
        let last = start(MASK);
        assert_eq!(near(MASK, last), last);
        assert_eq!((near(0, last), of(last + 1)), (last + 1, 0));
        assert_eq!(near(MASK - 1, last + 5), last - 1);
        assert_eq!(near(0x7F_FFFE, last), last + 0x7F_FFFF);
        assert_eq!(near(0x7F_FFFF, last), last - 0x80_0000);
        assert_eq!(near(MASK, start(0)), start(0) - 1);
    }
}
