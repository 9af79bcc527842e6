//! Whole packets with their ICRC, half of them with a wrong bit: what `xp_icrc` of `lab/rtl` reads.
//!
//! Of each packet, the file has its length and whether its ICRC is right, and its beats of 64 bytes from the IP header
//! on. `lab/rtl/sim/icrc.cpp` reads it.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use farwrite_link::Rng;
use farwrite_wire::icrc::{Flow, Icrc};

use crate::record::Beats;

const BEAT_BYTES: usize = 64;
const UDP_BYTES: usize = 8;
const ICRC_BYTES: usize = 4;

/// Writes the packet that begins with these beats. The rest of its payload is drawn.
pub(crate) fn write(rng: &mut Rng, beats: &Beats, out: &mut impl Write) -> io::Result<()> {
    let ip_bytes = if beats[0] >> 4 == 6 { 40 } else { 20 };
    let udp_bytes = u16::from_be_bytes([beats[ip_bytes + 4], beats[ip_bytes + 5]]);
    let length = ip_bytes + usize::from(udp_bytes);
    let mut bytes = beats.to_vec();
    while bytes.len() < length {
        bytes.extend(rng.bits().to_le_bytes());
    }
    bytes.resize(length.next_multiple_of(BEAT_BYTES), 0);
    let (packet, _) = bytes.split_at_mut(length);
    let at = length - ICRC_BYTES;
    let right = icrc(packet, ip_bytes);
    packet[at..].copy_from_slice(&right);
    if rng.chance(0.5) {
        let wrong = wrong_byte(rng, length, ip_bytes);
        packet[wrong] ^= 1 << rng.below(8);
    }
    let is_right = packet[at..] == icrc(packet, ip_bytes);
    for value in [length, usize::from(is_right)] {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        out.write_all(&value.to_le_bytes())?;
    }
    out.write_all(&bytes)
}

/// A byte that may be wrong. The ICRC of Rust is about addresses and ports, an identification, and what follows the
/// UDP header. So the version, lengths, fragments and the protocol stay as they are.
fn wrong_byte(rng: &mut Rng, length: usize, ip_bytes: usize) -> usize {
    loop {
        // Often in the headers.
        let most = if rng.chance(0.5) { 80 } else { length };
        let at = rng.below(most.min(length));
        let stays: &[usize] = match ip_bytes {
            40 => &[0, 4, 5, 6],
            _ => &[0, 2, 3, 6, 7, 9],
        };
        let is_udp_length = (ip_bytes + 4..ip_bytes + 6).contains(&at);
        if !stays.contains(&at) && !is_udp_length {
            return at;
        }
    }
}

/// The ICRC of a packet whose last bytes are in its place.
fn icrc(packet: &[u8], ip_bytes: usize) -> [u8; ICRC_BYTES] {
    let port = |at| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let [src, dst] = [0, 1].map(|which| {
        let ip = match ip_bytes {
            40 => IpAddr::from(array::<16>(packet, 8 + 16 * which)),
            _ => IpAddr::from(array::<4>(packet, 12 + 4 * which)),
        };
        SocketAddr::new(ip, port(ip_bytes + 2 * which))
    });
    let flow = Flow::new(src, dst).expect("addresses of one IP version");
    let udp_payload = &packet[ip_bytes + UDP_BYTES..];
    let body = &udp_payload[..udp_payload.len() - ICRC_BYTES];
    let icrc = Icrc::new(&flow, port(4), udp_payload.len()).update(body);
    icrc.finish().to_le_bytes()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|offset| bytes[at + offset])
}
