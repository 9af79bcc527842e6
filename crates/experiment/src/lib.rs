//! Experiments in simulated networks: which host sends what to which other host and when, and how
//! long the flows take.
//!
//! A run has four parts, each a plain value:
//!
//! - a topology and switches, of [`farwrite_net`];
//! - a [`Workload`]: flows between hosts, and triggers that start flows after others. A [`Pattern`]
//!   makes a workload from a seed; [`other_simulators`] reads workloads of other simulators;
//! - a [`Transport`]: the protocol of the hosts and its settings. A host is a NIC of
//!   [`farwrite_rc`] or an endpoint of [`farwrite`], the same code that users run;
//! - a seed.
//!
//! [`run`] runs one experiment on one core. The same four parts give the same [`Outcome`], bit for
//! bit. A [`Plan`](plan::Plan) is a file that describes many runs; [`sweep`](plan::sweep) runs them
//! on all cores. `docs/sim.md` describes plans and results.

mod boxes;
mod capture;
mod changes;
pub mod extensions;
mod flow;
mod hosts;
mod ideal;
mod memory;
mod meter;
pub mod other_simulators;
mod outcome;
mod parallel;
pub mod parameters;
mod pattern;
pub mod plan;
mod run;
mod series;
mod sizes;
pub mod stats;
pub mod transport;
mod units;

pub use boxes::{BoxKind, BoxTotals, LowarBox, NetrtBox, PlacedBox};
pub use capture::Capture;
pub use changes::CableChange;
pub use extensions::Extensions;
pub use flow::{Flow, Start, Trigger, TriggerKind, Workload, WorkloadError};
pub use ideal::{Ideal, PacketFormat};
pub use memory::memory_bytes;
pub use meter::{Depth, Depths};
pub use outcome::{EndedBy, FlowEnd, FlowError, FlowOutcome, Outcome};
pub use parallel::parallel_map;
pub use pattern::{Pattern, PatternError, PatternNetwork};
pub use run::{Recording, RunError, RunSetup, run};
pub use series::{FlowSample, LinkSample, LinkSeries, Series, SeriesEvent};
pub use sizes::{SizeError, Sizes};
pub use transport::{CompleteBy, QueuePairOf, Retries, Transport, TransportSettings};
