//! RDMA extended transport header (IBTA 9.3.3, P2.3).

use super::field;
use core::ops::Range;

const REMOTE_ADDR: Range<usize> = 0..8;
const RKEY: Range<usize> = 8..12;
const DMA_BYTES: Range<usize> = 12..16;

/// The destination of an RDMA Write, or the source of an RDMA Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// First address under `rkey`.
    pub remote_addr: u64,
    /// The key.
    pub rkey: u32,
    /// Bytes of the whole operation, without padding.
    pub dma_bytes: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const BYTES: usize = 16;

    /// Reads a header.
    #[must_use]
    pub fn parse(header: &[u8; Self::BYTES]) -> Self {
        Self {
            remote_addr: u64::from_be_bytes(field(header, REMOTE_ADDR)),
            rkey: u32::from_be_bytes(field(header, RKEY)),
            dma_bytes: u32::from_be_bytes(field(header, DMA_BYTES)),
        }
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; Self::BYTES]) {
        header[REMOTE_ADDR].copy_from_slice(&self.remote_addr.to_be_bytes());
        header[RKEY].copy_from_slice(&self.rkey.to_be_bytes());
        header[DMA_BYTES].copy_from_slice(&self.dma_bytes.to_be_bytes());
    }
}
