//! Checksums that the kernel left incomplete (checksum offload).

use crate::VNET_BYTES;

/// Flag in the field `flags`: the checksum is incomplete.
pub(crate) const NEEDS_CSUM: u8 = 1;

/// Completes the checksum of a packet, and clears the flag in its header. A packet with a complete
/// checksum does not change, nor does a packet whose header points beyond its end.
///
/// The incomplete checksum is the sum of the pseudo header. As in the kernel's `skb_checksum_help`,
/// this function adds the bytes from `csum_start` on.
pub fn complete_checksum(vnet: &mut [u8; VNET_BYTES], packet: &mut [u8]) {
    if vnet[0] & NEEDS_CSUM == 0 {
        return;
    }
    let start = usize::from(u16::from_ne_bytes([vnet[6], vnet[7]]));
    let field = start + usize::from(u16::from_ne_bytes([vnet[8], vnet[9]]));
    if field + 2 > packet.len() {
        return;
    }
    let sum = !sum(&packet[start..]);
    // In UDP, zero means "no checksum". 0xFFFF is the same number in one's complement.
    let sum = if sum == 0 { 0xFFFF } else { sum };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    vnet[0] &= !NEEDS_CSUM;
    vnet[6..10].fill(0);
}

/// The one's complement sum of big-endian words (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let mut sum: u64 = words
        .by_ref()
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    // The sum has been folded to 16 bits above.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP from 10.0.0.1:1 to 10.0.0.2:2 with payload "abc", and the sum of its pseudo header.
    fn packet() -> ([u8; VNET_BYTES], Vec<u8>) {
        let mut packet = vec![0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0, 1, 0, 2, 0, 11, 0, 0]);
        let pseudo = sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 11]);
        packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
        packet.extend(b"abc");
        let mut vnet = [0; VNET_BYTES];
        vnet[0] = NEEDS_CSUM;
        vnet[6..8].copy_from_slice(&20u16.to_ne_bytes());
        vnet[8..10].copy_from_slice(&6u16.to_ne_bytes());
        (vnet, packet)
    }

    #[test]
    fn a_completed_checksum_verifies() {
        let (mut vnet, mut packet) = packet();
        complete_checksum(&mut vnet, &mut packet);
        let mut covered = vec![10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 11];
        covered.extend(&packet[20..]);
        assert_eq!(sum(&covered), 0xFFFF);
        assert_eq!(vnet, [0; VNET_BYTES]);
    }

    #[test]
    fn complete_packets_and_wrong_headers_change_nothing() {
        let (vnet, packet) = packet();
        // With 31 bytes, a field at offset 30 would need one byte more.
        for (flags, start) in [(0, 20u16), (NEEDS_CSUM, 24), (NEEDS_CSUM, u16::MAX)] {
            let (mut vnet, mut same) = (vnet, packet.clone());
            vnet[0] = flags;
            vnet[6..8].copy_from_slice(&start.to_ne_bytes());
            complete_checksum(&mut vnet, &mut same);
            assert_eq!(same, packet, "flags {flags}, start {start}");
        }
    }
}
