//! The emulator between TUN devices carries any IPv4 and IPv6 packets between two of them through the
//! link model. It needs root.
//!
//! Each direction has a thread. It reads packets from one device, offers them to a
//! [`Link`](farwrite_link::Link), and writes them to the other device when the link says that they
//! have arrived.
//!
//! **Offloads.** With offloads, the kernel passes trains: many TCP segments or UDP datagrams of a
//! flow in one piece, with one header and an incomplete checksum (virtio 1.2, 5.1.6.2;
//! `TUNSETOFFLOAD`). The link decides about each segment separately: its place in the queue, its
//! mark, its loss, its arrival time. Segments of a train that arrive directly after each other
//! leave in one piece, so a path of 10 Gbit/s needs one system call for tens of packets. Checksums
//! stay incomplete: the receiving kernel accepts such packets as valid, as it does between two
//! local devices.
//!
//! **Priority.** Threads that sleep have real-time priority, if the process may set it. On a machine
//! with five times as many busy threads as cores, that reduced the p99 of the lateness from 8 ms to
//! 0.1 ms.

mod config;
mod device;
mod direction;
mod emulator;
mod namespace;
mod priority;

pub use config::{
    DeviceTask, Namespace, TunEmulatorConfig, TunEmulatorError, TunEnd, TunLinkConfig,
};
pub use emulator::{DirectionReport, TunEmulator, TunReport};
