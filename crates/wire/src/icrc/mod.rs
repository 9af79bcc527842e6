//! The invariant CRC: computed, checked and updated (P2.5).

mod flow;
mod poly;

pub use flow::{Flow, MixedFamilies};

use self::flow::IPV4_AFTER_ID_BYTES;
use crate::header::{Bth, CONGESTION, ICRC_BYTES};
use crc32fast::Hasher;

/// The range of IPv4 identifications with which a packet may have been sealed.
///
/// A UDP socket does not report the identification of a received packet, so a receiver derives it
/// from the ICRC. Each doubling of the range removes one bit of the ICRC's strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    highest: u16,
}

impl IdRange {
    /// 0 to 63: the values that Farwrite sends. A single datagram has 0, and segment i of a batch
    /// that the operating system cuts has i.
    pub const SOFTWARE: Self = Self { highest: 63 };
    /// All values: an RNIC may send any of them.
    pub const ANY: Self = Self { highest: u16::MAX };
}

/// Why an ICRC was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIcrc {
    /// The packet has no room for a BTH and an ICRC.
    #[error("{have_bytes} bytes hold no BTH and ICRC")]
    TooShort {
        /// Bytes of the packet.
        have_bytes: usize,
    },
    /// It does not match the packet under any accepted identification.
    #[error("ICRC {found:#010x} came, {expected:#010x} was wanted")]
    Mismatch {
        /// The ICRC for the expected identification.
        expected: u32,
        /// The ICRC of the packet.
        found: u32,
    },
}

/// The computation of an ICRC over a packet that may lie in pieces.
///
/// Feed it the packet from the BTH to the padding, in any pieces.
#[derive(Clone, Debug)]
pub struct Icrc {
    crc: Hasher,
    /// Bytes before the BTH's congestion byte that are still missing; `None` after it.
    congestion_in: Option<usize>,
    /// The identification, if there is one.
    id: Option<u16>,
    udp_payload_bytes: u16,
}

impl Icrc {
    /// Starts a packet of `udp_payload_bytes` from BTH to ICRC, both included. An IPv4 datagram
    /// holds at most 65507. For IPv6, `ipv4_id` is ignored.
    #[must_use]
    pub fn new(flow: &Flow, ipv4_id: u16, udp_payload_bytes: usize) -> Self {
        let udp_payload_bytes = saturate(udp_payload_bytes);
        Self {
            crc: Hasher::new_with_initial(flow.prefix_crc(ipv4_id, udp_payload_bytes)),
            congestion_in: Some(CONGESTION),
            id: flow.is_ipv4().then_some(ipv4_id),
            udp_payload_bytes,
        }
    }

    /// Processes the next bytes.
    #[must_use]
    pub fn update(mut self, bytes: &[u8]) -> Self {
        match self.congestion_in {
            None => self.crc.update(bytes),
            Some(at) => self.update_masked(bytes, at),
        }
        self
    }

    /// Processes bytes. The byte at `at`, if there is one, counts as ones.
    fn update_masked(&mut self, bytes: &[u8], at: usize) {
        /// The size of a write's whole header, so that it is processed as one piece.
        const PIECE_BYTES: usize = 32;
        let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES));
        let mut copy = [0; PIECE_BYTES];
        let masked = &mut copy[..piece.len()];
        masked.copy_from_slice(piece);
        self.congestion_in = match masked.get_mut(at) {
            Some(byte) => {
                *byte = 0xFF;
                None
            }
            None => Some(at - masked.len()),
        };
        self.crc.update(masked);
        self.crc.update(rest);
    }

    /// The ICRC. It is sent with its least significant byte first.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.crc.finalize()
    }

    /// Compares with the received ICRC: first for the identification given to [`Icrc::new`], and
    /// then for the others in `accept`. Returns the identification with which the packet was sealed
    /// (0 for IPv6).
    ///
    /// # Errors
    /// [`BadIcrc::Mismatch`].
    pub fn verify(self, found: u32, accept: IdRange) -> Result<u16, BadIcrc> {
        let (id, udp_payload_bytes) = (self.id, self.udp_payload_bytes);
        let expected = self.finish();
        if found == expected {
            return Ok(id.unwrap_or(0));
        }
        id.and_then(|id| sealed_with(id, found ^ expected, udp_payload_bytes))
            .filter(|&id| id <= accept.highest)
            .ok_or(BadIcrc::Mismatch { expected, found })
    }
}

/// Checks a whole UDP payload, from BTH to ICRC. `expected_id` is the most likely IPv4
/// identification; see [`Icrc::verify`].
///
/// # Errors
/// [`BadIcrc`].
pub fn verify(
    flow: &Flow,
    udp_payload: &[u8],
    expected_id: u16,
    accept: IdRange,
) -> Result<u16, BadIcrc> {
    let have_bytes = udp_payload.len();
    let (body, icrc) = udp_payload
        .split_last_chunk::<ICRC_BYTES>()
        .filter(|(body, _)| body.len() >= Bth::BYTES)
        .ok_or(BadIcrc::TooShort { have_bytes })?;
    Icrc::new(flow, expected_id, have_bytes)
        .update(body)
        .verify(u32::from_le_bytes(*icrc), accept)
}

/// Returns the ICRC of a packet that moves from one flow and identification to others, without
/// reading its `udp_payload_bytes`. A correct ICRC stays correct, and a wrong one stays wrong.
#[must_use]
pub fn reseal(old: (&Flow, u16), new: (&Flow, u16), udp_payload_bytes: usize, icrc: u32) -> u32 {
    let udp_payload_bytes = saturate(udp_payload_bytes);
    let prefix_crc = |(flow, id): (&Flow, u16)| flow.prefix_crc(id, udp_payload_bytes);
    let covered_bytes = udp_payload_bytes.saturating_sub(saturate(ICRC_BYTES));
    icrc ^ poly::shift(prefix_crc(old) ^ prefix_crc(new), covered_bytes)
}

/// Returns the identification that explains a difference from the ICRC for `expected_id`, if there
/// is one.
fn sealed_with(expected_id: u16, difference: u32, udp_payload_bytes: u16) -> Option<u16> {
    // The identification itself, what follows it before the BTH, and what follows that.
    let bytes_on = saturate(2 + IPV4_AFTER_ID_BYTES - ICRC_BYTES).saturating_add(udp_payload_bytes);
    let changed = poly::unshift(difference, bytes_on);
    // The register holds the identification's first byte lowest. Any bit above means that something
    // else differs too.
    let changed = u16::try_from(changed).ok()?.swap_bytes();
    Some(expected_id ^ changed)
}

fn saturate(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
