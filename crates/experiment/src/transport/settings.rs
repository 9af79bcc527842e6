//! Transports as plans write them.

use std::num::NonZeroU16;
use std::time::Duration;

use farwrite::{RateControlName, SchemeName};
use farwrite_rc::{RdmaTransport, Recovery};
use serde::{Deserialize, Serialize};

use super::endpoint::{EndpointControl, EndpointTransport};
use super::name::{ControlName, NicControlName, NicName, Protocol, XpName};
use super::nic::{LossRepair, NicControl, NicTransport};
use super::xp::XpControl;
use super::{CompleteBy, QueuePairOf, Retries, Transport, TransportError, XpTransport};
use crate::Extensions;
use crate::parameters::{Dcqcn, Dctcp, Eqds, Hpcc, Irn, Swift, Timely};

/// A transport as plans write it: a protocol and its settings. [`transport`](Self::transport) checks
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TransportSettings {
    /// The name of an [`RdmaTransport`](farwrite_rc::RdmaTransport), `xp`, `xp@eqds`, or `farwrite-` and the name of
    /// a scheme, which `@known` or `@` and a [`RateControlName`](farwrite::RateControlName) may follow.
    /// Window, acknowledgements, timeout and retries are settings of NICs only.
    pub protocol: String,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096. With endpoints, a multiple of 4
    /// from 64 to 65,468.
    #[serde(default = "TransportSettings::default_mtu")]
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
    pub retries: Option<Retries>,
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
    /// the packets of a flow: 1 to [`MOST_PATHS`](super::MOST_PATHS). Each path is a UDP source port.
    /// `None`: the value of [`RdmaTransport::config`](farwrite_rc::RdmaTransport::config), and with
    /// EQDS the spraying of the switches.
    pub paths: Option<u16>,
    /// Traffic class of flows that name none.
    #[serde(default = "TransportSettings::default_priority")]
    pub priority: u8,
    /// Parameters of DCQCN, if the protocol uses it; `None`: those of the DCQCN paper.
    pub dcqcn: Option<Dcqcn>,
    /// Parameters of Swift, if the protocol uses it.
    pub swift: Option<Swift>,
    /// Parameters of IRN, if the protocol uses it.
    pub irn: Option<Irn>,
    /// Parameters of EQDS, if the protocol uses it.
    pub eqds: Option<Eqds>,
    /// Parameters of DCTCP, with `@dctcp`.
    pub dctcp: Option<Dctcp>,
    /// Parameters of TIMELY, with `@timely`.
    pub timely: Option<Timely>,
    /// Parameters of HPCC, with `@hpcc`.
    pub hpcc: Option<Hpcc>,
    /// With endpoints: fixed rate from one host to another, in bits per second; `None`: the
    /// adaptive controller sets the rate.
    #[serde(default, deserialize_with = "crate::units::maybe_rate")]
    pub rate: Option<u64>,
    /// With endpoints: packets of a chunk, which the receiver reports and the sender repeats as a whole;
    /// `None`: 1.
    pub packets_per_chunk: Option<u32>,
    /// With endpoints: whether the receiver of a flow has posted its buffer a round trip before the
    /// flow starts. Otherwise it posts the buffer at the start, and the clear-to-send delays the
    /// first packet by half a round trip.
    #[serde(default)]
    pub posted: bool,
    /// With endpoints and a best-effort scheme, and with XP: longest duration of a flow. At the
    /// deadline, the flow ends with the bytes that have arrived.
    #[serde(
        default,
        deserialize_with = "crate::units::maybe_wait",
        serialize_with = "crate::units::write_maybe_time"
    )]
    pub deadline: Option<Duration>,
    /// With XP: which flows share a queue pair; `None`: none.
    pub queue_pair: Option<QueuePairOf>,
    /// With XP: what completes a flow before its deadline; `None`: its last packet.
    pub complete_by: Option<CompleteBy>,
    /// With endpoints: their UDP port. LoWAR boxes protect packets to 4791, the port of RoCEv2.
    /// `None`: each host draws a port, so that ECMP spreads the flows of different pairs of hosts.
    #[serde(default, deserialize_with = "crate::units::maybe_port")]
    pub port: Option<NonZeroU16>,
}

