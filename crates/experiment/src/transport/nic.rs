//! A transport on a NIC: the settings of queue pairs, and their congestion control.

use std::time::Duration;

use farwrite_rate::{DcqcnOptions, DctcpOptions, HpccOptions, TimelyOptions};
use farwrite_rc::{
    Connection, Nic, PathProfile, Paths, QpConfig, RdmaTransport, Recovery, Unacknowledged,
};

use super::name::{AT, DCTCP, HPCC, TIMELY};
use super::{Retries, TransportError};
use crate::extensions::{MakeControl, MakeRepair, Named};
use crate::parameters::{Dcqcn, Dctcp, Eqds, Hpcc, Irn, Swift, Timely};
use crate::units::nanoseconds;

/// Largest number of consecutive retransmissions of a NIC without progress.
const RETRIES: Retries = Retries::AtMost(7);
/// Packets from one acknowledgement to the next with Go-Back-N, which does not need more
/// acknowledgements to repair losses.
const ACK_EVERY: u32 = 16;

/// NICs with reliable connections. What is `None` has the value of the protocol
/// ([`RdmaTransport::config`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicTransport {
    pub(crate) protocol: RdmaTransport,
    pub(crate) mtu: u32,
    pub(crate) priority: u8,
    pub(super) window: Option<u32>,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: Option<Retries>,
    pub(super) repair: LossRepair,
    pub(super) control: NicControl,
}

/// How a NIC repairs losses, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LossRepair {
    GoBackN {
        ack_every: Option<u32>,
        nak_every: Option<Duration>,
    },
    Irn(Option<Irn>),
    /// By the rules of another crate.
    Own(Named<MakeRepair>),
    /// In spite of reordering, so that packets of a flow may take several paths.
    Reordered {
        paths: Option<u16>,
    },
}

/// What sets the rate of a NIC, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NicControl {
    None,
    Dcqcn {
        parameters: Option<Dcqcn>,
        gap_is_cnp: Option<bool>,
    },
    Swift(Option<Swift>),
    Eqds(Option<Eqds>),
    Dctcp(Dctcp),
    Timely(Timely),
    Hpcc(Hpcc),
    /// A controller of another crate.
    Own(Named<MakeControl>),
}

impl NicTransport {
    /// Sets up the NIC of a host that receives flows. `path` has the rate of its cable and the
    /// longest round trip of the flows.
    pub(crate) fn prepare(&self, nic: &mut Nic, path: &PathProfile) {
        self.protocol.prepare(nic, path, self.dcqcn(path));
    }

    /// Adds one end of a flow to a NIC and returns the number of its queue pair.
    ///
    /// # Errors
    /// [`TransportError`].
    pub(crate) fn connect(
        &self,
        nic: &mut Nic,
        to: Connection,
        peer_qpn: u32,
        path: &PathProfile,
    ) -> Result<u32, TransportError> {
        let config = self.queue_pair(peer_qpn, path);
        let connected = match self.controller(path) {
            Some(control) => nic.connect_under(to, config, control),
            None => nic.connect(to, config),
        };
        let qpn = connected?;
        if let LossRepair::Own(own) = &self.repair {
            let set = nic.set_repair(qpn, (own.make)(path));
            debug_assert!(set.is_ok(), "the queue pair is new");
        }
        Ok(qpn)
    }

    /// The name of the protocol.
    pub(super) fn name(&self) -> String {
        let repair = match &self.repair {
            LossRepair::Own(own) => own.name.clone(),
            _ => self.protocol.to_string(),
        };
        let control = match &self.control {
            NicControl::Own(own) => own.name.as_str(),
            NicControl::Dctcp(_) => DCTCP,
            NicControl::Timely(_) => TIMELY,
            NicControl::Hpcc(_) => HPCC,
            _ => return repair,
        };
        format!("{repair}{AT}{control}")
    }

    /// Whether packets may collect telemetry.
    pub(super) fn may_collect_telemetry(&self) -> bool {
        matches!(self.control, NicControl::Hpcc(_) | NicControl::Own(_))
    }

    /// Whether DCQCN sets the rate.
    pub(super) fn has_dcqcn(&self) -> bool {
        matches!(self.control, NicControl::Dcqcn { .. })
    }

