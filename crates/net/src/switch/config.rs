//! Configuration of switches.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_link::Ramp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::PRIORITIES;
use crate::cable::CableConfig;
use crate::switch::balancer::{MakeBalancer, NamedBalancer};

/// Bytes of a PFC frame on a cable: 64 of Ethernet frame, 20 of preamble and gap (IEEE 802.1Qbb).
pub(crate) const PFC_FRAME_BYTES: u64 = 84;

/// Configuration of a switch. The default is store and forward with a buffer of 9 MiB.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchConfig {
    /// Bytes of frames that all ports hold together.
    #[serde(rename = "buffer", deserialize_with = "crate::units::size")]
    pub buffer_bytes: u64,
    /// A queue admits frames while it holds fewer bytes than `alpha` times the free bytes of the
    /// shared buffer (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking,
    /// 1998). Queues of lossless priorities are limited by [`Pfc`] instead.
    pub alpha: f64,
    /// Time from the arrival of a frame's last bit until the frame joins an egress queue.
    #[serde(
        deserialize_with = "crate::units::time",
        serialize_with = "crate::units::write_time"
    )]
    pub latency: Duration,
    /// Weight of each priority. Weight 0 is strict: strict priorities go first, the highest first.
    /// The others share the remaining rate in proportion to their weights.
    pub weights: [u16; PRIORITIES],
    /// ECN marking; `None`: no marks.
    pub ecn: Option<Red>,
    /// Lossless priorities; `None`: there are none.
    pub pfc: Option<Pfc>,
    /// Trimming of payloads instead of drops; `None`: the switch drops.
    pub trim: Option<Trim>,
    /// Which of the shortest paths a frame takes.
    pub routing: Policy,
    /// A load balancer of another crate, in place of `routing`.
    pub balancer: Option<NamedBalancer>,
}

/// ECN marking by queue length (RED on the instantaneous queue, as in DCQCN: SIGCOMM 2015, section
/// 5). `kmin_bytes = kmax_bytes` with `pmax = 1` is the step of DCTCP (SIGCOMM 2010).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { kmin = \"5kB\", kmax = \"200kB\", pmax = 0.01 }"
)]
pub struct Red {
    /// Up to this length of the frame's egress queue, in bytes, no frame is marked.
    #[serde(rename = "kmin", deserialize_with = "crate::units::size")]
    pub kmin_bytes: u64,
    /// Beyond this length, every frame is marked.
    #[serde(rename = "kmax", deserialize_with = "crate::units::size")]
    pub kmax_bytes: u64,
    /// The marking probability at `kmax_bytes`, 0 to 1. It rises linearly from 0 at `kmin_bytes`.
    pub pmax: f64,
    /// When the queue length is read.
    #[serde(default)]
    pub at: MarkAt,
    /// The rate of the port, in bits per second, for which both lengths are; at other ports they are in proportion.
    /// `None`: they are the same at all ports.
    #[serde(
        rename = "rate",
        default,
        deserialize_with = "crate::units::maybe_rate"
    )]
    pub rate_bps: Option<u64>,
}

/// When the queue length is read for marking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkAt {
    /// When the frame joins the queue: the bytes ahead of it count.
    Arrival,
    /// When the frame leaves the queue: the bytes behind it count, so the mark reaches the receiver
    /// sooner after the congestion.
    #[default]
    Departure,
}