impl TransportSettings {
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
            dctcp: None,
            timely: None,
            hpcc: None,
            rate: None,
            packets_per_chunk: None,
            posted: false,
            deadline: None,
            queue_pair: None,
            complete_by: None,
            port: None,
        }
    }

    /// The transport with these settings.
    ///
    /// # Errors
    /// [`TransportError`]: a value is out of range, or the protocol does not have a setting.
    pub fn transport(&self) -> Result<Transport, TransportError> {
        self.transport_with(&Extensions::new())
    }

    /// The same, with the controllers and repairs of a program.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn transport_with(&self, extensions: &Extensions) -> Result<Transport, TransportError> {
        let protocol = Protocol::parse(&self.protocol, extensions)?;
        self.check(&protocol)?;
        let transport = match protocol {
            Protocol::Nic(nic) => Transport::Nic(self.nic(nic)),
            Protocol::Xp(name) => Transport::Xp(self.xp(name)?),
            Protocol::Endpoint(scheme, control) => {
                Transport::Endpoint(self.endpoint(scheme, control))
            }
        };
        transport.check()?;
        Ok(transport)
    }

    fn nic(&self, name: NicName) -> NicTransport {
        let protocol = name.model;
        let repair = match super::nic::recovery(protocol) {
            Recovery::GoBackN => LossRepair::GoBackN {
                ack_every: self.ack_every,
                nak_every: self.nak_every,
            },
            Recovery::Irn { .. } | Recovery::Own => LossRepair::Irn(self.irn.clone()),
            Recovery::Trimming | Recovery::Rack { .. } => {
                LossRepair::Reordered { paths: self.paths }
            }
        };
        let control = match protocol {
            RdmaTransport::Roce
            | RdmaTransport::RoceLossy
            | RdmaTransport::Irn
            | RdmaTransport::Srnic => NicControl::Dcqcn {
                parameters: self.dcqcn.clone(),
                gap_is_cnp: self.gap_is_cnp,
            },
            RdmaTransport::RoceNocc => NicControl::None,
            RdmaTransport::Eqds => NicControl::Eqds(self.eqds.clone()),
            RdmaTransport::Falcon | RdmaTransport::Uccl => NicControl::Swift(self.swift.clone()),
        };
        let repair = name.repair.map_or(repair, LossRepair::Own);
        let control = match name.control {
            None => control,
            Some(NicControlName::Dctcp) => {
                NicControl::Dctcp(self.dctcp.clone().unwrap_or_default())
            }
            Some(NicControlName::Timely) => {
                NicControl::Timely(self.timely.clone().unwrap_or_default())
            }
            Some(NicControlName::Hpcc) => NicControl::Hpcc(self.hpcc.clone().unwrap_or_default()),
            Some(NicControlName::Own(own)) => NicControl::Own(own),
        };
        NicTransport {
            protocol,
            mtu: self.mtu,
            priority: self.priority,
            window: self.window,
            timeout: self.timeout,
            retries: self.retries,
            repair,
            control,
        }
    }

    fn xp(&self, name: XpName) -> Result<XpTransport, TransportError> {
        let missing = || TransportError::Xp("xp: needs a deadline, such as \"3ms\"".to_owned());
        Ok(XpTransport {
            mtu: self.mtu,
            priority: self.priority,
            deadline: self.deadline.ok_or_else(missing)?,
            queue_pair: self.queue_pair.unwrap_or_default(),
            complete_by: self.complete_by.unwrap_or_default(),
            control: match name {
                XpName::Dcqcn => XpControl::Dcqcn,
                XpName::Eqds => XpControl::Eqds(self.eqds.clone()),
            },
        })
    }

    fn endpoint(&self, scheme: SchemeName, control: ControlName) -> EndpointTransport {
        let control = match (control, self.rate) {
            (ControlName::Known, _) => EndpointControl::Known,
            (ControlName::Of(RateControlName::Adaptive), None) => EndpointControl::Adaptive,
            (ControlName::Of(RateControlName::Adaptive), Some(bps)) => EndpointControl::Rate(bps),
            (ControlName::Of(RateControlName::Fixed), _) => EndpointControl::PathRate,
            (ControlName::Of(RateControlName::Dcqcn), _) => {
                EndpointControl::Dcqcn(self.dcqcn.clone())
            }
            (ControlName::Of(RateControlName::Swift), _) => {
                EndpointControl::Swift(self.swift.clone())
            }
            (ControlName::Of(RateControlName::Eqds), _) => EndpointControl::Eqds(self.eqds.clone()),
        };
        EndpointTransport {
            scheme,
            control,
            mtu: self.mtu,
            packets_per_chunk: self.packets_per_chunk.unwrap_or(1),
            priority: self.priority,
            posted: self.posted,
            deadline: self.deadline,
            port: self.port,
        }
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_priority() -> u8 {
        3
    }
}

