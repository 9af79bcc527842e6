//! The transports, in one table.

use std::time::Duration;

use farwrite_rc::QpConfig;
use serde::Deserialize;

use crate::units::nanoseconds;

/// A transport by name.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The name in plans and on command lines.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether it wants a network that does not drop: without switch settings, switches pause its
    /// priority by PFC.
    pub lossless: bool,
    /// Completes the settings of a queue pair.
    queue_pair: fn(&Transport, QpConfig) -> QpConfig,
}

/// All transports.
pub const PROTOCOLS: &[Protocol] = &[Protocol {
    name: "roce",
    about: "RoCEv2: Go-Back-N, no congestion control, made for PFC",
    lossless: true,
    queue_pair: |_, common| common,
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
    /// Packets that may be unacknowledged.
    #[serde(default = "Transport::default_window")]
    pub window: u32,
    /// Packets from one acknowledgement to the next.
    #[serde(default = "Transport::default_ack_every")]
    pub ack_every: u32,
    /// How long to wait for progress.
    #[serde(
        default = "Transport::default_timeout",
        deserialize_with = "crate::units::time"
    )]
    pub timeout: Duration,
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

impl Transport {
    /// A protocol with default settings: MTU 4096, a window of 16,384 packets, an acknowledgement
    /// every 16, a timeout of 4 ms, 7 retries, priority 3.
    #[must_use]
    pub fn new(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            mtu: Self::default_mtu(),
            window: Self::default_window(),
            ack_every: Self::default_ack_every(),
            timeout: Self::default_timeout(),
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
        Ok(self.queue_pair(2)?.validate()?)
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
    ///
    /// # Errors
    /// [`TransportError::Unknown`].
    pub fn queue_pair(&self, peer_qpn: u32) -> Result<QpConfig, TransportError> {
        let common = QpConfig {
            mtu_bytes: self.mtu,
            window_packets: self.window,
            ack_every_packets: self.ack_every,
            ack_timeout_ns: nanoseconds(self.timeout),
            retry_limit: self.retries,
            ..QpConfig::new(peer_qpn)
        };
        Ok((self.entry()?.queue_pair)(self, common))
    }

    fn default_mtu() -> u32 {
        4096
    }

    fn default_window() -> u32 {
        1 << 14
    }

    fn default_ack_every() -> u32 {
        16
    }

    fn default_timeout() -> Duration {
        Duration::from_millis(4)
    }

    fn default_retries() -> u8 {
        7
    }

    fn default_priority() -> u8 {
        3
    }
}

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