    /// The congestion controller of a queue pair of a NIC.
    fn controller(&self, path: &PathProfile) -> Option<Box<dyn farwrite_rate::RateControl + Send>> {
        match (&self.control, self.protocol.swift(path)) {
            (NicControl::Swift(Some(own)), Some(base)) => {
                Some(Box::new(farwrite_rate::Swift::new(own.apply(base))))
            }
            (NicControl::Own(own), _) => Some((own.make)(path)),
            (NicControl::Dctcp(own), _) => {
                let packet_bytes = path.frame_bytes() - u64::from(path.framing_bytes);
                let base = DctcpOptions::new(path.rate_bps, packet_bytes, path.round_trip_bytes());
                Some(Box::new(farwrite_rate::Dctcp::new(own.apply(base))))
            }
            (NicControl::Timely(own), _) => {
                let base = TimelyOptions::paper(path.rate_bps);
                Some(Box::new(farwrite_rate::Timely::new(own.apply(base))))
            }
            (NicControl::Hpcc(own), _) => {
                let base = HpccOptions::paper(path.rate_bps, path.rtt_ns);
                Some(Box::new(farwrite_rate::Hpcc::new(own.apply(base))))
            }
            (NicControl::Eqds(Some(own)), _) => {
                let options = own.apply(RdmaTransport::first_window(path));
                Some(Box::new(farwrite_rate::Eqds::new(options)))
            }
            _ => self.protocol.control(path, self.dcqcn(path)),
        }
    }

    fn dcqcn(&self, path: &PathProfile) -> DcqcnOptions {
        let own = match &self.control {
            NicControl::Dcqcn { parameters, .. } => parameters.clone(),
            _ => None,
        };
        own.unwrap_or_default().options(path)
    }

    /// How long a queue pair waits for news of its first packet before it repeats it.
    pub(super) fn timeout_ns(&self, path: &PathProfile) -> u64 {
        let LossRepair::Own(own) = &self.repair else {
            return self.queue_pair(2, path).ack_timeout_ns;
        };
        let first = Unacknowledged {
            now_ns: 0,
            oldest: 0,
            sent_end: 1,
        };
        (own.make)(path).timeout_ns(&first)
    }

    pub(super) fn queue_pair(&self, peer_qpn: u32, path: &PathProfile) -> QpConfig {
        let base = self.protocol.config(peer_qpn, path);
        let base = match &self.repair {
            LossRepair::GoBackN {
                ack_every,
                nak_every,
            } => QpConfig {
                ack_every_packets: ack_every.unwrap_or(ACK_EVERY),
                nak_every_ns: nak_every.map(nanoseconds),
                ..base
            },
            LossRepair::Irn(irn) => irn.as_ref().map_or(base, |irn| irn.apply(base)),
            LossRepair::Own(_) => QpConfig {
                recovery: Recovery::Own,
                ..base
            },
            LossRepair::Reordered { paths } => QpConfig {
                paths: paths.map_or(base.paths, |ports| Paths {
                    ports,
                    ..base.paths
                }),
                ..base
            },
        };
        let gap_is_cnp = match &self.control {
            NicControl::Dcqcn { gap_is_cnp, .. } => gap_is_cnp.unwrap_or(false),
            _ => false,
        };
        QpConfig {
            window_packets: self.window.unwrap_or(base.window_packets),
            ack_timeout_ns: self.timeout.map_or(base.ack_timeout_ns, nanoseconds),
            retry_limit: self.retries.unwrap_or(RETRIES).limit(),
            gap_is_cnp,
            ..base
        }
    }

    /// Whether the source ports of the sender choose the paths of packets.
    pub(super) fn chooses_paths(&self) -> bool {
        matches!(self.repair, LossRepair::Reordered { paths: Some(_) })
    }
}

/// How a NIC repairs losses.
pub(super) fn recovery(protocol: RdmaTransport) -> Recovery {
    let any = PathProfile {
        rate_bps: 1,
        rtt_ns: 1,
        mtu_bytes: 4096,
        framing_bytes: 0,
    };
    protocol.config(2, &any).recovery
}
