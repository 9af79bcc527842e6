//! The interface of the datagrams that a link carries.

use crate::Datagram;

/// An IP datagram that a [`Link`](crate::Link) can carry. The caller chooses its representation.
pub trait Packet: Clone {
    /// Bytes of the IP datagram, its headers included.
    fn ip_bytes(&self) -> u64;

    /// Bytes that [`flip`](Self::flip) can reach.
    fn payload_bytes(&self) -> usize;

    /// Flips a bit of the payload: bit `bit % 8` of byte `bit / 8`.
    fn flip(&mut self, bit: usize);

    /// Sets the ECN field to CE (RFC 3168) if the sender has set ECT(0) or ECT(1), and returns
    /// whether it did.
    fn mark(&mut self) -> bool;
}

impl Packet for Datagram {
    fn ip_bytes(&self) -> u64 {
        Datagram::ip_bytes(self)
    }

    fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    fn flip(&mut self, bit: usize) {
        if let Some(byte) = self.payload.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn mark(&mut self) -> bool {
        let capable = matches!(self.tos & 0b11, 0b01 | 0b10);
        if capable {
            self.tos |= 0b11;
        }
        capable
    }
}
