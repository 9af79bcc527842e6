//! Forged box messages (P10.3, P11.2).

use std::net::IpAddr;

use farwrite_link::Datagram;
use farwrite_net::Frame;
use farwrite_net::header::Header;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::opcode::BOX_MESSAGE;

use super::headers::Headers;
use farwrite_rng::SplitMix;

const TAG_BYTES: usize = 16;
const LOWAR_KEY: [u8; 32] = *b"farwrite lowar box without a key";
const NETRT_KEY: [u8; 32] = *b"farwrite netrt box without a key";

/// The public default key of a box without a key.
pub(crate) fn default_key(is_lowar: bool) -> [u8; 32] {
    if is_lowar { LOWAR_KEY } else { NETRT_KEY }
}

/// The bytes of a box message; `None` if the frame is not one.
pub(crate) fn message(frame: &Frame) -> Option<&[u8]> {
    match &frame.header {
        Header::Other(bytes) if bytes.first() == Some(&BOX_MESSAGE) => Some(bytes),
        _ => None,
    }
}

/// A box message with some of its bits changed, sealed with a key for the headers that boxes see.
pub(crate) fn forged(
    genuine: &Frame,
    headers: Headers,
    key: &[u8; 32],
    rng: &mut SplitMix,
) -> Option<Frame> {
    let sealed = message(genuine)?;
    let bytes = sealed.len().checked_sub(TAG_BYTES + ICRC_BYTES)?;
    let mut message = sealed[..bytes].to_vec();
    for _ in 0..rng.within(1..4) {
        let at = rng.index(bytes - 1) + 1;
        message[at] ^= 1 << rng.within(0..8);
    }
    let ends = genuine.to_datagram().ok()?;
    let mut hash = blake3::Hasher::new_keyed(key);
    for address in [ends.src.ip(), ends.dst.ip()] {
        let IpAddr::V4(address) = address else {
            return None;
        };
        hash.update(&match headers.address(address) {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        });
    }
    hash.update(&message);
    message.extend_from_slice(&hash.finalize().as_bytes()[..TAG_BYTES]);
    let flow = Flow::new(ends.src, ends.dst).ok()?;
    let icrc = Icrc::new(&flow, 0, message.len() + ICRC_BYTES);
    let icrc = icrc.update(&message).finish();
    message.extend_from_slice(&icrc.to_le_bytes());
    Some(Frame {
        header: Header::Other(message.into()),
        ..genuine.clone()
    })
}

/// The frame with one bit changed. A packet becomes opaque bytes, because its ICRC is wrong.
pub(crate) fn changed(frame: &Frame, rng: &mut SplitMix) -> Option<Frame> {
    let Datagram { mut payload, .. } = frame.to_datagram().ok()?;
    let at = rng.index(payload.len());
    payload[at] ^= 1 << rng.within(0..8);
    Some(Frame {
        header: Header::Other(payload.into()),
        payload: farwrite_net::Payload::Bytes([].into()),
        ..frame.clone()
    })
}
