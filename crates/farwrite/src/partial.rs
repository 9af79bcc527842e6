//! What arrived of a message that ended as partial.

use farwrite_sdr::ChunkBitmap;

/// What arrived of a message that ended as partial. The value never changes, even when the slot of
/// the message is used again.
///
/// Some of the packets of a chunk may arrive without the others. Then the bit of the chunk is not
/// set, but the bytes that arrived are counted, and they are in the buffer.
///
/// Example: a receive that ends at its deadline before anything has arrived:
///
/// ```
/// use farwrite::{Endpoint, Outcome, QpOptions, RecvOptions, UdpConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut endpoint = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let qp = endpoint.create_qp(QpOptions::default())?;
/// let region = endpoint.register(vec![0; 1 << 16])?;
/// let options = RecvOptions { deadline_ns: Some(0), ..RecvOptions::default() };
/// let recv = endpoint.post_recv_with(qp, region.whole(), options)?;
/// endpoint.run_until(|_| recv.outcome().is_some())?;
/// assert_eq!(recv.outcome(), Some(Outcome::Partial));
/// let partial = recv.partial().expect("it ended as partial");
/// assert!(partial.bytes() == 0 && !partial.has_chunk(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    bytes: u64,
    chunks: u32,
    bits: Vec<u8>,
}

impl Partial {
    /// The receive must be over.
    pub(crate) fn of(bitmap: &ChunkBitmap) -> Self {
        Self {
            bytes: bitmap.bytes(),
            chunks: bitmap.len(),
            bits: bitmap.to_bytes(),
        }
    }

    /// Returns the number of bytes that arrived or were computed from others. Each byte counts
    /// once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of chunks of the message. If its length never became known, returns the
    /// number of chunks of the buffer.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns whether all bytes of a chunk are in the buffer.
    #[must_use]
    pub fn has_chunk(&self, chunk: u32) -> bool {
        let byte = self.bits.get((chunk / 8) as usize);
        byte.is_some_and(|byte| byte >> (chunk % 8) & 1 == 1)
    }

    /// Returns the bitmap, with one bit for each chunk. The first chunk is the least significant
    /// bit of the first byte. A set bit means that all bytes of the chunk are in the buffer.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }
}
