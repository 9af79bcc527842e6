//! Input files of other simulators.
//!
//! - htsim (<https://github.com/Broadcom/csg-htsim>): connection matrices (`.cm`) with triggers and
//!   failures ([`connections`]), and topologies of two and three tiers ([`HtsimTopology`]).
//! - The RDMA trees of ns-3, HPCC and `ConWeave`: topologies ([`ns3::topology`]), flows
//!   ([`ns3::flows`]) and size distributions ([`ns3::sizes`]).
//! - Completion times that they write ([`completion_times`]), which flow is which
//!   ([`match_flows`]), and their times beside ours ([`compare_flows`]).
//!
//! Each reader takes the text of a file, and its name for errors. Parts of a file without a
//! counterpart here are ignored, with a note.

mod comparison;
mod connections;
mod htsim;
mod matching;
pub mod ns3;
mod times;
mod words;

pub use comparison::{ComparedFlow, Found, TooFast, compare_flows, too_fast};
pub use connections::{CableFailure, ConnectionMatrix, Tier, connections};
pub use htsim::HtsimTopology;
pub use matching::{FlowMatching, match_flows, planned_ns};
pub use times::{OtherFlow, OtherTime, completion_times};
pub use words::InputError;

use farwrite_net::{NodeId, Topology};

/// A topology from another simulator's file.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedTopology {
    /// Nodes and cables.
    pub topology: Topology,
    /// Switches, each with its latency in nanoseconds and, if the file has it, its buffer in bytes.
    pub switches: Vec<(NodeId, u64, Option<u64>)>,
    /// For each node number of the file, the index among the hosts; `None` for a switch.
    pub host_of: Vec<Option<usize>>,
    /// Notes about parts of the file that were ignored.
    pub notes: Vec<String>,
}

/// The kind of a file, detected by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A topology or a connection matrix of htsim. The first word is `Nodes`.
    Htsim,
    /// A file of ns-3. The first word is a number.
    Ns3,
    /// TOML, and everything else.
    Toml,
}

/// Detects the kind of a file.
#[must_use]
pub fn kind_of(text: &str) -> FileKind {
    let lines = words::without_mark(text).lines().map(str::trim);
    let first = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .find_map(|line| line.split_whitespace().next());
    match first {
        Some(word) if word.eq_ignore_ascii_case("nodes") => FileKind::Htsim,
        Some(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => FileKind::Ns3,
        _ => FileKind::Toml,
    }
}
