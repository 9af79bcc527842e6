//! The fabric of virtual time: genuine RoCEv2 packets over the link model, on one clock that stands
//! still until it is moved.
//!
//! Everything that happens follows from one 64-bit seed and the order of calls. One thread drives
//! all ends:
//!
//! ```
//! use std::time::Duration;
//! use farwrite_fabric::contract::{Fabric, RxWorker};
//! use farwrite_fabric::sim::{LinkConfig, SimNetwork};
//!
//! let network = SimNetwork::new(7);
//! let (left, right) = ("10.0.0.1:5000".parse()?, "10.0.0.2:5000".parse()?);
//! let mut a = network.endpoint(left, 1)?;
//! let mut b = network.endpoint(right, 1)?;
//! let far = LinkConfig { delay: Duration::from_millis(12), ..LinkConfig::default() };
//! network.connect(left.ip(), right.ip(), far, far)?;
//!
//! let mut workers = [a.take_rx(0)?, b.take_rx(0)?];
//! let mut completions = Vec::new();
//! while let Some(next_ns) = network.next_ns() {
//!     network.advance_to(next_ns);
//!     for worker in &mut workers {
//!         worker.poll(&mut completions)?;
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod carrier;
mod clock;
mod network;

use crate::nic::NicFabric;

pub use self::carrier::{SimCarrier, SimRx, SimTx};
pub use self::clock::SimClock;
pub use self::network::{SimError, SimNetwork, Verdict};
pub use farwrite_link::{Datagram, LinkConfig, LinkCounters, Loss, Ramp, Step};

/// One end in a [`SimNetwork`], made by [`SimNetwork::endpoint`].
pub type SimFabric = NicFabric<SimCarrier>;
