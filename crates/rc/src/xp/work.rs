//! Work requests, completions and errors.

use farwrite_net::Payload;
use farwrite_rate::EqdsOptions;

use crate::Remote;

/// Settings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of the peer's queue pair (24 bits).
    pub peer_qpn: u32,
    /// Bytes of payload in each packet of a message except the last: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u32,
    /// The rate with which DCQCN starts, in bits per second: that of the port, at least 1.
    pub line_rate_bps: u64,
    /// Largest number of posted sends together with completions that were not polled, and the same for receives;
    /// at least 1.
    pub max_requests: usize,
    /// What completes a receive.
    pub complete_by: CompleteBy,
    /// Credit of EQDS in place of DCQCN; `None`: DCQCN. Both ends have the same first window, and the NIC of the
    /// receiver a pull pacer ([`Nic::set_pull_pacer`](crate::Nic::set_pull_pacer)).
    pub credit: Option<EqdsOptions>,
}

/// What completes a receive whose deadline has not come, and whose peer has not begun a later message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompleteBy {
    /// The last packet of its message (section 3.1.2). Earlier packets may be missing.
    #[default]
    LastPacket,
    /// As many placed bytes as its message has (section 3.1). A packet that arrives twice counts twice.
    Bytes,
}

/// Why a [`Config`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The MTU is not one of the five of IBTA.
    #[error("mtu_bytes = {0}: choose 256, 512, 1024, 2048 or 4096")]
    Mtu(u32),
    /// The number of the peer's queue pair has more than 24 bits.
    #[error("peer_qpn = {0}: at most 16777215 (24 bits)")]
    Peer(u32),
    /// A number is 0.
    #[error("{field} = 0: at least 1")]
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// All numbers of queue pairs of the NIC are in use.
    #[error("queue pairs = {0}: at most 16777214")]
    QueuePairs(usize),
}

impl Config {
    /// Checks the values.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(256..=4096).contains(&self.mtu_bytes) || !self.mtu_bytes.is_power_of_two() {
            return Err(ConfigError::Mtu(self.mtu_bytes));
        }
        if self.peer_qpn >= 1 << 24 {
            return Err(ConfigError::Peer(self.peer_qpn));
        }
        let zero = |field| Err(ConfigError::Zero { field });
        match (self.line_rate_bps, self.max_requests) {
            (0, _) => zero("line_rate_bps"),
            (_, 0) => zero("max_requests"),
            _ => Ok(()),
        }
    }
}

/// A message to the peer's memory. It takes the peer's next receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The number of the request in its completion.
    pub id: u64,
    /// The message, at most 2^31 bytes (IBTA 9.7).
    pub data: Payload,
    /// Where it goes.
    pub to: Remote,
    /// The immediate value.
    pub imm: u32,
    /// After this time, in nanoseconds, no packet of the message leaves; `None` for never.
    pub deadline_ns: Option<u64>,
}

/// A receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The number of the request in its completion.
    pub id: u64,
    /// When the receive ends at the latest, in nanoseconds; `None` for never.
    pub deadline_ns: Option<u64>,
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last packet of the message arrived. Earlier ones may be missing.
    Last {
        /// The immediate value.
        imm: u32,
    },
    /// As many bytes as the message has were placed.
    Bytes {
        /// The immediate value; `None` if the last packet is missing because another one arrived twice.
        imm: Option<u32>,
    },
    /// Its deadline came.
    TimedOut,
    /// A packet of a later message arrived.
    Preempted,
}

/// The outcome of a request. Sends complete in the order of posting, and so do receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A send ended.
    Sent {
        /// The id of the request.
        id: u64,
        /// Bytes that have left. They are fewer than those of the message if the deadline came.
        bytes: u32,
    },
    /// A receive ended.
    Received {
        /// The id of the request.
        id: u64,
        /// Bytes that were placed. A packet that arrived twice counts twice.
        bytes: u32,
        /// Why it ended.
        end: End,
    },
}

/// Why a request cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// There is no such queue pair of XP.
    #[error("queue pair {0} of XP does not exist")]
    NoQueuePair(u32),
    /// Too many requests are open.
    #[error("{0} requests are open, which is max_requests; poll completions first, or raise it")]
    Full(usize),
    /// The message is too long.
    #[error("a message of {0} bytes is too long; at most 2147483648 are possible")]
    TooLong(u32),
    /// A switch has cut off the payload.
    #[error("{0} bytes of payload were cut off, so nothing can be sent")]
    Trimmed(u32),
}
