//! Transports of a run: a protocol for the hosts, and its settings.

use std::num::NonZeroU16;
use std::time::Duration;

use farwrite::{EqdsOptions, QpConfig as SdrConfig, RateControl, SchemeName, SwiftOptions};
use farwrite_net::{Policy, SwitchConfig};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Connection, Nic, PathProfile, Paths, QpConfig, RdmaTransport, Recovery};
use serde::{Deserialize, Serialize};

use crate::Flow;
use crate::ideal::PACKET_HEADERS;
use crate::parameters::{Dcqcn, Eqds, Irn, Swift};
use crate::units::nanoseconds;

/// Bits of the immediate that hold the packet index of an endpoint's message. The paper's split has
/// 18.
pub(crate) const ENDPOINT_OFFSET_BITS: u8 = 21;
/// Largest number of paths of a flow: the number of UDP ports from 49,152 on.
pub const MOST_PATHS: u16 = 16_384;
/// Prefix of the names of endpoint protocols. The name of a scheme follows.
const ENDPOINT: &str = "farwrite-";

/// The protocol of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A NIC model with reliable connections.
    Nic(RdmaTransport),
    /// An endpoint of [`farwrite`], with this scheme for each flow.
    Endpoint(SchemeName, EndpointControl),
}

/// What sets the rate of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointControl {
    /// The adaptive controller, or [`Transport::rate`].
    Default,
    /// DCQCN.
    Dcqcn,
    /// Swift.
    Swift,
    /// EQDS.
    Eqds,
}

impl EndpointControl {
    /// Those with a name, which follows the name of the scheme.
    const NAMED: [(&str, Self); 3] = [
        ("+dcqcn", Self::Dcqcn),
        ("+swift", Self::Swift),
        ("+eqds", Self::Eqds),
    ];

    /// Splits the name of a scheme and what follows it.
    fn split(name: &str) -> (&str, Self) {
        let found = Self::NAMED
            .into_iter()
            .find_map(|(suffix, control)| Some((name.strip_suffix(suffix)?, control)));
        found.unwrap_or((name, Self::Default))
    }
}

/// The transport of a run: a protocol and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The name of an [`RdmaTransport`], or `farwrite-` and the name of a scheme, which `+dcqcn`,
    /// `+swift` or `+eqds` may follow.
    /// Window, acknowledgements, timeout, retries and DCQCN are settings of NICs only.
    pub protocol: String,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096. With endpoints, a multiple of 4
    /// from 64 to 65,468.
    #[serde(default = "Transport::default_mtu")]
    pub mtu: u32,
    /// Largest number of unacknowledged packets; `None`: the value of
    /// [`RdmaTransport::config`].
    pub window: Option<u32>,
    /// Packets from one acknowledgement to the next; `None`: 16 with Go-Back-N, otherwise 1.
    pub ack_every: Option<u32>,
    /// Retransmission timeout; `None`: the value of [`RdmaTransport::config`].
    #[serde(
        default,
        deserialize_with = "crate::units::maybe_time",
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
    /// With DCQCN, whether a packet after a gap counts as a congestion notification; `None`: no.
    pub gap_is_cnp: Option<bool>,
    /// With NICs that repair losses in spite of reordering, number of paths over which a sender sprays
    /// the packets of a flow: 1 to [`MOST_PATHS`]. Each path is a UDP source port. `None`: the value of
    /// [`RdmaTransport::config`], and with EQDS the spraying of the switches.
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

/// Why a transport is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The name is unknown.
    #[error("protocol = {name:?}: choose one of {}", names())]
    Unknown {
        /// The name given.
        name: String,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] farwrite_rc::ConfigError),
    /// A setting of an endpoint is out of range.
    #[error("{0}")]
    Endpoint(String),
    /// The protocol does not have this setting.
    #[error("{key}: {protocol} has no such setting; leave the key out")]
    NoSetting {
        /// The key of the setting.
        key: &'static str,
        /// The protocol.
        protocol: String,
    },
    /// The priority is out of range.
    #[error("priority = {0}: 0 to 7")]
    Priority(u8),
    /// The number of paths is out of range.
    #[error("paths = {0}: 1 to {MOST_PATHS}")]
    Paths(u16),
    /// A flow has another priority than its endpoint, which sends all flows with one priority.
    #[error(
        "flow {flow} has priority {priority}; endpoints send all flows with that of the \
         transport, {of_transport}: set the priority of the transport to {priority}"
    )]
    FlowPriority {
        /// Index of the flow.
        flow: usize,
        /// Priority of the flow.
        priority: u8,
        /// Priority of the transport.
        of_transport: u8,
    },
    /// A flow has no end, and the hosts are endpoints.
    #[error(
        "flow {flow} has no size, so it sends until the run ends; endpoints send whole messages: give \
         it a size, or choose a transport of NICs"
    )]
    EndlessFlow {
        /// Index of the flow.
        flow: usize,
    },
    /// A flow has more packets than a message of an endpoint can have.
    #[error(
        "flow {flow} has {bytes} bytes; a message of an endpoint has at most {most} at this mtu"
    )]
    FlowLength {
        /// Index of the flow.
        flow: usize,
        /// Bytes of the flow.
        bytes: u64,
        /// Largest number of bytes.
        most: u64,
    },
}

