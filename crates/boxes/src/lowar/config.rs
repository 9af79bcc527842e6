//! Settings of a LoWAR box.

use core::str::FromStr;

use super::coding::{BlockShape, ShapeError};
use super::format::NO_KEY;
use crate::Secret;
use crate::message::Seal;

/// How the box chooses r and c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// A constant shape.
    Fixed(BlockShape),
    /// The shape follows the measured loss of the path.
    Adaptive,
}

/// A text that is not a [`Coding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodingError {
    /// The text is neither two numbers nor `adaptive`.
    #[error("write it like 32,1, or adaptive")]
    Form,
    /// The numbers are not a valid shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl FromStr for Coding {
    type Err = CodingError;

    /// Reads `R,C`, such as `32,1`, or `adaptive`.
    fn from_str(text: &str) -> Result<Self, CodingError> {
        if text == "adaptive" {
            return Ok(Self::Adaptive);
        }
        let (r, c) = text.split_once(',').ok_or(CodingError::Form)?;
        let packets = r.parse().map_err(|_| CodingError::Form)?;
        let units = c.parse().map_err(|_| CodingError::Form)?;
        Ok(Self::Fixed(BlockShape::new(packets, units)?))
    }
}

/// Settings. [`Config::default`] returns those of the paper's prototype, with the adaptive coding, which
/// the paper leaves open. The two boxes of a path may have different settings, except for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The key that both boxes share. Without a key, anyone who can send packets to a box can forge box
    /// messages. A forged message can do no more damage than a packet forged for the NIC.
    pub key: Option<Secret>,
    /// How the sending half chooses r and c.
    pub coding: Coding,
    /// Length of the longest IP datagram that the path between the boxes carries. Packets whose repair
    /// packets would be longer pass unprotected.
    pub path_mtu_bytes: usize,
    /// Number of coding units of the sending half. The receiving half has the same number. One source
    /// uses at most four fifths of them.
    pub max_units: usize,
    /// Highest number of frames that all streams together hold back. Those of one source hold back at most
    /// four fifths of them.
    pub max_held: usize,
    /// Highest number of connections of each half. A connection has one stream for each direction
    /// and PSN space that it uses: at most two in each half. One source (an IPv4 address, or an IPv6 network
    /// of 64 bits) has at most a third of them.
    pub max_connections: usize,
    /// After this time without a packet, a connection may be removed to make room for another one.
    /// After this time without a newer message from the other box, messages with a lower `boot` are
    /// taken too: the clock of that box may have been set back before it restarted.
    pub idle_ns: u64,
    /// How long a packet waits for a missing earlier packet. This must be far below the NIC's ACK
    /// timeout. The sending half closes a block after three quarters of this time, full or not.
    pub hold_ns: u64,
    /// Whether the box relies on another box at the other end of the path. Then it sends repair packets from
    /// the first packet of a stream on, until no question was answered for `silence_ns`. Otherwise, it sends
    /// them after the other box has answered about the stream.
    pub peer_known: bool,
    /// The interval at which the sending half asks the other box for a report.
    pub probe_ns: u64,
    /// When a question stays unanswered for this time, the box stops sending repair packets. This
    /// must be above the round trip plus `probe_ns`.
    pub silence_ns: u64,
    /// Age at which an unfinished block of one-packet messages closes and its repair packets are
    /// sent.
    pub close_ns: u64,
}

impl Config {
    pub(crate) fn seal(&self) -> Seal {
        Seal::new(self.key.clone().unwrap_or_else(|| NO_KEY.into()))
    }
}

impl Default for Config {
    /// No key, adaptive coding, path MTU 1500, 1280 units, 2560 held frames, 2048 connections that
    /// are idle after 10 s; 4 ms of hold, no known peer, a question every 10 ms, silence after 1 s, blocks
    /// of one-packet messages close after 1 ms.
    fn default() -> Self {
        Self {
            key: None,
            coding: Coding::Adaptive,
            path_mtu_bytes: 1500,
            max_units: 1280,
            max_held: 2560,
            max_connections: 2048,
            idle_ns: 10_000_000_000,
            hold_ns: 4_000_000,
            peer_known: false,
            probe_ns: 10_000_000,
            silence_ns: 1_000_000_000,
            close_ns: 1_000_000,
        }
    }
}
