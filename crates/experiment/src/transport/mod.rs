//! Transports of a run: a protocol for the hosts, and its settings.

mod check;
mod endpoint;
mod error;
mod nic;
mod protocol;
mod switches;

use std::num::NonZeroU16;
use std::time::Duration;

use farwrite_rate::DcqcnOptions;
use farwrite_rc::PathProfile;
use serde::{Deserialize, Serialize};

use crate::ideal::PACKET_HEADERS;
use crate::parameters::{Dcqcn, Eqds, Irn, Swift};
pub use error::TransportError;
pub use protocol::{EndpointControl, Protocol, described, names};

/// Bits of the immediate that hold the packet index of an endpoint's message. The paper's split has
/// 18.
pub(crate) const ENDPOINT_OFFSET_BITS: u8 = 21;
/// Largest number of paths of a flow: the number of UDP ports from 49,152 on.
pub const MOST_PATHS: u16 = 16_384;

/// The transport of a run: a protocol and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The name of an [`RdmaTransport`](farwrite_rc::RdmaTransport), or `farwrite-` and the name of
    /// a scheme, which `+known`, `+fixed`, `+dcqcn`, `+swift` or `+eqds` may follow.
    /// Window, acknowledgements, timeout, retries and DCQCN are settings of NICs only.
    pub protocol: String,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096. With endpoints, a multiple of 4
    /// from 64 to 65,468.
    #[serde(default = "Transport::default_mtu")]
    pub mtu: u32,
    /// Largest number of unacknowledged packets; `None`: the value of
    /// [`RdmaTransport::config`](farwrite_rc::RdmaTransport::config).
    pub window: Option<u32>,
    /// Packets from one acknowledgement to the next; `None`: 16 with Go-Back-N, otherwise 1.
    pub ack_every: Option<u32>,
    /// Retransmission timeout; `None`: the value of
    /// [`RdmaTransport::config`](farwrite_rc::RdmaTransport::config).
    #[serde(
        default,
        deserialize_with = "crate::units::maybe_wait",
        serialize_with = "crate::units::write_maybe_time"
    )]
    pub timeout: Option<Duration>,
    /// Largest number of consecutive retransmissions without progress; `None`: 7.
    pub retries: Option<u8>,
    /// With Go-Back-N, how often a receiver repeats the NAK of a gap while packets after it arrive; a
    /// time of 0: for each packet. `None`: one NAK for a gap.
    #[serde(
        default,
        deserialize_with = "crate::units::maybe_time",
        serialize_with = "crate::units::write_maybe_time"
    )]
    pub nak_every: Option<Duration>,
    /// With DCQCN, whether a packet after a gap counts as a congestion notification if and only if it
    /// is answered with a NAK; `None`: no, its mark decides.
    pub gap_is_cnp: Option<bool>,
    /// With NICs that repair losses in spite of reordering, number of paths over which a sender sprays
    /// the packets of a flow: 1 to [`MOST_PATHS`]. Each path is a UDP source port. `None`: the value of
    /// [`RdmaTransport::config`](farwrite_rc::RdmaTransport::config), and with EQDS the spraying of
    /// the switches.
    pub paths: Option<u16>,
    /// Traffic class of flows that name none.
    #[serde(default = "Transport::default_priority")]
    pub priority: u8,
    /// Parameters of DCQCN, if the protocol uses it; `None`: those of the DCQCN paper.
    #[serde(default, deserialize_with = "Dcqcn::read")]
    pub dcqcn: Option<Dcqcn>,
    /// Parameters of Swift, if the protocol uses it.
    pub swift: Option<Swift>,
    /// Parameters of IRN, if the protocol uses it.
    pub irn: Option<Irn>,
    /// Parameters of EQDS, if the protocol uses it.
    pub eqds: Option<Eqds>,
    /// With endpoints: fixed rate from one host to another, in bits per second; `None`: the
    /// adaptive controller sets the rate.
    #[serde(default, deserialize_with = "crate::units::maybe_rate")]
    pub rate: Option<u64>,
    /// With endpoints: whether the receiver of a flow has posted its buffer a round trip before the
    /// flow starts. Otherwise it posts the buffer at the start, and the clear-to-send delays the
    /// first packet by half a round trip.
    #[serde(default)]
    pub posted: bool,
    /// With endpoints and a best-effort scheme: longest duration of a flow. At the deadline, the
    /// flow ends with the bytes that have arrived.
    #[serde(
        default,
        deserialize_with = "crate::units::maybe_wait",
        serialize_with = "crate::units::write_maybe_time"
    )]
    pub deadline: Option<Duration>,
    /// With endpoints: their UDP port. LoWAR boxes protect packets to 4791, the port of RoCEv2.
    /// `None`: each host draws a port, so that ECMP spreads the flows of different pairs of hosts.
    #[serde(default, deserialize_with = "crate::units::maybe_port")]
    pub port: Option<NonZeroU16>,
}

impl Transport {
    /// A protocol with default settings: MTU 4096, 7 retries, priority 3. Window, acknowledgements
    /// and timeout have the defaults of the protocol.
    #[must_use]
    pub fn new(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            mtu: Self::default_mtu(),
            window: None,
            ack_every: None,
            timeout: None,
            retries: None,
            nak_every: None,
            gap_is_cnp: None,
            paths: None,
            priority: Self::default_priority(),
            dcqcn: None,
            swift: None,
            irn: None,
            eqds: None,
            rate: None,
            posted: false,
            deadline: None,
            port: None,
        }
    }

    /// Parses the name of the protocol.
    ///
    /// # Errors
    /// [`TransportError::Unknown`], [`TransportError::Scheme`] or [`TransportError::Code`].
    pub fn protocol(&self) -> Result<Protocol, TransportError> {
        Protocol::parse(&self.protocol)
    }

    /// A path with arbitrary values, for settings that do not depend on the path.
    fn path(&self, framing_bytes: u32) -> PathProfile {
        PathProfile {
            rate_bps: 1,
            rtt_ns: 1,
            mtu_bytes: self.mtu,
            framing_bytes,
        }
    }

    /// Bytes of a frame with one MTU of payload and no extended header, on a cable.
    pub(crate) fn frame_bytes(&self, framing_bytes: u32) -> u64 {
        u64::from(self.mtu) + PACKET_HEADERS + u64::from(framing_bytes)
    }

    fn dcqcn(&self, path: &PathProfile) -> DcqcnOptions {
        self.dcqcn
            .clone()
            .unwrap_or_default()
            .options(path.rate_bps)
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_priority() -> u8 {
        3
    }
}
