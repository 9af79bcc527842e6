//! A long path in real time: carries any IPv4 and IPv6 packets between two TUN devices, through the
//! link model.
//!
//! Each direction has a thread that reads packets from one device, offers them to a
//! [`Link`](farwrite_link::Link), and writes them to the other device when the link says that they
//! have arrived.
//!
//! **Offloads.** With offloads the kernel hands over trains: many TCP segments or UDP datagrams of a
//! flow in one piece, with one header and a checksum that nobody has completed (virtio 1.2, 5.1.6.2;
//! `TUNSETOFFLOAD`). The link decides on each segment by itself: its place in the queue, its mark,
//! its loss, when it arrives. Segments of a train that arrive one after the other leave in one
//! piece, so that a path of 10 Gbit/s costs a system call for tens of packets. Checksums stay
//! incomplete: the receiving kernel takes such packets as sound, as it does between two local
//! devices.
//!
//! **Lateness.** Time is real, so a thread may fall behind. [`Lateness`] says by how much. Threads
//! that sleep have real-time priority, if the process may give it: on a machine with five times as
//! many busy threads as cores, that took the p99 of the lateness from 8 ms to 0.1 ms.

mod config;
mod device;
mod direction;
mod lateness;
mod namespace;
mod priority;
mod relay;

pub use config::{End, Namespace, PathConfig, RelayConfig, RelayError};
pub use lateness::Lateness;
pub use relay::{DirectionReport, Relay, Report};
