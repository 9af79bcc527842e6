//! XP on a NIC: the settings of queue pairs whose messages end at a deadline.

use std::time::Duration;

use farwrite_rc::{PathProfile, xp};

use super::TransportError;

/// The name of the protocol.
pub(super) const XP: &str = "xp";

/// NICs with queue pairs of XP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XpTransport {
    pub(crate) mtu: u32,
    pub(crate) priority: u8,
    /// Longest duration of a flow.
    pub(crate) deadline: Duration,
}

impl XpTransport {
    /// Checks the values.
    pub(super) fn check(&self, path: &PathProfile) -> Result<(), TransportError> {
        let checked = self.queue_pair(2, path).validate();
        checked.map_err(|why| TransportError::Xp(why.to_string().replacen("mtu_bytes", "mtu", 1)))
    }

    /// The settings of a queue pair for one message.
    pub(crate) fn queue_pair(&self, peer_qpn: u32, path: &PathProfile) -> xp::Config {
        xp::Config {
            peer_qpn,
            mtu_bytes: self.mtu,
            line_rate_bps: path.rate_bps,
            max_requests: 2,
            complete_by: xp::CompleteBy::LastPacket,
        }
    }
}