impl Red {
    /// Marking probability for a queue length in bytes, at a port of this rate.
    #[must_use]
    pub fn probability(&self, queue_bytes: u64, port_bps: u64) -> f64 {
        let at_port = |bytes: u64| match self.rate_bps {
            None => bytes,
            Some(of_bps) => {
                let bytes = u128::from(bytes) * u128::from(port_bps) / u128::from(of_bps.max(1));
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        let ramp = Ramp {
            low_bytes: at_port(self.kmin_bytes),
            high_bytes: at_port(self.kmax_bytes),
            most: self.pmax,
        };
        ramp.probability(queue_bytes)
    }
}

/// Priority-based flow control (IEEE 802.1Qbb), by the bytes that the switch holds of each ingress
/// port.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of priorities, xoff and more: docs/networks.md has all keys"
)]
pub struct Pfc {
    /// The lossless priorities.
    pub priorities: Vec<u8>,
    /// Bytes in the shared buffer of one port and priority at which the peer must stop.
    #[serde(deserialize_with = "threshold")]
    pub xoff: XoffThreshold,
    /// The peer resumes when the headroom is empty and the byte count is this far below `xoff`.
    #[serde(
        rename = "xon_gap",
        default = "Pfc::default_xon_gap",
        deserialize_with = "crate::units::size"
    )]
    pub xon_gap_bytes: u64,
    /// Bytes reserved for frames that arrive after a stop, for each port and lossless priority.
    /// `None`: the value that the port's cable needs ([`Pfc::headroom_of`]).
    #[serde(
        rename = "headroom",
        default,
        deserialize_with = "crate::units::maybe_size"
    )]
    pub headroom_bytes: Option<u64>,
    /// The longest frame, framing included. The headroom depends on it.
    #[serde(
        rename = "max_frame",
        default = "Pfc::default_max_frame",
        deserialize_with = "crate::units::size"
    )]
    pub max_frame_bytes: u64,
}

/// The threshold at which a priority of an ingress port stops.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum XoffThreshold {
    /// This multiple of the free bytes of the shared buffer.
    Alpha(f64),
    /// This number of bytes.
    #[serde(deserialize_with = "crate::units::size")]
    Bytes(u64),
}

/// Reads a threshold. An error shows how one is written.
fn threshold<'de, D: Deserializer<'de>>(from: D) -> Result<XoffThreshold, D::Error> {
    let shown = "write { alpha = 0.0625 }, of the free buffer, or { bytes = \"100kB\" }";
    XoffThreshold::deserialize(from).map_err(|why| D::Error::custom(format_args!("{why}; {shown}")))
}

impl Pfc {
    /// Flow control for some priorities, with the threshold at 1/16 of the free buffer and the
    /// headroom that the cables need.
    #[must_use]
    pub fn new(priorities: &[u8]) -> Self {
        Self {
            priorities: priorities.to_vec(),
            xoff: XoffThreshold::Alpha(1.0 / 16.0),
            xon_gap_bytes: Self::default_xon_gap(),
            headroom_bytes: None,
            max_frame_bytes: Self::default_max_frame(),
        }
    }

    /// Bytes that can still arrive after a switch with this latency decides to stop a priority, with the
    /// switch at the first end of the cable. They are the frame that crossed the threshold, the bytes that
    /// arrive during the frame that delays the PFC frame and the PFC frame itself, the frame that the peer
    /// has begun to send, and the bytes that the cable carries in twice its delay plus the latency. This is
    /// the calculation of IEEE 802.1Qbb, annex O, without reaction times, which the model does not have.
    #[must_use]
    pub fn headroom_of(&self, cable: &CableConfig, latency: Duration) -> u64 {
        let round = cable.delay.saturating_mul(2).saturating_add(latency);
        let bits = u128::from(cable.back_bps()).saturating_mul(round.as_nanos());
        let sent = u128::from(self.max_frame_bytes) + u128::from(PFC_FRAME_BYTES);
        // A slower direction to the peer delays the PFC frame for longer.
        let bytes = sent.saturating_mul(u128::from(cable.back_bps()));
        let meanwhile = bytes.div_ceil(u128::from(cable.rate_bps.max(1)));
        let bytes = bits.div_ceil(8_000_000_000).saturating_add(meanwhile);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        bytes.saturating_add(self.max_frame_bytes.saturating_mul(2))
    }

    fn default_xon_gap() -> u64 {
        3 * 1024
    }

    /// A payload of 4096 bytes with the headers of a write and Ethernet framing, rounded up.
    fn default_max_frame() -> u64 {
        4352
    }

    /// The lossless priorities as a bit mask.
    pub(crate) fn mask(&self) -> u8 {
        let priorities = self.priorities.iter();
        priorities.fold(0, |mask, priority| mask | 1 << (priority & 7))
    }
}