/// The names of all transports, separated by commas.
#[must_use]
pub fn names() -> String {
    let nics = RdmaTransport::ALL.map(RdmaTransport::name);
    format!(
        "{}, or {ENDPOINT}SCHEME, such as {ENDPOINT}sr-nack or {ENDPOINT}sr-nack+dcqcn",
        nics.join(", ")
    )
}

/// The names and descriptions of all transports, for people.
#[must_use]
pub fn described() -> String {
    let line = |entry: RdmaTransport| format!("{entry} ({})", entry.about());
    let nics = RdmaTransport::ALL.map(line);
    let endpoints = "endpoints of farwrite with a scheme, such as";
    format!(
        "{}; {endpoints} {ENDPOINT}sr-nack or {ENDPOINT}ec-mds:32,8, and a congestion control in \
         place of their own: {ENDPOINT}sr-nack+dcqcn, {ENDPOINT}sr-nack+swift or {ENDPOINT}sr-nack+eqds",
        nics.join("; ")
    )
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
            deadline: None,
            port: None,
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn validate(&self) -> Result<(), TransportError> {
        if self.priority > 7 {
            return Err(TransportError::Priority(self.priority));
        }
        if let Some(paths) = self.paths.filter(|paths| !(1..=MOST_PATHS).contains(paths)) {
            return Err(TransportError::Paths(paths));
        }
        let protocol = self.protocol()?;
        let mut foreign = self.foreign_settings(protocol).into_iter();
        if let Some((key, _)) = foreign.find(|(_, is_set)| *is_set) {
            let protocol = self.protocol.clone();
            return Err(TransportError::NoSetting { key, protocol });
        }
        let swift = self.swift.and_then(|swift| swift.contradiction());
        let irn = self.irn.and_then(|irn| irn.contradiction(self.timeout));
        if let Some(why) = swift.or(irn) {
            return Err(TransportError::Contradiction(why));
        }
        match protocol {
            Protocol::Nic(nic) => Ok(self.queue_pair(nic, 2, &self.path(0)).validate()?),
            Protocol::Endpoint(scheme, _) => {
                if !scheme.is_exact() && self.deadline.is_none() {
                    let why = format!("{}: needs a deadline, such as \"3ms\"", self.protocol);
                    return Err(TransportError::Endpoint(why));
                }
                let config = SdrConfig {
                    mtu: self.mtu,
                    max_message_bytes: 1,
                    ..SdrConfig::default()
                };
                let checked = config.validate();
                checked.map_err(|why| TransportError::Endpoint(why.to_string()))?;
                Ok(())
            }
        }
    }

    /// The settings that the protocol does not have, and whether each is set.
    fn foreign_settings(&self, protocol: Protocol) -> Vec<(&'static str, bool)> {
        match protocol {
            Protocol::Nic(nic) => [
                ("rate", self.rate.is_some()),
                ("deadline", self.deadline.is_some()),
                ("port", self.port.is_some()),
                ("dcqcn", self.dcqcn.is_some() && !nic.has_dcqcn()),
                ("gap_is_cnp", self.gap_is_cnp.is_some() && !nic.has_dcqcn()),
                ("paths", self.paths.is_some() && !self.bears_reordering(nic)),
                ("swift", self.swift.is_some() && !nic.has_swift()),
                ("irn", self.irn.is_some() && !has_irn(nic)),
                ("eqds", self.eqds.is_some() && nic != RdmaTransport::Eqds),
                (
                    "nak_every",
                    self.nak_every.is_some() && self.recovery(nic) != Recovery::GoBackN,
                ),
            ]
            .to_vec(),
            Protocol::Endpoint(scheme, control) => [
                (
                    "rate",
                    self.rate.is_some() && control != EndpointControl::Default,
                ),
                ("deadline", self.deadline.is_some() && scheme.is_exact()),
                ("window", self.window.is_some()),
                ("ack_every", self.ack_every.is_some()),
                ("timeout", self.timeout.is_some()),
                ("retries", self.retries.is_some()),
                ("nak_every", self.nak_every.is_some()),
                ("gap_is_cnp", self.gap_is_cnp.is_some()),
                ("paths", self.paths.is_some()),
                (
                    "dcqcn",
                    self.dcqcn.is_some() && control != EndpointControl::Dcqcn,
                ),
                (
                    "swift",
                    self.swift.is_some() && control != EndpointControl::Swift,
                ),
                (
                    "eqds",
                    self.eqds.is_some() && control != EndpointControl::Eqds,
                ),
                ("irn", self.irn.is_some()),
            ]
            .to_vec(),
        }
    }

    /// How a NIC repairs losses.
    fn recovery(&self, nic: RdmaTransport) -> Recovery {
        nic.config(2, &self.path(0)).recovery
    }

    /// Whether a gap alone is no loss for a NIC, so that packets of a flow may take several paths.
    fn bears_reordering(&self, nic: RdmaTransport) -> bool {
        matches!(
            self.recovery(nic),
            Recovery::Trimming | Recovery::Rack { .. }
        )
    }

    /// Checks that the transport can carry all flows of a workload. NICs carry any.
    ///
    /// # Errors
    /// [`TransportError`] names the first flow that it cannot carry.
    pub(crate) fn check_flows(&self, flows: &[Flow]) -> Result<(), TransportError> {
        if let Protocol::Nic(_) = self.protocol()? {
            return Ok(());
        }
        let most = u64::from(self.mtu) << ENDPOINT_OFFSET_BITS;
        for (number, flow) in flows.iter().enumerate() {
            if flow.is_endless() {
                return Err(TransportError::EndlessFlow { flow: number });
            }
            if let Some(priority) = flow.priority.filter(|own| *own != self.priority) {
                return Err(TransportError::FlowPriority {
                    flow: number,
                    priority,
                    of_transport: self.priority,
                });
            }
            if flow.bytes > most {
                return Err(TransportError::FlowLength {
                    flow: number,
                    bytes: flow.bytes,
                    most,
                });
            }
        }
        Ok(())
    }

    /// Parses the name of the protocol.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub fn protocol(&self) -> Result<Protocol, TransportError> {
        let unknown = || TransportError::Unknown {
            name: self.protocol.clone(),
        };
        match self.protocol.strip_prefix(ENDPOINT) {
            Some(name) => {
                let (scheme, control) = EndpointControl::split(name);
                let scheme = scheme.parse().map_err(|_| unknown())?;
                Ok(Protocol::Endpoint(scheme, control))
            }
            None => self
                .protocol
                .parse()
                .map(Protocol::Nic)
                .map_err(|_| unknown()),
        }
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

    /// The reason why the protocol does not work as intended with `switch`, and the remedy; `None`
    /// if it does.
    pub(crate) fn lacks(&self, switch: &SwitchConfig) -> Option<&'static str> {
        let has_dcqcn = match self.protocol().ok()? {
            Protocol::Nic(RdmaTransport::Eqds) if switch.trim.is_none() => {
                return Some(
                    "the switches do not trim, so dropped packets wait for timeouts; add trim",
                );
            }
            Protocol::Nic(nic) => nic.has_dcqcn(),
            Protocol::Endpoint(_, control) => control == EndpointControl::Dcqcn,
        };
        let lacks_marks = has_dcqcn && switch.ecn.is_none();
        lacks_marks.then_some("the switches do not mark, so DCQCN never slows a flow; add ecn")
    }

    /// The switches that the protocol needs, for the priorities of its flows. `framing_bytes` is
    /// the field of [`Options`](farwrite_net::Options).
    pub(crate) fn switch(&self, priorities: &[u8], framing_bytes: u32) -> SwitchConfig {
        match self.protocol() {
            Ok(Protocol::Nic(nic)) => {
                let switch = nic.switch(priorities, &self.path(framing_bytes));
                match self.paths {
                    // The source ports of the sender choose the paths, and not the switches.
                    Some(_) => SwitchConfig {
                        routing: Policy::Ecmp,
                        ..switch
                    },
                    None => switch,
                }
            }
            // The marks of DCQCN's paper; endpoints need no PFC.
            Ok(Protocol::Endpoint(_, EndpointControl::Dcqcn)) => {
                RdmaTransport::RoceLossy.switch(priorities, &self.path(framing_bytes))
            }
            // Endpoints have no other requirements on switches.
            Ok(Protocol::Endpoint(..)) | Err(_) => SwitchConfig::default(),
        }
    }

    /// Sets up the NIC of a host that receives flows. `path` has the rate of its cable and the
    /// longest round trip of the flows.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub(crate) fn prepare(&self, nic: &mut Nic, path: &PathProfile) -> Result<(), TransportError> {
        self.nic()?.prepare(nic, path, self.dcqcn(path));
        Ok(())
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
        let protocol = self.nic()?;
        let config = self.queue_pair(protocol, peer_qpn, path);
        let connected = match self.nic_control(protocol, path) {
            Some(control) => nic.connect_under(to, config, control),
            None => nic.connect(to, config),
        };
        Ok(connected?)
    }

    /// The congestion controller of a queue pair of a NIC.
    fn nic_control(
        &self,
        protocol: RdmaTransport,
        path: &PathProfile,
    ) -> Option<Box<dyn farwrite_rate::RateControl + Send>> {
        let base = protocol.swift(path);
        if let (Some(own), Some(base)) = (&self.swift, base) {
            return Some(Box::new(farwrite_rate::Swift::new(own.apply(base))));
        }
        if let (Some(own), RdmaTransport::Eqds) = (&self.eqds, protocol) {
            let options = own.apply(RdmaTransport::first_window(path));
            return Some(Box::new(farwrite_rate::Eqds::new(options)));
        }
        protocol.control(path, self.dcqcn(path))
    }

    fn nic(&self) -> Result<RdmaTransport, TransportError> {
        match self.protocol()? {
            Protocol::Nic(nic) => Ok(nic),
            Protocol::Endpoint(..) => Err(TransportError::Unknown {
                name: self.protocol.clone(),
            }),
        }
    }

    fn queue_pair(&self, protocol: RdmaTransport, peer_qpn: u32, path: &PathProfile) -> QpConfig {
        let base = protocol.config(peer_qpn, path);
        let ack_every = match base.recovery {
            Recovery::GoBackN => ACK_EVERY,
            Recovery::Irn { .. } | Recovery::Trimming | Recovery::Rack { .. } => {
                base.ack_every_packets
            }
        };
        let base = self.irn.map_or(base, |irn| irn.apply(base));
        QpConfig {
            window_packets: self.window.unwrap_or(base.window_packets),
            ack_every_packets: self.ack_every.unwrap_or(ack_every),
            ack_timeout_ns: self.timeout.map_or(base.ack_timeout_ns, nanoseconds),
            retry_limit: self.retries.unwrap_or(RETRIES),
            nak_every_ns: self.nak_every.map(nanoseconds),
            gap_is_cnp: self.gap_is_cnp.unwrap_or(false),
            paths: self.paths.map_or(base.paths, |ports| Paths {
                ports,
                ..base.paths
            }),
            ..base
        }
    }

    /// Retransmission timeout of a NIC in nanoseconds; the maximum value for endpoints, which have
    /// none.
    pub(crate) fn timeout_ns(&self, path: &PathProfile) -> u64 {
        let nic = self.nic();
        nic.map_or(u64::MAX, |nic| self.queue_pair(nic, 2, path).ack_timeout_ns)
    }

    /// The rate control of a path, at an end whose cable has `port_bps` bits per second.
    pub(crate) fn rate_control(
        &self,
        control: EndpointControl,
        path: &PathProfile,
        port_bps: u64,
    ) -> RateControl {
        match (control, self.rate) {
            (EndpointControl::Default, None) => RateControl::default(),
            (EndpointControl::Default, Some(rate_bps)) => RateControl::Fixed { rate_bps },
            (EndpointControl::Dcqcn, _) => RateControl::Dcqcn(self.dcqcn(path)),
            (EndpointControl::Swift, _) => {
                let base = SwiftOptions {
                    base_target_ns: path.rtt_ns.saturating_add(SWIFT_QUEUE_NS),
                    // Receivers hold reports for up to an eighth of a round trip.
                    endpoint_target_ns: path.rtt_ns.saturating_add(SWIFT_ENDPOINT_NS),
                    ..SwiftOptions::new(path.rate_bps, u64::from(self.mtu), 0)
                };
                RateControl::Swift(self.swift.unwrap_or_default().apply(base))
            }
            (EndpointControl::Eqds, _) => {
                let base = EqdsOptions {
                    // Endpoints count IP packets, and a cable whole frames.
                    line_rate_bps: ip_share(port_bps, path),
                    first_window_bytes: path.round_trip_bytes(),
                };
                RateControl::Eqds(self.eqds.unwrap_or_default().apply(base))
            }
        }
    }

    fn dcqcn(&self, path: &PathProfile) -> DcqcnOptions {
        self.dcqcn.unwrap_or_default().options(path.rate_bps)
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_priority() -> u8 {
        3
    }
}

