//! What a transport needs of the switches.

use farwrite_net::{MarkAt, Policy, Red, SwitchConfig};
use farwrite_rc::RdmaTransport;

use super::Transport;
use super::nic::NicControl;

/// Marks for DCTCP: each packet that finds more than 30 kB for each 10 Gbit/s of its port in the queue (scripts of HPCC,
/// SIGCOMM 2019).
const DCTCP_MARKS: Red = Red {
    kmin_bytes: 30_000,
    kmax_bytes: 30_000,
    pmax: 1.0,
    at: MarkAt::Arrival,
    rate_bps: Some(10_000_000_000),
};

impl Transport {
    /// The switches that the protocol needs, for the priorities of its flows. `framing_bytes` is
    /// the field of [`Options`](farwrite_net::Options).
    pub(crate) fn switch(&self, priorities: &[u8], framing_bytes: u32) -> SwitchConfig {
        match self {
            Self::Nic(nic) => {
                let switch = nic.protocol.switch(priorities, &self.path(framing_bytes));
                let switch = SwitchConfig {
                    ecn: match nic.control {
                        NicControl::Dctcp(_) => Some(DCTCP_MARKS),
                        NicControl::Timely(_) | NicControl::Hpcc(_) => None,
                        _ => switch.ecn,
                    },
                    ..switch
                };
                if nic.chooses_paths() {
                    return SwitchConfig {
                        routing: Policy::Ecmp,
                        ..switch
                    };
                }
                switch
            }
            // The marks of DCQCN's paper; endpoints need no PFC.
            Self::Endpoint(endpoint) if endpoint.has_dcqcn() => {
                RdmaTransport::RoceLossy.switch(priorities, &self.path(framing_bytes))
            }
            Self::Xp(xp) => xp.like().switch(priorities, &self.path(framing_bytes)),
            // Endpoints have no other requirements on switches.
            Self::Endpoint(_) => SwitchConfig::default(),
        }
    }

    /// Whether the switches pause the priority of the transport instead of dropping its packets.
    fn is_lossless(&self, switch: &SwitchConfig) -> bool {
        let pfc = switch.pfc.as_ref();
        pfc.is_some_and(|pfc| pfc.priorities.contains(&self.priority()))
    }

    /// Whether the rate of flows depends on telemetry of the switches.
    pub(crate) fn needs_telemetry(&self) -> bool {
        matches!(self, Self::Nic(nic) if matches!(nic.control, NicControl::Hpcc(_)))
    }

    /// The reason why the protocol does not work as intended with `switch`, and the remedy; `None`
    /// if it does.
    pub(crate) fn lacks(&self, switch: &SwitchConfig) -> Option<&'static str> {
        let nic = match self {
            Self::Nic(nic) => Some(nic.protocol),
            Self::Endpoint(_) | Self::Xp(_) => None,
        };
        if let Self::Nic(nic) = self
            && matches!(nic.control, NicControl::Dctcp(_))
            && switch.ecn.is_none()
        {
            return Some("the switches do not mark, so DCTCP never slows a flow; add ecn");
        }
        if let Self::Xp(xp) = self
            && !xp.has_dcqcn()
            && switch.trim.is_none()
        {
            return Some(
                "the switches do not trim, so a flow whose first packets are dropped waits for its \
                 deadline; add trim",
            );
        }
        let has_dcqcn = match nic {
            Some(RdmaTransport::Eqds) if switch.trim.is_none() => {
                return Some(
                    "the switches do not trim, so dropped packets wait for timeouts; add trim",
                );
            }
            Some(RdmaTransport::Roce) if !self.is_lossless(switch) => {
                return Some(
                    "the switches do not pause the priority of the transport, so they drop packets \
                     of RoCE; add pfc for this priority, or choose roce-lossy",
                );
            }
            _ => match self {
                Self::Nic(nic) => nic.has_dcqcn(),
                Self::Endpoint(endpoint) => endpoint.has_dcqcn(),
                Self::Xp(xp) => xp.has_dcqcn(),
            },
        };
        let lacks_marks = has_dcqcn && switch.ecn.is_none();
        lacks_marks.then_some("the switches do not mark, so DCQCN never slows a flow; add ecn")
    }
}
