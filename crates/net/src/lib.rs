//! Networks in virtual time: hosts, switches and boxes joined by cables. One clock serves the whole
//! network. It moves only while the network runs.
//!
//! A [`Topology`] lists nodes and cables. [`Shape`] makes the usual topologies, and [`read_toml`]
//! reads one from a file. A [`Network`] runs a topology with a [`Device`] at each host and box.
//! Switches are part of the network: [`SwitchConfig`] sets their shared buffer, ECN marks, PFC,
//! trimming and the choice among equal paths. `docs/networks.md` describes the model.
//!
//! One 64-bit seed determines a run. Events are ordered by time, and events of the same nanosecond
//! by the order in which they were scheduled. All random draws come from the seeded generator of
//! [`farwrite_link::Rng`]. Floating-point code uses IEEE 754 arithmetic only, without library
//! functions, so results are the same on every machine.
//!
//! **Time** is in whole nanoseconds, as in all of Farwrite. At 400 Gbit/s the shortest frame takes
//! 1.68 ns, so a port keeps the exact fraction of a nanosecond at which it becomes free. A busy
//! port therefore sends at exactly its rate. Only the time at which other nodes see a frame is
//! rounded up to the next nanosecond.
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
//! let write = Bth::new(0x07, 1, 0);
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
mod egress_scheduler;
mod ethernet;
mod event_hash;
mod events;
mod frame;
pub mod header;
mod ids;
mod network;
mod options;
mod pauses;
mod port;
mod prefetch;
mod routes;
mod switch;
mod telemetry;
mod topology;
mod units;

pub use bytes::{BytesError, address_of, node_of};
pub use cable::CableConfig;
pub use core::Change;
pub use counters::{FrameDrop, PortCounters};
pub use device::{Device, Output, Ports};
pub use ethernet::checksum;
pub use farwrite_link::{Loss, Policer, Spread, Variation};
pub use frame::{Ecn, Frame, Payload, ROCE_PORT};
pub use ids::{CableId, NodeId, PRIORITIES};
pub use network::Network;
pub use options::{NetworkError, Options};
pub use pauses::PauseEvent;
pub use prefetch::prefetch;
pub use switch::{
    Balancer, MakeBalancer, MarkAt, NamedBalancer, Pfc, Policy, PortChoice, Red, SwitchConfig,
    SwitchError, Trim, XoffThreshold,
};
pub use telemetry::{Hop, MAX_HOPS, Telemetry};
pub use topology::{
    Cable, FileError, LeafSpine, ListedCable, MAX_CABLES, MAX_NODES, MAX_PORTS, Node, NodeList,
    Role, Shape, Topology, TopologyError, read_toml,
};
