//! What the hosts of a run do: a protocol and its settings.

use std::time::Duration;

use farwrite::{QpConfig as SdrConfig, SchemeName};
use farwrite_net::SwitchConfig;
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Connection, Nic, Path, QpConfig, Recovery};
use serde::Deserialize;

use crate::Flow;
use crate::units::nanoseconds;

/// The parameters of DCQCN, and how often a NIC sends congestion notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dcqcn {
    /// [`DcqcnOptions::paper`].
    Paper,
    /// [`DcqcnOptions::ns3`].
    Ns3,
}

/// Bits of the immediate that number the packets of an endpoint's message. The paper's split has 18.
pub(crate) const ENDPOINT_OFFSET_BITS: u8 = 21;
/// What protocols of endpoints begin with; the name of a scheme follows.
const ENDPOINT: &str = "farwrite-";

/// What runs at the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A NIC model with reliable connections.
    Nic(farwrite_rc::Transport),
    /// An endpoint as it ships, with a scheme for each flow.
    Endpoint(SchemeName),
}

/// The transport of a run: a protocol and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The name of a [`farwrite_rc::Transport`], or `farwrite-` and the name of a scheme. The window,
    /// acknowledgements, the timeout, retries and DCQCN are settings of NICs.
    pub protocol: String,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096; with endpoints a multiple of 4
    /// from 64 to 65,468.
    #[serde(default = "Transport::default_mtu")]
    pub mtu: u32,
    /// Packets that may be unacknowledged; `None`: as [`farwrite_rc::Transport::config`].
    pub window: Option<u32>,
    /// Packets from one acknowledgement to the next; `None`: 16 with Go-Back-N, else 1.
    pub ack_every: Option<u32>,
    /// How long to wait for progress; `None`: as [`farwrite_rc::Transport::config`].
    #[serde(default, deserialize_with = "crate::units::maybe_time")]
    pub timeout: Option<Duration>,
    /// How often in a row to try again without progress; `None`: 7 times.
    pub retries: Option<u8>,
    /// The traffic class of flows that name none.
    #[serde(default = "Transport::default_priority")]
    pub priority: u8,
    /// Parameters of DCQCN, if the protocol has it; `None`: those of its paper.
    pub dcqcn: Option<Dcqcn>,
    /// With endpoints, bits a second that each sends to another; `None`: the adaptive controller
    /// decides.
    #[serde(default, deserialize_with = "crate::units::maybe_rate")]
    pub rate: Option<u64>,
}

/// Why a transport is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The name is unknown.
    #[error("protocol = {name:?}: choose one of {}", names())]
    Unknown {
        /// What came.
        name: String,
    },
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] farwrite_rc::ConfigError),
    /// A setting of an endpoint is out of range.
    #[error("{0}")]
    Endpoint(String),
    /// A setting that the protocol does not have.
    #[error("{key}: {protocol} has no such setting; leave the key out")]
    NoSetting {
        /// Which.
        key: &'static str,
        /// The protocol.
        protocol: String,
    },
    /// The priority is out of range.
    #[error("priority = {0}: 0 to 7")]
    Priority(u8),
    /// A flow has a priority that its endpoint cannot give it.
    #[error(
        "flow {flow} has priority {priority}; endpoints send all flows with that of the \
         transport, {of_transport}: set the priority of the transport to {priority}"
    )]
    FlowPriority {
        /// Which flow, from 0.
        flow: usize,
        /// Its priority.
        priority: u8,
        /// That of the transport.
        of_transport: u8,
    },
    /// A flow has more packets than a message of an endpoint can have.
    #[error(
        "flow {flow} has {bytes} bytes; a message of an endpoint has at most {most} at this mtu"
    )]
    FlowLength {
        /// Which flow, from 0.
        flow: usize,
        /// Its bytes.
        bytes: u64,
        /// The most bytes.
        most: u64,
    },
}

/// The names of all transports, with commas between them.
#[must_use]
pub fn names() -> String {
    let nics = farwrite_rc::Transport::ALL.map(farwrite_rc::Transport::name);
    format!(
        "{}, or {ENDPOINT}SCHEME, such as {ENDPOINT}sr-nack",
        nics.join(", ")
    )
}

/// The names of all transports, each with what it is, for people.
#[must_use]
pub fn described() -> String {
    let line = |entry: farwrite_rc::Transport| format!("{entry} ({})", entry.about());
    let nics = farwrite_rc::Transport::ALL.map(line);
    let endpoints = "endpoints of farwrite with a scheme, such as";
    format!(
        "{}; {endpoints} {ENDPOINT}sr-nack or {ENDPOINT}ec-mds:32,8",
        nics.join("; ")
    )
}

