//! The fabric of virtual time: genuine RoCEv2 packets over the link model, on one clock that stands
//! still until it is moved.
//!
//! Everything that happens follows from one 64-bit seed and the order of calls. One thread drives
//! all ends:
//!
//! ```
//! use std::time::Duration;
//! use farwrite_fabric::contract::Fabric;
//! use farwrite_fabric::sim::{LinkConfig, SimNetwork};
//!
//! let network = SimNetwork::new(7);
//! let (left, right) = ("10.0.0.1:5000".parse()?, "10.0.0.2:5000".parse()?);
//! let mut a = network.endpoint(left, 1)?;
//! let mut b = network.endpoint(right, 1)?;
//! let far = LinkConfig { delay: Duration::from_millis(12), ..LinkConfig::default() };
//! network.connect(left.ip(), right.ip(), far, far)?;
//!
//! let mut completions = Vec::new();
//! while let Some(next_ns) = network.next_ns() {
//!     network.advance_to(next_ns);
//!     a.poll(&mut completions)?;
//!     b.poll(&mut completions)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod carrier;
mod network;

use crate::nic::NicFabric;

pub use self::carrier::SimCarrier;
pub use self::network::{SimError, SimNetwork, Verdict};
pub use farwrite_link::{Datagram, LinkConfig, LinkCounters, Loss};

/// One end in a [`SimNetwork`], made by [`SimNetwork::endpoint`].
pub type SimFabric = NicFabric<SimCarrier>;
