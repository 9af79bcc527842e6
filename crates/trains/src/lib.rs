//! Packets as kernels hand them over to programs that carry them: alone, or many of a flow in one
//! piece.
//!
//! With offloads, a kernel does not cut the data of a flow into packets, and it does not complete
//! checksums, because it leaves both to the network card. A program that reads packets from a TUN
//! device or from a packet socket gets them in this state, with a header that says what is left to
//! do (virtio 1.2, 5.1.6.2). [`Train`] cuts such a piece apart, and joins parts of it again;
//! [`complete_checksum`] does what is left of a single packet.

mod checksum;
mod train;

pub use checksum::complete_checksum;
pub use train::{Run, Scratch, Segment, Train, mark_congestion};

/// Bytes of the header before each packet of a device with offloads (`struct virtio_net_hdr`).
pub const VNET_BYTES: usize = 10;
