//! The transports, in one table.

use std::time::Duration;

use farwrite_net::{Pfc, SwitchConfig};
use farwrite_rc::{ConfigError, Connection, MAX_PACKETS, Nic, QpConfig};
use serde::Deserialize;

use crate::units::nanoseconds;

/// A transport by name.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The name in plans and on command lines.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Switches as it wants them, for the priorities of its flows.
    pub(crate) switch: fn(&[u8]) -> SwitchConfig,
    /// Adds a queue pair to a NIC.
    pub(crate) connect: fn(&mut Nic, Connection, QpConfig, &Path) -> Result<u32, ConfigError>,
}

/// The empty path of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Bits a second of its slowest cable.
    pub(crate) rate_bps: u64,
    /// Time of a full packet and its acknowledgement.
    pub(crate) rtt_ns: u64,
}

/// All transports.
pub const PROTOCOLS: &[Protocol] = &[Protocol {
    name: "roce",
    about: "RoCEv2: Go-Back-N, no congestion control, made for PFC",
    switch: |priorities| SwitchConfig {
        pfc: Some(Pfc::new(priorities)),
        ..SwitchConfig::default()
    },
    connect: |nic, to, config, _| nic.connect(to, config),
}];

/// The transport of a run: a protocol and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The name of the protocol, of [`PROTOCOLS`].
    pub protocol: String,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096.
    #[serde(default = "Transport::default_mtu")]
    pub mtu: u32,
    /// Packets that may be unacknowledged; `None`: 16,384, and more where two round trips of the
    /// path take more.
    pub window: Option<u32>,
    /// Packets from one acknowledgement to the next.
    #[serde(default = "Transport::default_ack_every")]
    pub ack_every: u32,
    /// How long to wait for progress; `None`: 4 ms, and four round trips where these are longer.
    #[serde(default, deserialize_with = "crate::units::maybe_time")]
    pub timeout: Option<Duration>,
    /// How often in a row to try again without progress.
    #[serde(default = "Transport::default_retries")]
    pub retries: u8,
    /// The traffic class of flows that name none.
    #[serde(default = "Transport::default_priority")]
    pub priority: u8,
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
    /// The priority is out of range.
    #[error("priority = {0}: 0 to 7")]
    Priority(u8),
}

/// The names of all transports, with commas between them.
#[must_use]
pub fn names() -> String {
    let names: Vec<_> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
    names.join(", ")
}

/// The names of all transports, each with what it is, for people.
#[must_use]
pub fn described() -> String {
    let lines = PROTOCOLS
        .iter()
        .map(|entry| format!("{} ({})", entry.name, entry.about));
    lines.collect::<Vec<_>>().join("; ")
}

impl Transport {
    /// A protocol with default settings: MTU 4096, a window of 16,384 packets, an acknowledgement
    /// every 16, a timeout of 4 ms, 7 retries, priority 3. Window and timeout grow with the path.
    #[must_use]
    pub fn new(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            mtu: Self::default_mtu(),
            window: None,
            ack_every: Self::default_ack_every(),
            timeout: None,
            retries: Self::default_retries(),
            priority: Self::default_priority(),
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
        self.entry()?;
        let path = Path {
            rate_bps: 1,
            rtt_ns: 1,
        };
        Ok(self.queue_pair(2, &path).validate()?)
    }

    /// Its entry in the table.
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub fn entry(&self) -> Result<&'static Protocol, TransportError> {
        let found = PROTOCOLS.iter().find(|entry| entry.name == self.protocol);
        found.ok_or_else(|| TransportError::Unknown {
            name: self.protocol.clone(),
        })
    }

    /// The settings of one end of a flow.
    pub(crate) fn queue_pair(&self, peer_qpn: u32, path: &Path) -> QpConfig {
        let patience_ns = path.rtt_ns.saturating_mul(4).max(DEFAULT_TIMEOUT_NS);
        QpConfig {
            mtu_bytes: self.mtu,
            window_packets: self.window.unwrap_or_else(|| path.window_packets(self.mtu)),
            ack_every_packets: self.ack_every,
            ack_timeout_ns: self.timeout.map_or(patience_ns, nanoseconds),
            retry_limit: self.retries,
            ..QpConfig::new(peer_qpn)
        }
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_ack_every() -> u32 {
        16
    }

    fn default_retries() -> u8 {
        7
    }

    fn default_priority() -> u8 {
        3
    }
}

impl Path {
    /// The default window.
    fn window_packets(self, mtu: u32) -> u32 {
        let bits = u128::from(self.rate_bps) * u128::from(self.rtt_ns) * 2;
        let packets = bits / 8_000_000_000 / u128::from(mtu.max(1));
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        packets.clamp(DEFAULT_WINDOW, MAX_PACKETS)
    }
}

const DEFAULT_WINDOW: u32 = 1 << 14;
const DEFAULT_TIMEOUT_NS: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_valid_defaults() {
        for protocol in PROTOCOLS {
            Transport::new(protocol.name).validate().unwrap();
        }
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_named() {
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
    }
}
