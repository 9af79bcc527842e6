//! Packet alignment coding (LoWAR, section IV-B): the shape of blocks, and coding units. A coding
//! unit is the XOR of the packets of one interleave class. The XOR of a coding unit and all packets
//! of its class except one is that one packet.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use farwrite_wire::header::ICRC_BYTES;

use crate::Side;
use crate::shares::{Part, Shares, Source};

/// Highest number of data packets in a block.
pub const MAX_BLOCK_PACKETS: u16 = 256;
/// Highest number of repair packets in a block.
pub const MAX_UNITS: u8 = 64;
/// The part of all coding units that one IP address can have in use while no other one has any.
const OF_HOST: Part = Part::new(4, 5);
/// The same for an Ethernet address, on the side of the NICs.
const OF_STATION: Part = Part::new(8, 9);

/// LoWAR(r, c): a block has `packets` (r) data packets, and `units` (c) repair packets. Packet i of
/// a block belongs to interleave class i mod c, and each class survives one loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    packets: u16,
    units: u8,
}

/// A pair of numbers that is not a valid shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "LoWAR({packets}, {units}) is not possible: blocks have 1 to {MAX_BLOCK_PACKETS} packets and 1 \
     to {MAX_UNITS} repair packets, and at least as many packets as repair packets"
)]
pub struct ShapeError {
    /// Data packets of a block.
    pub packets: u16,
    /// Repair packets of a block.
    pub units: u8,
}

impl BlockShape {
    /// LoWAR(packets, units).
    ///
    /// # Errors
    /// [`ShapeError`].
    pub const fn new(packets: u16, units: u8) -> Result<Self, ShapeError> {
        let holds = packets <= MAX_BLOCK_PACKETS && units <= MAX_UNITS;
        if holds && units >= 1 && units as u16 <= packets {
            Ok(Self { packets, units })
        } else {
            Err(ShapeError { packets, units })
        }
    }

    /// LoWAR(32, 1), which the paper evaluates most.
    pub const DEFAULT: Self = Self {
        packets: 32,
        units: 1,
    };

    /// Data packets of a full block: r.
    #[must_use]
    pub fn packets(self) -> u16 {
        self.packets
    }

    /// Repair packets of a full block: c.
    #[must_use]
    pub fn units(self) -> u8 {
        self.units
    }

    /// Number of repair packets for a block with this number of data packets. A class without data
    /// packets has no repair packet.
    pub(crate) fn units_of(self, packets: u16) -> usize {
        usize::from(packets.min(u16::from(self.units)))
    }

    /// The interleave class of the packet at this position of a block.
    pub(crate) fn class_of(self, position: u16) -> usize {
        usize::from(position % u16::from(self.units))
    }
}

/// The XOR of packets. It covers UDP payload lengths, IPv4 identifications, and UDP payloads from
/// the BTH to the ICRC, which is [mixed](mixed). Shorter payloads are padded with zeros.
#[derive(Debug, Default)]
pub(crate) struct CodingUnit {
    bytes: Vec<u8>,
    /// Bytes combined into the unit by XOR since it was cleared.
    added: u64,
}

/// Bytes of a unit beside the longest packet in it.
pub(crate) const UNIT_EXTRA_BYTES: usize = 4;

