//! Sealed data packets (P2.7): their layout, the bytes that a tag covers, their keys, and the window
//! that refuses repeated packets. The cipher itself is not here.
//!
//! The payload of a sealed packet is the encrypted bytes, a counter of [`COUNTER_BYTES`], and a tag of
//! [`TAG_BYTES`].

mod window;

pub use window::CounterWindow;

use core::fmt;

use crate::control::KEY_BYTES;
use crate::request::WriteImm;

/// Bytes of the counter behind the encrypted bytes.
pub const COUNTER_BYTES: usize = 8;
/// Bytes of the tag behind the counter.
pub const TAG_BYTES: usize = 16;
/// Bytes that sealing adds to a payload.
pub const SEALING_BYTES: u32 = 24;
/// Bytes of the headers that the tag covers.
pub const ASSOCIATED_BYTES: usize = WriteImm::HEADER_BYTES - 1;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Byte of the BTH that boxes and switches change on the way (FECN and BECN). No tag covers it.
const CHANGING_BYTE: usize = 4;
/// A key seals 2^23 packets.
///
/// RFC 9001 appendix B.1.1 limits AES-GCM to q <= 2^35 / l packets under a key, where l is the number
/// of 16-byte blocks of a packet, for an advantage of at most 2^-57. The longest packet has 65,468
/// bytes of payload and 31 bytes of associated data, which are less than 2^12 blocks. ChaCha20-Poly1305
/// has no limit below 2^62 packets (section 6.6).
const EPOCH_BITS: u32 = 23;
const CONTEXT: &str = "farwrite 2026-11-27 keys of sealed data packets";

const _: () = assert!(COUNTER_BYTES + TAG_BYTES == SEALING_BYTES as usize);

/// The cipher of sealed packets (P2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-256-GCM. Fast where the processor has instructions for it.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439). Fast enough on any processor.
    ChaCha20Poly1305,
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// The secret of one direction of a queue pair. The keys of all its data queue pairs follow from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DirectionSecret([u8; KEY_BYTES]);

impl DirectionSecret {
    /// The secret of the direction from the end that has chosen the control key `sender` to the end
    /// that has chosen the control key `receiver`.
    ///
    /// Both keys are fresh for each queue pair (P6), so a secret is new as long as one of the ends
    /// draws its key at random.
    #[must_use]
    pub fn new(receiver: &[u8; KEY_BYTES], sender: &[u8; KEY_BYTES]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(receiver);
        hasher.update(sender);
        Self(*hasher.finalize().as_bytes())
    }

    /// The key of packets with counters of `epoch` to the data queue pair `qpn`.
    #[must_use]
    pub fn key(&self, qpn: u32, epoch: u64) -> [u8; KEY_BYTES] {
        let mut input = [0; 12];
        input[..4].copy_from_slice(&qpn.to_be_bytes());
        input[4..].copy_from_slice(&epoch.to_be_bytes());
        *blake3::keyed_hash(&self.0, &input).as_bytes()
    }
}

impl fmt::Debug for DirectionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectionSecret")
    }
}

/// The payload of a sealed packet, divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedPayload<'a> {
    /// The encrypted bytes: as many as were sealed.
    pub ciphertext: &'a [u8],
    /// The counter of the packet.
    pub counter: u64,
    /// The tag over the ciphertext, the counter (as the nonce) and the associated data.
    pub tag: &'a [u8; TAG_BYTES],
}

/// Divides a payload without its padding; `None` if it is too short to be sealed.
///
/// ```
/// use farwrite_wire::sealing::split;
///
/// let mut payload = vec![0xee; 3 + 24];
/// payload[3..11].copy_from_slice(&7_u64.to_be_bytes());
/// let sealed = split(&payload).expect("24 bytes and more");
/// assert_eq!((sealed.ciphertext.len(), sealed.counter), (3, 7));
/// assert!(split(&payload[..23]).is_none());
/// ```
#[must_use]
pub fn split(payload: &[u8]) -> Option<SealedPayload<'_>> {
    let (rest, tag) = payload.split_last_chunk()?;
    let (ciphertext, counter) = rest.split_last_chunk()?;
    Some(SealedPayload {
        ciphertext,
        counter: u64::from_be_bytes(*counter),
        tag,
    })
}

/// The bytes of the headers that the tag covers: all except byte 4 of the BTH.
#[must_use]
pub fn associated_data(header: &[u8; WriteImm::HEADER_BYTES]) -> [u8; ASSOCIATED_BYTES] {
    let mut out = [0; ASSOCIATED_BYTES];
    out[..CHANGING_BYTE].copy_from_slice(&header[..CHANGING_BYTE]);
    out[CHANGING_BYTE..].copy_from_slice(&header[CHANGING_BYTE + 1..]);
    out
}

/// The nonce of a packet: its counter behind four zero bytes.
#[must_use]
pub fn nonce(counter: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[NONCE_BYTES - COUNTER_BYTES..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

/// The epoch of a counter. Each epoch has a key of its own.
#[must_use]
pub const fn epoch(counter: u64) -> u64 {
    counter >> EPOCH_BITS
}
