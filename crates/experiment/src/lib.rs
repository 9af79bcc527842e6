//! Experiments in virtual networks: who sends what to whom and when, and how long it takes.
//!
//! A run has four parts, each a plain value:
//!
//! - a topology and switches, of [`farwrite_net`];
//! - a [`Workload`]: flows between hosts, and triggers that start flows when others are done. A
//!   [`Pattern`] makes one from a seed; [`peers`] reads those of other simulators;
//! - a [`Transport`], what runs at each host, and its settings: a NIC of [`farwrite_rc`], or an
//!   endpoint of [`farwrite`] as it ships;
//! - a seed.
//!
//! [`run`] runs it on one core. The same four parts give the same [`Outcome`], bit for bit. A
//! [`Plan`](plan::Plan) is a file that names many runs; [`sweep`](plan::sweep) does them on all
//! cores. `docs/sim.md` describes plans and results.

mod flow;
mod host;
mod ideal;
mod meter;
mod outcome;
mod pattern;
pub mod peers;
pub mod plan;
mod run;
mod sizes;
pub mod stats;
pub mod transport;
mod units;

pub use flow::{Flow, Start, Trigger, TriggerKind, Workload, WorkloadError};
pub use ideal::{Ideal, Wire};
pub use meter::{Depth, Depths};
pub use outcome::{FlowEnd, FlowError, FlowOutcome, Outcome};
pub use pattern::{Pattern, PatternError, Place};
pub use run::{RunError, Scene, memory_bytes, run};
pub use sizes::{SizeError, Sizes};
pub use transport::{Dcqcn, Protocol, Transport};
