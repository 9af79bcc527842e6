//! The link model: what a long path does to datagrams, in virtual or real time.
//!
//! One [`Link`] is one direction between two nodes. A datagram waits in the queue of the
//! bottleneck, is serialised at the link's rate or by a trace, and arrives after the delay, which
//! may vary. It may be dropped by a policer, lost, duplicated, corrupted or held back on the wire.
//! The virtual-time fabric, the real-time emulator and tests use the same model.
//!
//! A link is a queue at the bottleneck and a [`Wire`] behind it. A simulator with its own queues
//! uses only the [`Serialiser`], the [`Ramp`] of ECN marks and the wire. A link carries
//! [`Datagram`]s, or any type that implements [`Packet`]. Its rate and its delay can change while
//! it runs ([`Step`]).
//!
//! It has no clock and no entropy. Times are arguments (`now_ns`, nanoseconds of the caller's
//! monotonic clock), and every draw comes from a seed. So the same configuration, seed and calls
//! give the same results.
//!
//! ```
//! use core::time::Duration;
//! use farwrite_link::{Datagram, Link, LinkConfig, Loss};
//!
//! let mut link = Link::new(
//!     LinkConfig {
//!         delay: Duration::from_millis(25),
//!         rate_bps: Some(8_000_000_000),
//!         loss: Loss::Iid { loss_packet: 1e-3 },
//!         ..LinkConfig::default()
//!     },
//!     1,
//! )?;
//! let datagram = Datagram {
//!     src: "10.0.0.1:49152".parse().unwrap(),
//!     dst: "10.0.0.2:4791".parse().unwrap(),
//!     tos: 0,
//!     id: 0,
//!     payload: vec![0; 972],
//! };
//! link.send(0, datagram.clone());
//! // 1000 bytes at one byte a nanosecond, then the delay.
//! assert_eq!(link.next_ns(), Some(25_001_000));
//! assert_eq!(link.poll(25_000_999), None);
//! assert_eq!(link.poll(25_001_000), Some(datagram));
//! # Ok::<(), farwrite_link::ConfigError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod datagram;
mod link;
mod loss;
mod packet;
mod policer;
mod queue;
mod ramp;
mod rng;
mod schedule;
mod serialiser;
mod spells;
mod steps;
mod trace;
mod variation;
mod wire;

pub use config::{ConfigError, LinkConfig, LinkDirection, MAX_DELAY, MAX_RATE_BPS, Reorder};
pub use counters::LinkCounters;
pub use datagram::Datagram;
pub use link::Link;
pub use loss::{Loss, ShortBurst};
pub use packet::Packet;
pub use policer::Policer;
pub use ramp::Ramp;
pub use rng::Rng;
pub use serialiser::Serialiser;
pub use steps::Step;
pub use trace::{DeliveryTrace, TraceError};
pub use variation::{Spread, Variation};
pub use wire::{Journey, Passage, Wire};
