//! Why a transport is invalid.

use farwrite::schemes::registry::ParseSchemeError;

use super::MOST_PATHS;
use super::name::{endpoint_names, names};

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
    /// No controller or repair of the program has this name.
    #[error("protocol = {name:?}: this program has no {what} {part:?}; of its own, it has {known}")]
    Extension {
        /// The name given.
        name: String,
        /// What was looked for.
        what: &'static str,
        /// The part of the name that was looked for.
        part: String,
        /// The names that there are.
        known: String,
    },
    /// The name of an endpoint transport has an unknown scheme or congestion control.
    #[error("protocol = {name:?}: of endpoints, there are {}", endpoint_names())]
    Scheme {
        /// The name given.
        name: String,
    },
    /// The code in the name of an endpoint transport does not exist.
    #[error("protocol = {name:?}: {why}")]
    Code {
        /// The name given.
        name: String,
        /// What is wrong with the code.
        why: ParseSchemeError,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// A setting of a NIC is out of range.
    #[error("{}", with_key(.0))]
    Setting(#[from] farwrite_rc::ConfigError),
    /// A setting of an endpoint is out of range.
    #[error("{0}")]
    Endpoint(String),
    /// A setting of XP is out of range.
    #[error("{0}")]
    Xp(String),
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
    /// A flow starts after another one, and receivers post their buffers before flows start.
    #[error(
        "posted: flow {flow} starts when another one ends, so nobody knows a round trip before when \
         it starts; leave the key out, or take flows that start at a given time"
    )]
    PostedFlow {
        /// Index of the flow.
        flow: usize,
    },
    /// A flow has no end, and the hosts are endpoints or have XP.
    #[error(
        "flow {flow} has no size, so it sends until the run ends; endpoints and xp send whole messages: \
         give it a size, or choose another transport of NICs"
    )]
    EndlessFlow {
        /// Index of the flow.
        flow: usize,
    },
    /// A flow is longer than a message of an endpoint or of XP can be.
    #[error(
        "flow {flow} has {bytes} bytes; a message has at most {most} with this transport and mtu"
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

/// An error of a NIC, with the key of plans in place of the name of its field.
fn with_key(why: &farwrite_rc::ConfigError) -> String {
    const KEYS: [(&str, &str); 3] = [
        ("mtu_bytes", "mtu"),
        ("window_packets", "window"),
        ("ack_every_packets", "ack_every"),
    ];
    KEYS.iter().fold(why.to_string(), |text, (field, key)| {
        text.replacen(field, key, 1)
    })
}