/// Trimming (NDP, SIGCOMM 2017): a frame that finds no room loses its payload, and the switch
/// forwards its headers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { queue = \"140kB\", priority = 7 }"
)]
pub struct Trim {
    /// Queue length in bytes beyond which frames are trimmed. Frames are also trimmed if
    /// [`SwitchConfig::alpha`] leaves no room.
    #[serde(rename = "queue", deserialize_with = "crate::units::size")]
    pub queue_bytes: u64,
    /// The priority of trimmed frames, 0 to 7.
    pub priority: u8,
}

/// Which port a frame takes among those on shortest paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(
    tag = "policy",
    rename_all = "lowercase",
    deny_unknown_fields,
    expecting = "a table such as { policy = \"spray\" }"
)]
pub enum Policy {
    /// The port given by a hash of source, destination and UDP source port: a flow stays on its
    /// path (RFC 2992).
    #[default]
    Ecmp,
    /// A random port for each frame (Dixit et al., INFOCOM 2013).
    Spray,
    /// The ports of a set of equal paths in turn, frame by frame.
    #[serde(rename = "round-robin")]
    RoundRobin,
    /// For each frame, the least loaded of `d` randomly drawn ports and `m` remembered ports, which
    /// were the least loaded ones before (DRILL, SIGCOMM 2017).
    Drill {
        /// Ports drawn for a frame.
        d: usize,
        /// Ports remembered for each set of equal paths.
        m: usize,
    },
    /// DRILL as the RDMA trees of ns-3 read it: for each frame, the least loaded of `d` different
    /// drawn ports and the port of the last frame to the same host, which wins a tie.
    #[serde(rename = "drill-ns3")]
    DrillNs3 {
        /// Ports drawn for a frame.
        d: usize,
    },
    /// A random port for each flowlet: a run of frames of a flow without a gap (Vanini et al., NSDI
    /// 2017).
    Flowlet {
        /// The gap that ends a flowlet.
        #[serde(
            deserialize_with = "crate::units::time",
            serialize_with = "crate::units::write_time"
        )]
        gap: Duration,
        /// Entries of the table of flows. Flows that share an entry count as one flow.
        #[serde(default = "Policy::default_flows")]
        flows: usize,
    },
}

impl Policy {
    /// The table size of the paper's hardware.
    fn default_flows() -> usize {
        65_536
    }
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            buffer_bytes: 9 << 20,
            alpha: 1.0,
            latency: Duration::ZERO,
            weights: [0; PRIORITIES],
            ecn: None,
            pfc: None,
            trim: None,
            routing: Policy::Ecmp,
            balancer: None,
        }
    }
}

/// Why a switch configuration is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// A multiple of the free buffer is not a positive number.
    #[error("switch {field} = {value}: a number above 0")]
    Alpha {
        /// The name of the field.
        field: &'static str,
        /// The value given.
        value: f64,
    },
    /// The latency is longer than a day.
    #[error("switch latency = {}: at most a day", .0.as_secs_f64())]
    Latency(Duration),
    /// The largest probability of a mark is not within 0 to 1.
    #[error("switch ecn.pmax = {0}: 0 to 1")]
    MarkProbability(f64),
    /// Marks begin above the length at which they are most likely.
    #[error("switch ecn.kmin = {kmin_bytes}: at most ecn.kmax")]
    MarkThresholds {
        /// The given `kmin_bytes`.
        kmin_bytes: u64,
        /// The given `kmax_bytes`.
        kmax_bytes: u64,
    },
    /// A priority is above 7.
    #[error("switch {field} = {value}: 0 to 7")]
    Priority {
        /// The name of the field.
        field: &'static str,
        /// The value given.
        value: u8,
    },
    /// Flow control has no priority.
    #[error("switch pfc.priorities = []: at least one of 0 to 7, or no pfc")]
    NoPriorities,
    /// The largest frame, for which lossless priorities keep headroom, is above 4 GiB.
    #[error("switch pfc.max_frame = {0}: at most 4 GiB")]
    MaxFrame(u64),
    /// A number of ports that DRILL draws or remembers is out of range.
    #[error("switch {field} = {value}: {least} to 64")]
    Drill {
        /// The name of the field.
        field: &'static str,
        /// The value given.
        value: usize,
        /// The least value that is accepted.
        least: usize,
    },
    /// No load balancer has this name.
    #[error("switch balancer = {name:?}: this program has no load balancer of this name{known}")]
    Balancer {
        /// The name.
        name: String,
        /// The names that there are, with what precedes them.
        known: String,
    },
    /// The size of the table of flowlets is out of range.
    #[error("switch routing.flows = {0}: 1 to 2^24")]
    Flowlets(usize),
    /// The headroom takes the whole buffer.
    #[error(
        "{headroom_bytes} bytes of headroom for all ports leave nothing of a switch buffer of \
         {buffer_bytes} bytes; give it more buffer, or fewer lossless priorities"
    )]
    Headroom {
        /// Headroom of all ports and lossless priorities.
        headroom_bytes: u64,
        /// Buffer of the switch.
        buffer_bytes: u64,
    },
}

