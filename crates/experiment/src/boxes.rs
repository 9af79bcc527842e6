//! Boxes in the path that repair losses: their kinds, and their positions in a topology.

use std::num::NonZeroU32;
use std::time::Duration;

use farwrite_boxes::lowar::{self, Coding};
use farwrite_boxes::{Backpressure, netrt};
use farwrite_net::{CableId, NodeId, Role, Topology};
use serde::Deserialize;

use crate::changes::between;
use crate::units::nanoseconds;

/// Upper bound of the bytes of a packet beyond its payload.
pub(crate) const HEADER_BYTES: u64 = 128;
/// Length of a NetRT box's queue toward the path, in packets, at which the box pauses the NIC.
const STOP_PACKETS: u64 = 4;
/// Packets that a NIC still sends before the pause takes effect.
const REACTION_PACKETS: u64 = 4;

/// A kind of box and its settings. All boxes of one entry have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BoxKind {
    /// Forward error correction between two boxes ([`farwrite_boxes::lowar`]).
    Lowar(LowarBox),
    /// Retransmission between boxes beside the hosts ([`farwrite_boxes::netrt`]).
    Netrt(NetrtBox),
}

/// Settings of a LoWAR box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LowarBox {
    /// `"R,C"` or `"adaptive"`.
    #[serde(default = "adaptive", deserialize_with = "crate::units::parsed")]
    coding: Coding,
    /// Whether a box relies on the other one and protects flows from their first packet on.
    #[serde(default)]
    peer_known: bool,
    /// How long the decoder holds back packets for a missing one; `None`: 4 ms, or a quarter of the
    /// timeout of the NICs if that is less.
    #[serde(default, deserialize_with = "crate::units::maybe_wait")]
    hold: Option<Duration>,
    /// Most frames that a box holds back, those of one source at most four fifths; `None`: 2560.
    max_held: Option<usize>,
}

/// Settings of a NetRT box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetrtBox {
    /// Bytes of copies that a box keeps; `None`: two bandwidth-delay products of its cable, so that
    /// a lost retransmission can be repeated, and the packets that wait in the box itself.
    #[serde(default, deserialize_with = "crate::units::maybe_size")]
    pool: Option<u64>,
    /// How long a flow's packets are held back for a missing one; `None`: 40 round trips and at
    /// least 1 ms, or a quarter of the timeout of the NICs if that is less.
    #[serde(default, deserialize_with = "crate::units::maybe_wait")]
    hold: Option<Duration>,
    /// Most frames that a box holds back, those of one source at most four fifths; `None`: 2560.
    max_held: Option<usize>,
    /// Packets after a missing one within which others are requested at once; `None`: 128.
    bitmap_bits: Option<NonZeroU32>,
}

fn adaptive() -> Coding {
    Coding::Adaptive
}

/// A box in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedBox {
    /// The node of the box, made by [`Topology::insert_box`]: port 0 leads to the path, port 1 to
    /// the NICs.
    pub node: NodeId,
    /// The kind of the box.
    pub kind: BoxKind,
}

/// Positions of the boxes of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoxPosition {
    /// Beside each host.
    Hosts,
    /// At both ends of each cable between the two named nodes.
    Cable([String; 2]),
}

/// The path that a box serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoxLink {
    /// Rate of the cable in bits per second.
    pub(crate) rate_bps: u64,
    /// The longest round trip of a flow with empty queues.
    pub(crate) rtt_ns: u64,
    /// Bytes of payload in a packet.
    pub(crate) mtu: u32,
    /// Retransmission timeout of the NICs; the maximum value for endpoints, which have none.
    pub(crate) timeout_ns: u64,
}

impl BoxLink {
    /// How long a box holds back packets by default: at most a quarter of the timeout of the NICs.
    fn hold_ns(&self, default_ns: u64) -> u64 {
        default_ns.min(self.timeout_ns / 4)
    }
}

/// Counters of all boxes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxTotals {
    /// Repair packets sent by LoWAR boxes, and packets retransmitted by NetRT boxes.
    pub repairs: u64,
    /// Lost packets that boxes recovered for their NICs.
    pub recovered: u64,
    /// Number of times that a box released packets although an earlier one was missing. The NICs
    /// then repair the loss.
    pub given_up: u64,
    /// Largest number of frames that a box held back at one time.
    pub peak_held: u64,
}

impl BoxTotals {
    pub(crate) fn add(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.recovered += other.recovered;
        self.given_up += other.given_up;
        self.peak_held = self.peak_held.max(other.peak_held);
    }
}