impl Transport {
    /// A protocol with default settings: MTU 4096, 7 retries, priority 3. Window, acknowledgements
    /// and timeout are those of the protocol.
    #[must_use]
    pub fn new(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            mtu: Self::default_mtu(),
            window: None,
            ack_every: None,
            timeout: None,
            retries: None,
            priority: Self::default_priority(),
            dcqcn: None,
            rate: None,
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
        let protocol = self.protocol()?;
        let foreign = match protocol {
            Protocol::Nic(nic) => [
                ("rate", self.rate.is_some()),
                ("dcqcn", self.dcqcn.is_some() && !nic.has_dcqcn()),
            ]
            .to_vec(),
            Protocol::Endpoint(_) => [
                ("window", self.window.is_some()),
                ("ack_every", self.ack_every.is_some()),
                ("timeout", self.timeout.is_some()),
                ("retries", self.retries.is_some()),
                ("dcqcn", self.dcqcn.is_some()),
            ]
            .to_vec(),
        };
        if let Some((key, _)) = foreign.into_iter().find(|(_, is_set)| *is_set) {
            let protocol = self.protocol.clone();
            return Err(TransportError::NoSetting { key, protocol });
        }
        match protocol {
            Protocol::Nic(nic) => Ok(self.queue_pair(nic, 2, &self.path(0)).validate()?),
            Protocol::Endpoint(_) => {
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

    /// The protocol by its name.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub fn protocol(&self) -> Result<Protocol, TransportError> {
        let unknown = || TransportError::Unknown {
            name: self.protocol.clone(),
        };
        match self.protocol.strip_prefix(ENDPOINT) {
            // A flow is over when all of it has arrived.
            Some(scheme) => SchemeName::parse_exact(scheme)
                .map(Protocol::Endpoint)
                .map_err(|_| unknown()),
            None => self
                .protocol
                .parse()
                .map(Protocol::Nic)
                .map_err(|_| unknown()),
        }
    }

    /// Any path, to ask for what does not depend on it.
    fn path(&self, framing_bytes: u32) -> Path {
        Path {
            rate_bps: 1,
            rtt_ns: 1,
            mtu_bytes: self.mtu,
            framing_bytes,
        }
    }

    /// What of `switch` keeps the protocol from working as meant, and what to do.
    pub(crate) fn lacks(&self, switch: &SwitchConfig) -> Option<&'static str> {
        let Ok(Protocol::Nic(nic)) = self.protocol() else {
            return None;
        };
        match nic {
            farwrite_rc::Transport::Eqds if switch.trim.is_none() => {
                Some("the switches do not trim, so dropped packets wait for timeouts; add trim")
            }
            _ if nic.has_dcqcn() && switch.ecn.is_none() => {
                Some("the switches do not mark, so DCQCN never slows a flow; add ecn")
            }
            _ => None,
        }
    }

    /// Switches as the protocol wants them, for the priorities of its flows. `framing_bytes` is
    /// that of [`Options`](farwrite_net::Options).
    pub(crate) fn switch(&self, priorities: &[u8], framing_bytes: u32) -> SwitchConfig {
        match self.protocol() {
            Ok(Protocol::Nic(nic)) => nic.switch(priorities, &self.path(framing_bytes)),
            // Endpoints ask nothing of switches.
            Ok(Protocol::Endpoint(_)) | Err(_) => SwitchConfig::default(),
        }
    }

    /// Sets up the NIC of a host that receives flows. `path` has the rate of its cable and the
    /// longest round trip of the flows.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub(crate) fn prepare(&self, nic: &mut Nic, path: &Path) -> Result<(), TransportError> {
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
        path: &Path,
    ) -> Result<u32, TransportError> {
        let protocol = self.nic()?;
        let config = self.queue_pair(protocol, peer_qpn, path);
        let connected = match protocol.control(path, self.dcqcn(path)) {
            Some(control) => nic.connect_under(to, config, control),
            None => nic.connect(to, config),
        };
        Ok(connected?)
    }

    fn nic(&self) -> Result<farwrite_rc::Transport, TransportError> {
        match self.protocol()? {
            Protocol::Nic(nic) => Ok(nic),
            Protocol::Endpoint(_) => Err(TransportError::Unknown {
                name: self.protocol.clone(),
            }),
        }
    }

    fn queue_pair(&self, protocol: farwrite_rc::Transport, peer_qpn: u32, path: &Path) -> QpConfig {
        let base = protocol.config(peer_qpn, path);
        let ack_every = match base.recovery {
            Recovery::GoBackN => ACK_EVERY,
            Recovery::Irn { .. } | Recovery::Trimming => base.ack_every_packets,
        };
        QpConfig {
            window_packets: self.window.unwrap_or(base.window_packets),
            ack_every_packets: self.ack_every.unwrap_or(ack_every),
            ack_timeout_ns: self.timeout.map_or(base.ack_timeout_ns, nanoseconds),
            retry_limit: self.retries.unwrap_or(RETRIES),
            ..base
        }
    }

    fn dcqcn(&self, path: &Path) -> DcqcnOptions {
        match self.dcqcn {
            None | Some(Dcqcn::Paper) => DcqcnOptions::paper(path.rate_bps),
            Some(Dcqcn::Ns3) => DcqcnOptions::ns3(path.rate_bps),
        }
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_priority() -> u8 {
        3
    }
}

/// How often in a row a NIC tries again without progress.
const RETRIES: u8 = 7;
/// Packets from one acknowledgement to the next with Go-Back-N, which needs none to repair losses.
const ACK_EVERY: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_valid_defaults() {
        for protocol in farwrite_rc::Transport::ALL {
            Transport::new(protocol.name()).validate().unwrap();
        }
        for scheme in SchemeName::EXACT {
            Transport::new(&format!("{ENDPOINT}{scheme}"))
                .validate()
                .unwrap();
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
            dcqcn: Some(Dcqcn::Ns3),
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
        for unknown in ["farwrite-", "farwrite-tcp", "farwrite-ec-mds:0,8"] {
            assert!(Transport::new(unknown).validate().is_err(), "{unknown}");
        }
    }
}