impl SwitchConfig {
    /// Finds the load balancer among those of a program. Without this, the switch has `routing` in its place.
    ///
    /// # Errors
    /// [`SwitchError::Balancer`].
    pub fn resolve(&mut self, known: &BTreeMap<String, MakeBalancer>) -> Result<(), SwitchError> {
        let Some(own) = &mut self.balancer else {
            return Ok(());
        };
        if own.resolve(known) {
            return Ok(());
        }
        let names: Vec<_> = known.keys().map(String::as_str).collect();
        let known = match names.is_empty() {
            true => String::new(),
            false => format!("; it has {}", names.join(", ")),
        };
        let name = own.name.clone();
        Err(SwitchError::Balancer { name, known })
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`SwitchError`] names the first field that is out of range, and its value.
    pub fn validate(&self) -> Result<(), SwitchError> {
        check_alpha("alpha", self.alpha)?;
        if self.latency > Duration::from_secs(86_400) {
            return Err(SwitchError::Latency(self.latency));
        }
        if let Some(red) = &self.ecn {
            red.validate()?;
        }
        if let Some(pfc) = &self.pfc {
            pfc.validate()?;
        }
        if let Some(trim) = &self.trim {
            check_priority("trim.priority", trim.priority)?;
        }
        match self.routing {
            Policy::DrillNs3 { d } => check_drill("routing.d", d, 1),
            Policy::Drill { d, m } => {
                check_drill("routing.d", d, 1)?;
                check_drill("routing.m", m, 0)
            }
            Policy::Flowlet { flows, .. } if !(1..=1 << 24).contains(&flows) => {
                Err(SwitchError::Flowlets(flows))
            }
            Policy::Ecmp | Policy::Spray | Policy::RoundRobin | Policy::Flowlet { .. } => Ok(()),
        }
    }
}

impl Red {
    fn validate(&self) -> Result<(), SwitchError> {
        if !(0.0..=1.0).contains(&self.pmax) {
            return Err(SwitchError::MarkProbability(self.pmax));
        }
        let (kmin_bytes, kmax_bytes) = (self.kmin_bytes, self.kmax_bytes);
        if kmin_bytes > kmax_bytes {
            return Err(SwitchError::MarkThresholds {
                kmin_bytes,
                kmax_bytes,
            });
        }
        Ok(())
    }
}

impl Pfc {
    fn validate(&self) -> Result<(), SwitchError> {
        if self.priorities.is_empty() {
            return Err(SwitchError::NoPriorities);
        }
        for &priority in &self.priorities {
            check_priority("pfc.priorities", priority)?;
        }
        if let XoffThreshold::Alpha(alpha) = self.xoff {
            check_alpha("pfc.xoff.alpha", alpha)?;
        }
        if self.max_frame_bytes > 1 << 32 {
            return Err(SwitchError::MaxFrame(self.max_frame_bytes));
        }
        Ok(())
    }
}

fn check_alpha(field: &'static str, value: f64) -> Result<(), SwitchError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(SwitchError::Alpha { field, value })
}

fn check_priority(field: &'static str, value: u8) -> Result<(), SwitchError> {
    if value < 8 {
        return Ok(());
    }
    Err(SwitchError::Priority { field, value })
}

fn check_drill(field: &'static str, value: usize, least: usize) -> Result<(), SwitchError> {
    if (least..=64).contains(&value) {
        return Ok(());
    }
    Err(SwitchError::Drill {
        field,
        value,
        least,
    })
}