impl BoxPosition {
    /// Inserts boxes into a topology.
    pub(crate) fn place(
        &self,
        kind: BoxKind,
        topology: &mut Topology,
    ) -> Result<Vec<PlacedBox>, String> {
        let mut placed = Vec::new();
        for (cable, beside) in self.ends(topology)? {
            let name = format!("box{}", topology.with_role(Role::Box).count());
            let node = topology.insert_box(cable, beside, name);
            placed.push(PlacedBox { node, kind });
        }
        Ok(placed)
    }

    /// The cable ends at which boxes go.
    fn ends(&self, topology: &Topology) -> Result<Vec<(CableId, NodeId)>, String> {
        match self {
            Self::Hosts => {
                let hosts: Vec<_> = topology.hosts().collect();
                let cables = (0..).map(CableId).zip(topology.cables());
                let ends = cables.flat_map(|(id, cable)| cable.ends.map(|end| (id, end)));
                let at_hosts = ends.filter(|(_, end)| hosts.binary_search(end).is_ok());
                Ok(at_hosts.collect())
            }
            Self::Cable(names) => {
                let cables = between(topology, names).map_err(|why| format!("at: {why}"))?;
                let ends = cables.into_iter();
                let ends = ends.flat_map(|(id, cable)| cable.ends.map(|end| (id, end)));
                Ok(ends.collect())
            }
        }
    }
}

impl BoxKind {
    /// Estimated upper bound of the memory of a box, in bytes.
    pub(crate) fn memory_bytes(&self, at: &BoxLink) -> u64 {
        let frame_bytes = u64::from(at.mtu) + HEADER_BYTES;
        let frames = |count: usize| (count as u64).saturating_mul(frame_bytes);
        match self {
            Self::Lowar(own) => {
                let config = own.config(at);
                frames(config.max_held).saturating_add(frames(2 * config.max_units))
            }
            Self::Netrt(own) => {
                let config = own.config(at);
                frames(config.max_held).saturating_add(config.pool_bytes as u64)
            }
        }
    }

    /// The problem with the hold time of a box, and the remedy; `None` if there is no problem.
    pub(crate) fn waits_too_long(&self, at: &BoxLink) -> Option<String> {
        let hold_ns = match self {
            Self::Lowar(own) => own.config(at).hold_ns,
            Self::Netrt(own) => own.config(at).hold_ns,
        };
        (hold_ns >= at.timeout_ns).then(|| {
            let [hold, timeout] = [hold_ns, at.timeout_ns].map(Duration::from_nanos);
            format!(
                "boxes hold packets for {hold:?}, and NICs repeat after {timeout:?}: set hold far \
                 below that"
            )
        })
    }

    /// How a box pauses the hosts beside it. NetRT boxes pause from a short queue on: the pool already
    /// has copies of its packets, so a longer queue would need a larger pool.
    pub(crate) fn backpressure(&self, at: &BoxLink) -> Backpressure {
        let packet_bytes = u64::from(at.mtu) + HEADER_BYTES;
        match self {
            Self::Lowar(_) => Backpressure::default(),
            Self::Netrt(_) => Backpressure::Pfc {
                stop_bytes: STOP_PACKETS * packet_bytes,
                resume_bytes: packet_bytes,
            },
        }
    }
}

impl LowarBox {
    /// Cables carry packets of any length, so repair packets are never too long.
    pub(crate) fn config(&self, at: &BoxLink) -> lowar::Config {
        let base = lowar::Config::default();
        lowar::Config {
            coding: self.coding,
            peer_known: self.peer_known,
            path_mtu_bytes: usize::from(u16::MAX),
            hold_ns: self.hold.map_or(at.hold_ns(base.hold_ns), nanoseconds),
            max_held: self.max_held.unwrap_or(base.max_held),
            ..base
        }
    }
}

impl NetrtBox {
    pub(crate) fn config(&self, at: &BoxLink) -> netrt::Config {
        let queued_bytes = (STOP_PACKETS + REACTION_PACKETS) * (u64::from(at.mtu) + HEADER_BYTES);
        let base = netrt::Config::new(at.rate_bps, at.rtt_ns).with_queue(queued_bytes);
        let pool = self
            .pool
            .map(|pool| usize::try_from(pool).unwrap_or(usize::MAX));
        netrt::Config {
            pool_bytes: pool.unwrap_or(base.pool_bytes),
            hold_ns: self.hold.map_or(at.hold_ns(base.hold_ns), nanoseconds),
            max_held: self.max_held.unwrap_or(base.max_held),
            bitmap_bits: self.bitmap_bits.map_or(base.bitmap_bits, NonZeroU32::get),
            ..base
        }
    }
}
