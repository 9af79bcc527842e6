//! Networks in virtual time: hosts, switches and boxes joined by cables, on one clock that stands
//! still until the network is run.
//!
//! A [`Topology`] says what is joined to what; [`Shape`] makes the usual ones, [`read_toml`] reads
//! one from a file. A [`Network`] runs it, with a [`Device`] at each host and box. Switches are
//! part of the network: shared buffers, marks, pauses, trimming and the choice among equal paths
//! are in [`SwitchConfig`]. `docs/networks.md` describes the model.
//!
//! Everything that happens follows from one 64-bit seed: the order of events from their time and,
//! within a nanosecond, from the order in which they were caused; every draw from the seeded
//! generator of [`farwrite_link::Dice`]. No floating-point function is used, only IEEE 754
//! arithmetic, which is the same on every machine.
//!
//! **Time** is in whole nanoseconds, as everywhere in Farwrite. At 400 Gbit/s the shortest frame
//! takes 1.68 ns, so a port keeps the exact fraction at which it becomes free: a busy port sends at
//! exactly its rate, and what is rounded (up, to the next nanosecond) is when others see a frame.
//!
//! ```
//! use farwrite_net::{CableConfig, Device, Frame, Network, Options, Output, Payload, Ports, Shape};
//! use farwrite_wire::header::Bth;
//! use std::time::Duration;
//!
//! /// Sends one frame of a kilobyte, or notes when one comes.
//! struct Host {
//!     sends: Option<Frame>,
//!     came_ns: Option<u64>,
//! }
//!
//! impl Device for Host {
//!     fn handle(&mut self, now_ns: u64, _port: usize, _frame: Frame) {
//!         self.came_ns = Some(now_ns);
//!     }
//!     fn poll(&mut self, _now_ns: u64, _ports: &Ports<'_>) -> Option<Output> {
//!         let frame = self.sends.take()?;
//!         Some(Output::Send { port: 0, frame })
//!     }
//!     fn next_ns(&self) -> Option<u64> {
//!         None
//!     }
//! }
//!
//! let cable = CableConfig::new(100_000_000_000, Duration::from_micros(1));
//! let topology = Shape::Star { hosts: 2, cable }.build()?;
//! let hosts: Vec<_> = topology.hosts().collect();
//! let mut network = Network::new(&topology, &Options::default(), 7, |_, _| Host {
//!     sends: None,
//!     came_ns: None,
//! })?;
//! let write = Bth::parse(&[0x07, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0]);
//! let frame = Frame::new(hosts[0], hosts[1], 49_152, write, Payload::Ghost(1000));
//! network.device_mut(hosts[0]).unwrap().sends = Some(frame);
//! network.run();
//! // 1082 bytes at 80 ps and a microsecond, on each of two cables.
//! assert_eq!(network.device(hosts[1]).unwrap().came_ns, Some(2 * (87 + 1000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod bytes;
mod cable;
mod core;
mod counters;
mod device;
mod events;
mod frame;
pub mod header;
mod ids;
mod network;
mod options;
mod port;
mod routes;
mod switch;
mod topology;
mod trace;
mod turns;
mod units;

pub use bytes::{BytesError, address_of, node_of};
pub use cable::CableConfig;
pub use core::Change;
pub use counters::{DropReason, PortCounters};
pub use device::{Device, Output, Ports};
pub use farwrite_link::Loss;
pub use frame::{Ecn, Frame, Payload, ROCE_PORT};
pub use ids::{CableId, NodeId, PRIORITIES};
pub use network::Network;
pub use options::{NetworkError, Options};
pub use switch::{MarkAt, Pfc, Policy, Red, SwitchConfig, SwitchError, Trim, XoffThreshold};
pub use topology::{
    Cable, FileError, LeafSpine, MAX_NODES, MAX_PORTS, Node, Role, Shape, Topology, TopologyError,
    read_toml,
};
