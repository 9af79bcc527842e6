//! Input files of other simulators.
//!
//! - htsim (<https://github.com/Broadcom/csg-htsim>): connection matrices (`.cm`) with triggers and
//!   failures ([`connections`]), and topologies of two and three tiers ([`HtsimTopology`]).
//! - The RDMA trees of ns-3, HPCC and `ConWeave`: topologies ([`ns3::topology`]), flows
//!   ([`ns3::flows`]) and size distributions ([`ns3::sizes`]).
//!
//! Each reader takes the text of a file and its name for errors. What a file says that has no
//! counterpart here is left out and noted.

mod connections;
mod htsim;
pub mod ns3;
mod words;

pub use connections::{Connections, Failure, Tier, connections};
pub use htsim::HtsimTopology;
pub use words::InputError;

use farwrite_net::{NodeId, Topology};

/// A topology of a peer's file.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerTopology {
    /// Nodes and cables.
    pub topology: Topology,
    /// Switches, their latency in nanoseconds, and their buffer in bytes where the file has it.
    pub switches: Vec<(NodeId, u64, Option<u64>)>,
    /// The host behind each number of the peer's: its place among the hosts. `None` for a switch.
    pub host_of: Vec<Option<usize>>,
    /// What was left out.
    pub notes: Vec<String>,
}

/// What a file is, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// htsim's, a topology or connections: `Nodes`.
    Htsim,
    /// Of ns-3: a number.
    Ns3,
    /// TOML, and anything else.
    Toml,
}

/// Looks at the first word of a text.
#[must_use]
pub fn kind_of(text: &str) -> Kind {
    let lines = text.lines().map(str::trim);
    let first = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .find_map(|line| line.split_whitespace().next());
    match first {
        Some(word) if word.eq_ignore_ascii_case("nodes") => Kind::Htsim,
        Some(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => Kind::Ns3,
        _ => Kind::Toml,
    }
}
