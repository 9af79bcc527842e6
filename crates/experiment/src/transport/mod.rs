//! Transports of a run: a protocol for the hosts, and its settings.

mod check;
mod endpoint;
mod error;
mod name;
mod nic;
mod retries;
mod settings;
mod switches;
mod xp;

use farwrite::RateControl;
use farwrite_net::Telemetry;
use farwrite_rc::PathProfile;
use serde::{Serialize, Serializer};

use crate::ideal::PACKET_HEADERS;
pub(crate) use endpoint::EndpointTransport;
pub use error::TransportError;
pub use name::{described, names, renamed};
pub(crate) use nic::NicTransport;
pub use retries::Retries;
pub use settings::TransportSettings;
pub(crate) use xp::XpTransport;
pub use xp::{CompleteBy, QueuePairOf};

/// Bits of the immediate that hold the packet index of an endpoint's message. The paper's split has
/// 18.
pub(crate) const ENDPOINT_OFFSET_BITS: u8 = 21;
/// Largest number of paths of a flow: the number of UDP ports from 49,152 on.
pub const MOST_PATHS: u16 = 16_384;

/// The transport of a run. It is made from [`TransportSettings`], and has only the settings of its
/// protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// NICs with reliable connections.
    #[non_exhaustive]
    Nic(NicTransport),
    /// Endpoints of [`farwrite`].
    #[non_exhaustive]
    Endpoint(EndpointTransport),
    /// NICs with XP, whose messages end at a deadline.
    #[non_exhaustive]
    Xp(XpTransport),
}

impl Transport {
    /// A protocol with default settings: MTU 4096, 7 retries, priority 3. Window, acknowledgements
    /// and timeout have the defaults of the protocol.
    ///
    /// # Errors
    /// [`TransportError`], as [`TransportSettings::transport`].
    pub fn new(protocol: &str) -> Result<Self, TransportError> {
        TransportSettings::new(protocol).transport()
    }

    /// The name of the protocol.
    #[must_use]
    pub fn protocol(&self) -> String {
        match self {
            Self::Nic(nic) => nic.name(),
            Self::Endpoint(endpoint) => endpoint.protocol(),
            Self::Xp(xp) => xp.name().to_owned(),
        }
    }

    /// Bytes of payload in a packet.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        match self {
            Self::Nic(nic) => nic.mtu,
            Self::Endpoint(endpoint) => endpoint.mtu,
            Self::Xp(xp) => xp.mtu,
        }
    }

    /// Traffic class of flows that name none.
    #[must_use]
    pub fn priority(&self) -> u8 {
        match self {
            Self::Nic(nic) => nic.priority,
            Self::Endpoint(endpoint) => endpoint.priority,
            Self::Xp(xp) => xp.priority,
        }
    }

    /// Largest number of packets in flight, if it is set.
    pub(crate) fn window(&self) -> Option<u32> {
        match self {
            Self::Nic(nic) => nic.window,
            Self::Endpoint(_) | Self::Xp(_) => None,
        }
    }

    /// What an endpoint does at the start of a flow that `farwrite plan` does not count; `None` for
    /// NICs, and for endpoints that start as the planner assumes.
    #[must_use]
    pub fn start_costs(&self) -> Option<String> {
        match self {
            Self::Nic(_) | Self::Xp(_) => None,
            Self::Endpoint(endpoint) => endpoint.start_costs(),
        }
    }

    /// What sets the rate of an endpoint on a path, at an end whose cable has `port_bps` bits per second; `None` for
    /// NICs and XP.
    #[must_use]
    pub fn rate_control(&self, path: &PathProfile, port_bps: u64) -> Option<RateControl> {
        match self {
            Self::Nic(_) | Self::Xp(_) => None,
            Self::Endpoint(endpoint) => Some(endpoint.rate_control(path, port_bps)),
        }
    }

    /// The first retransmission timeout of a NIC in nanoseconds; the maximum value for endpoints and XP, which have
    /// none.
    pub(crate) fn timeout_ns(&self, path: &PathProfile) -> u64 {
        match self {
            Self::Nic(nic) => nic.timeout_ns(path),
            Self::Endpoint(_) | Self::Xp(_) => u64::MAX,
        }
    }

    /// Whether a NIC retransmits without a limit.
    pub(crate) fn never_gives_up(&self) -> bool {
        match self {
            Self::Nic(nic) => nic.queue_pair(2, &self.path(0)).retry_limit.is_none(),
            Self::Endpoint(_) | Self::Xp(_) => false,
        }
    }

    /// Whether a timeout of a NIC retransmits one packet of a lost tail (`irn`, without `ns3_timeout`).
    #[must_use]
    pub fn repairs_tails_slowly(&self) -> bool {
        let Self::Nic(nic) = self else {
            return false;
        };
        let recovery = nic.queue_pair(2, &self.path(0)).recovery;
        matches!(
            recovery,
            farwrite_rc::Recovery::Irn {
                goes_back: false,
                ..
            }
        )
    }

    /// Bytes of memory in which a packet collects telemetry; 0 if no controller reads it.
    pub(crate) fn telemetry_bytes(&self) -> u64 {
        match self {
            Self::Nic(nic) if nic.may_collect_telemetry() => size_of::<Telemetry>() as u64,
            Self::Nic(_) | Self::Endpoint(_) | Self::Xp(_) => 0,
        }
    }

    /// A path with arbitrary values, for settings that do not depend on the path.
    fn path(&self, framing_bytes: u32) -> PathProfile {
        PathProfile {
            rate_bps: 1,
            rtt_ns: 1,
            mtu_bytes: self.mtu(),
            framing_bytes,
        }
    }

    /// Bytes of a frame with one MTU of payload and no extended header, on a cable.
    pub(crate) fn frame_bytes(&self, framing_bytes: u32) -> u64 {
        u64::from(self.mtu()) + PACKET_HEADERS + u64::from(framing_bytes)
    }
}

impl Serialize for Transport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        TransportSettings::from(self).serialize(to)
    }
}