impl From<&Transport> for TransportSettings {
    fn from(transport: &Transport) -> Self {
        let mut settings = Self {
            mtu: transport.mtu(),
            priority: transport.priority(),
            ..Self::new(&transport.protocol())
        };
        match transport {
            Transport::Nic(nic) => {
                settings.window = nic.window;
                settings.timeout = nic.timeout;
                settings.retries = nic.retries;
                match &nic.repair {
                    LossRepair::GoBackN {
                        ack_every,
                        nak_every,
                    } => {
                        settings.ack_every = *ack_every;
                        settings.nak_every = *nak_every;
                    }
                    LossRepair::Irn(irn) => settings.irn.clone_from(irn),
                    LossRepair::Own(_) => {}
                    LossRepair::Reordered { paths } => settings.paths = *paths,
                }
                match &nic.control {
                    NicControl::None | NicControl::Own(_) => {}
                    NicControl::Dcqcn {
                        parameters,
                        gap_is_cnp,
                    } => {
                        settings.dcqcn.clone_from(parameters);
                        settings.gap_is_cnp = *gap_is_cnp;
                    }
                    NicControl::Swift(swift) => settings.swift.clone_from(swift),
                    NicControl::Eqds(eqds) => settings.eqds.clone_from(eqds),
                    NicControl::Dctcp(dctcp) => settings.dctcp = Some(dctcp.clone()),
                    NicControl::Timely(timely) => settings.timely = Some(timely.clone()),
                    NicControl::Hpcc(hpcc) => settings.hpcc = Some(hpcc.clone()),
                }
            }
            Transport::Xp(xp) => {
                settings.deadline = Some(xp.deadline);
                settings.queue_pair = Some(xp.queue_pair);
                settings.complete_by = Some(xp.complete_by);
                if let XpControl::Eqds(eqds) = &xp.control {
                    settings.eqds.clone_from(eqds);
                }
            }
            Transport::Endpoint(endpoint) => {
                let chunk = endpoint.packets_per_chunk;
                settings.packets_per_chunk = (chunk != 1).then_some(chunk);
                settings.posted = endpoint.posted;
                settings.deadline = endpoint.deadline;
                settings.port = endpoint.port;
                match &endpoint.control {
                    EndpointControl::Adaptive
                    | EndpointControl::Known
                    | EndpointControl::PathRate => {}
                    EndpointControl::Rate(bps) => settings.rate = Some(*bps),
                    EndpointControl::Dcqcn(dcqcn) => settings.dcqcn.clone_from(dcqcn),
                    EndpointControl::Swift(swift) => settings.swift.clone_from(swift),
                    EndpointControl::Eqds(eqds) => settings.eqds.clone_from(eqds),
                }
            }
        }
        settings
    }
}
