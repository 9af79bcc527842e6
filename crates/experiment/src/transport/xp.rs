//! XP on a NIC: the settings of queue pairs whose messages end at a deadline.

use std::time::Duration;

use farwrite_rc::{PathProfile, xp};
use serde::{Deserialize, Serialize};

use super::TransportError;

/// The name of the protocol.
pub(super) const XP: &str = "xp";

/// Which flows of XP share a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePairOf {
    /// None: each flow has a queue pair of its own.
    #[default]
    Flow,
    /// Those between two hosts with the same priority, in both directions. Messages leave in the order in which
    /// flows start, and a packet of a later message ends the receive of an earlier one.
    Hosts,
}

/// What completes a flow of XP before its deadline: [`farwrite_rc::xp::CompleteBy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompleteBy {
    /// The last packet of its message.
    #[default]
    LastPacket,
    /// As many bytes as its message has.
    Bytes,
}

/// NICs with queue pairs of XP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XpTransport {
    pub(crate) mtu: u32,
    pub(crate) priority: u8,
    /// Longest duration of a flow.
    pub(crate) deadline: Duration,
    pub(crate) queue_pair: QueuePairOf,
    pub(super) complete_by: CompleteBy,
}

impl XpTransport {
    /// Checks the values.
    pub(super) fn check(&self, path: &PathProfile) -> Result<(), TransportError> {
        let checked = self.queue_pair(2, path).validate();
        checked.map_err(|why| TransportError::Xp(why.to_string().replacen("mtu_bytes", "mtu", 1)))
    }

    /// The settings of a queue pair.
    pub(crate) fn queue_pair(&self, peer_qpn: u32, path: &PathProfile) -> xp::Config {
        xp::Config {
            peer_qpn,
            mtu_bytes: self.mtu,
            line_rate_bps: path.rate_bps,
            // The flows of the workload limit them.
            max_requests: usize::MAX,
            complete_by: match self.complete_by {
                CompleteBy::LastPacket => xp::CompleteBy::LastPacket,
                CompleteBy::Bytes => xp::CompleteBy::Bytes,
            },
        }
    }
}
