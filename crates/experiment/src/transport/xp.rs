//! XP on a NIC: the settings of queue pairs whose messages end at a deadline.

use std::time::Duration;

use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Nic, PathProfile, RdmaTransport, xp};
use serde::{Deserialize, Serialize};

use super::TransportError;
use crate::parameters::Eqds;

/// The names of the protocol, with DCQCN and with credit of EQDS.
pub(super) const XP: &str = "xp";
pub(super) const XP_EQDS: &str = "xp@eqds";

/// Each packet has a RETH, which a [`PathProfile`] does not count.
const RETH_BYTES: u32 = 16;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpTransport {
    pub(crate) mtu: u32,
    pub(crate) priority: u8,
    /// Longest duration of a flow.
    pub(crate) deadline: Duration,
    pub(crate) queue_pair: QueuePairOf,
    pub(super) complete_by: CompleteBy,
    pub(super) control: XpControl,
}

/// What limits a sender of XP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum XpControl {
    Dcqcn,
    /// Credit of EQDS, with these parameters or those of the path.
    Eqds(Option<Eqds>),
}

impl XpTransport {
    /// The name of the protocol.
    pub(super) fn name(&self) -> &'static str {
        match self.control {
            XpControl::Dcqcn => XP,
            XpControl::Eqds(_) => XP_EQDS,
        }
    }

    /// Whether DCQCN sets the rate.
    pub(super) fn has_dcqcn(&self) -> bool {
        self.control == XpControl::Dcqcn
    }

    /// The protocol whose switches, and whose shared parts of NICs, it needs.
    pub(super) fn like(&self) -> RdmaTransport {
        match self.control {
            XpControl::Dcqcn => RdmaTransport::RoceLossy,
            XpControl::Eqds(_) => RdmaTransport::Eqds,
        }
    }

    /// Sets up the NIC of a host that receives flows. `path` has the rate of its cable and the longest round trip of
    /// the flows.
    pub(crate) fn prepare(&self, nic: &mut Nic, path: &PathProfile) {
        let dcqcn = DcqcnOptions::paper(path.rate_bps);
        let path = PathProfile {
            framing_bytes: path.framing_bytes + RETH_BYTES,
            ..*path
        };
        self.like().prepare(nic, &path, dcqcn);
    }

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
            credit: match &self.control {
                XpControl::Dcqcn => None,
                XpControl::Eqds(own) => {
                    let base = RdmaTransport::first_window(path);
                    Some(own.as_ref().map_or(base, |own| own.apply(base)))
                }
            },
        }
    }
}