/// Whether a NIC repairs losses as IRN does.
fn has_irn(nic: RdmaTransport) -> bool {
    matches!(nic, RdmaTransport::Irn | RdmaTransport::Srnic)
}

/// Part of a cable's rate that full IP packets take.
fn ip_share(rate_bps: u64, path: &PathProfile) -> u64 {
    let frame_bytes = u128::from(path.frame_bytes());
    let ip_bytes = frame_bytes - u128::from(path.framing_bytes);
    let bps = u128::from(rate_bps) * ip_bytes / frame_bytes;
    u64::try_from(bps).unwrap_or(u64::MAX)
}

/// Swift's target delay beyond the round trip without queues, in nanoseconds: `base_target` of
/// [`SwiftOptions::new`], as with the models of Falcon and UCCL.
const SWIFT_QUEUE_NS: u64 = 20_000;
/// Swift's target for the time in the receiver beyond a round trip, in nanoseconds.
const SWIFT_ENDPOINT_NS: u64 = 100_000;
/// Largest number of consecutive retransmissions of a NIC without progress.
const RETRIES: u8 = 7;
/// Packets from one acknowledgement to the next with Go-Back-N, which does not need more
/// acknowledgements to repair losses.
const ACK_EVERY: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_valid_defaults() {
        for protocol in RdmaTransport::ALL {
            Transport::new(protocol.name()).validate().unwrap();
        }
        for scheme in SchemeName::EXACT {
            Transport::new(&format!("{ENDPOINT}{scheme}"))
                .validate()
                .unwrap();
        }
        for (suffix, control) in EndpointControl::NAMED {
            let transport = Transport::new(&format!("{ENDPOINT}sr-nack{suffix}"));
            transport.validate().unwrap();
            let want = Protocol::Endpoint(SchemeName::SrNack, control);
            assert_eq!(transport.protocol(), Ok(want));
            let plain = transport.switch(&[3], 38);
            let marks = control == EndpointControl::Dcqcn;
            assert_eq!(
                (plain.ecn.is_some(), transport.lacks(&plain)),
                (marks, None)
            );
        }
        for scheme in SchemeName::BOUNDED {
            let mut transport = Transport::new(&format!("{ENDPOINT}{scheme}"));
            let missing = transport.validate().unwrap_err().to_string();
            assert!(missing.contains("needs a deadline"), "{missing}");
            transport.deadline = Some(Duration::from_millis(3));
            transport.validate().unwrap();
        }
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_named() {
        assert!(Transport::new("farwrite-best-effort").validate().is_err());
        let unknown = Transport::new("tcp").validate().unwrap_err().to_string();
        assert_eq!(
            unknown,
            format!("protocol = \"tcp\": choose one of {}", names())
        );
        let wrong = Transport {
            mtu: 1500,
            ..Transport::new("roce")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(wrong.starts_with("mtu_bytes = 1500: "), "{wrong}");
        let wrong = Transport {
            dcqcn: Some(Dcqcn::default()),
            ..Transport::new("eqds")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("dcqcn: eqds has no such setting"),
            "{wrong}"
        );
        let wrong = Transport {
            window: Some(7),
            ..Transport::new("farwrite-ec-mds:32,8")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("window: farwrite-ec-mds:32,8 has no such"),
            "{wrong}"
        );
        let wrong = Transport {
            mtu: 1501,
            ..Transport::new("farwrite-sr-nack")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(wrong.contains("1501"), "{wrong}");
        let wrong = Transport {
            rate: Some(1_000_000),
            ..Transport::new("farwrite-best-effort+sr+swift")
        };
        let wrong = wrong.validate().unwrap_err().to_string();
        assert!(
            wrong.starts_with("rate: farwrite-best-effort+sr+swift has no such"),
            "{wrong}"
        );
        for unknown in [
            "farwrite-",
            "farwrite-tcp",
            "farwrite-ec-mds:0,8",
            "farwrite-+dcqcn",
            "farwrite-sr-nack+tcp",
            "farwrite-sr-nack+dcqcn+swift",
        ] {
            assert!(Transport::new(unknown).validate().is_err(), "{unknown}");
        }
    }
}
