//! Packets as the kernel passes them to programs that carry packets: single packets, or many
//! packets of a flow in one piece.
//!
//! With offloads, a kernel neither cuts the data of a flow into packets nor completes checksums: it
//! leaves both to the network card. A program that reads from a TUN device or from a packet socket
//! gets packets in this state, with a header that describes the remaining work (virtio 1.2,
//! 5.1.6.2). [`Train`] cuts such a piece into packets, and joins parts of it again.
//! [`complete_checksum`] completes the checksum of a single packet.

mod checksum;
mod train;

pub use checksum::complete_checksum;
pub use train::{Scratch, Segment, SegmentRun, Train, mark_congestion};

/// Length of the header before each packet of a device with offloads (`struct virtio_net_hdr`).
pub const VNET_BYTES: usize = 10;