impl CodingUnit {
    /// XORs a packet into the unit. Adding the same packet twice removes it.
    pub(crate) fn add(&mut self, ipv4_id: u16, payload: &[u8]) {
        // A UDP payload has less than 2^16 bytes.
        let [a, b] = u16::try_from(payload.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes();
        let [c, d] = ipv4_id.to_be_bytes();
        self.xor(0, &[a, b, c, d]);
        match payload.split_last_chunk::<ICRC_BYTES>() {
            Some((before, icrc)) => {
                self.xor(UNIT_EXTRA_BYTES, before);
                self.xor(UNIT_EXTRA_BYTES + before.len(), &mixed(*icrc));
            }
            None => self.xor(UNIT_EXTRA_BYTES, payload),
        }
    }

    pub(crate) fn add_unit(&mut self, bytes: &[u8]) {
        self.xor(0, bytes);
    }

    /// `len` is the length of the unit before [`add_unit`](Self::add_unit).
    pub(crate) fn remove_unit(&mut self, bytes: &[u8], len: usize) {
        self.xor(0, bytes);
        self.bytes.truncate(len);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the unit as one packet: its identification and payload. Meaningful if exactly one
    /// packet is left in the unit. Then zeros follow the packet.
    pub(crate) fn packet(&self) -> Option<(u16, Vec<u8>)> {
        let ([a, b, c, d], payload) = self.bytes.split_first_chunk()?;
        let bytes = usize::from(u16::from_be_bytes([*a, *b]));
        let (packet, rest) = payload.split_at_checked(bytes)?;
        let is_one = rest.iter().all(|byte| *byte == 0);
        let mut packet = packet.to_vec();
        if let Some(icrc) = packet.last_chunk_mut::<ICRC_BYTES>() {
            *icrc = unmixed(*icrc);
        }
        is_one.then_some((u16::from_be_bytes([*c, *d]), packet))
    }

    fn xor(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.added += bytes.len() as u64;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        for (mine, byte) in self.bytes[at..end].iter_mut().zip(bytes) {
            *mine ^= byte;
        }
    }
}

/// An ICRC as a unit has it: a permutation of the numbers of 32 bits that is not linear (the finaliser of
/// `MurmurHash3`).
///
/// The ICRC is linear, so the XOR of three packets with right ICRCs has a right one too. A NIC that sends a packet
/// again may change it. For instance, the MSN of a READ response is a newer one. If the announcement of the
/// repeated block was lost, the receiving box may have the old packet in its unit, and the repair packet the new
/// one. Then the XOR is no packet, and its ICRC shows it only because of this.
fn mixed(icrc: [u8; ICRC_BYTES]) -> [u8; ICRC_BYTES] {
    let mut x = u32::from_be_bytes(icrc);
    x = (x ^ x >> 16).wrapping_mul(0x85EB_CA6B);
    x = (x ^ x >> 13).wrapping_mul(0xC2B2_AE35);
    (x ^ x >> 16).to_be_bytes()
}

fn unmixed(icrc: [u8; ICRC_BYTES]) -> [u8; ICRC_BYTES] {
    let mut x = u32::from_be_bytes(icrc);
    x = (x ^ x >> 16).wrapping_mul(0x7ED1_B41D);
    x = (x ^ x >> 13 ^ x >> 26).wrapping_mul(0xA5CB_9243);
    (x ^ x >> 16).to_be_bytes()
}

/// The free coding units. Blocks allocate and release them in FIFO order (LoWAR, appendix).
#[derive(Debug)]
pub(crate) struct UnitPool {
    free: VecDeque<CodingUnit>,
    shares: Shares,
    /// Highest number of units in use at a time.
    peak: usize,
    /// Bytes combined by XOR into units that were released since.
    xored_bytes: u64,
}

impl UnitPool {
    /// A pool for the blocks of sources at one side of the box.
    pub(crate) fn new(units: usize, from: Side) -> Self {
        let of_station = (from == Side::Near).then_some(OF_STATION);
        Self {
            free: (0..units).map(|_| CodingUnit::default()).collect(),
            shares: Shares::new(units, OF_HOST, of_station),
            peak: 0,
            xored_bytes: 0,
        }
    }

    /// Allocates cleared units. Returns `None` if too few are free, or if the source has its share.
    pub(crate) fn allocate(&mut self, source: &Source, units: usize) -> Option<Vec<CodingUnit>> {
        (units <= self.free.len() && self.shares.allow(source)).then(|| {
            let allocated = self.free.drain(..units).collect();
            self.shares.take(source, units);
            self.peak = self.peak.max(self.shares.used());
            allocated
        })
    }

    pub(crate) fn release(&mut self, source: &Source, units: Vec<CodingUnit>) {
        self.shares.give_back(source, units.len());
        for mut unit in units {
            self.xored_bytes += core::mem::take(&mut unit.added);
            unit.bytes.clear();
            self.free.push_back(unit);
        }
    }

    /// Bytes that blocks combined into units by XOR before they ended.
    pub(crate) fn xored_bytes(&self) -> u64 {
        self.xored_bytes
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak as u64
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_gives_back_the_one_packet_that_is_missing() {
        let packets: [&[u8]; 3] = [b"long packet", b"short", b""];
        for missing in 0..3u16 {
            let mut unit = CodingUnit::default();
            let mut repair = CodingUnit::default();
            for (at, packet) in (0..).zip(packets) {
                repair.add(7 + at, packet);
                if at != missing {
                    unit.add(7 + at, packet);
                }
            }
            unit.add_unit(repair.bytes());
            let want = (7 + missing, packets[usize::from(missing)].to_vec());
            assert_eq!(unit.packet(), Some(want));
        }
    }

    #[test]
    fn three_packets_are_not_one() {
        for packet in [[0; 4], [1, 2, 3, 4], [255; 4]] {
            assert_eq!(unmixed(mixed(packet)), packet);
        }
        let [a, b, c] = [[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]];
        let mut unit = CodingUnit::default();
        for icrc in [a, b, c] {
            unit.add(0, &icrc);
        }
        let sum = [0, 1, 2, 3].map(|at| a[at] ^ b[at] ^ c[at]);
        assert_ne!(unit.packet(), Some((0, sum.to_vec())));
    }

    #[test]
    fn units_come_back_empty_and_never_run_over() {
        let source = Source::numbered(1, 1);
        let mut pool = UnitPool::new(3, Side::Near);
        let mut units = pool.allocate(&source, 2).unwrap();
        units[0].add(1, b"bytes");
        assert!(pool.allocate(&source, 2).is_none());
        assert_eq!(pool.xored_bytes(), 0);
        pool.release(&source, units);
        // Four bytes for the length and the identification, five for the payload.
        assert_eq!(pool.xored_bytes(), 4 + 5);
        assert_eq!(pool.peak(), 2);
        assert!(
            pool.allocate(&source, 3)
                .unwrap()
                .iter()
                .all(|u| u.bytes().is_empty())
        );
    }

    #[test]
    fn one_source_does_not_take_all_units() {
        let mut pool = UnitPool::new(1024, Side::Near);
        let blocks = |pool: &mut UnitPool, host| {
            let source = Source::numbered(1, host);
            (0..1000)
                .take_while(|_| pool.allocate(&source, 8).is_some())
                .count()
        };
        assert_eq!(blocks(&mut pool, 1), 103, "four fifths");
        assert!(blocks(&mut pool, 2) >= 8);
    }

    #[test]
    fn shapes_have_limits() {
        for (packets, units) in [(0, 0), (1, 0), (1, 2), (257, 1), (128, 65)] {
            assert!(BlockShape::new(packets, units).is_err());
        }
        let shape = BlockShape::new(8, 2).unwrap();
        assert_eq!((shape.units_of(1), shape.units_of(5)), (1, 2));
        assert_eq!([0, 1, 2, 3].map(|at| shape.class_of(at)), [0, 1, 0, 1]);
    }
}
