//! Settings of a LoWAR box.

use super::coding::Shape;
use super::format::NO_KEY;
use crate::KEY_BYTES;
use crate::message::Seal;

/// How r and c are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Always this shape.
    Fixed(Shape),
    /// From what the path loses.
    Adaptive,
}

/// Settings. [`Config::default`] gives those of the paper's prototype. Both boxes of a path can
/// have different ones, except for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The key that both boxes share. Without one, anybody on the path can forge box messages. A
    /// forged message cannot damage data more than a packet that is forged to the NIC.
    pub key: Option<[u8; KEY_BYTES]>,
    /// How the sending half chooses r and c.
    pub coding: Coding,
    /// Bytes of the longest IP datagram that the path between the boxes takes. Longer repair
    /// packets are not sent.
    pub path_mtu_bytes: usize,
    /// Coding units of the sending half, and the same number of the receiving half.
    pub max_units: usize,
    /// Frames that all streams together hold back.
    pub max_held: usize,
    /// Streams of each half. A connection has one for each direction and PSN space that it uses.
    pub max_streams: usize,
    /// After this time without a packet, a stream makes room for another one.
    pub idle_ns: u64,
    /// How long a packet waits for a missing one before it. It has to be far below the NIC's ACK
    /// timeout, and above the time that a block takes. Adaptive blocks take at most half of it.
    pub hold_ns: u64,
    /// How often the sending half asks the other box for a report.
    pub probe_ns: u64,
    /// After a question that is not answered for this time, no repair packets are sent. It has to
    /// be above the round trip plus `probe_ns`.
    pub silence_ns: u64,
    /// When the repair packets of an unfinished block of one-packet messages are sent.
    pub close_ns: u64,
}

impl Config {
    pub(crate) fn seal(&self) -> Seal {
        Seal::new(self.key.unwrap_or(NO_KEY))
    }
}

impl Default for Config {
    /// No key, adaptive coding, path MTU 1500, 1024 units, 2048 held frames, 512 streams that are
    /// idle after 10 s; 4 ms of hold, a question every 10 ms, silence after 1 s, blocks of
    /// one-packet messages close after 1 ms.
    fn default() -> Self {
        Self {
            key: None,
            coding: Coding::Adaptive,
            path_mtu_bytes: 1500,
            max_units: 1024,
            max_held: 2048,
            max_streams: 512,
            idle_ns: 10_000_000_000,
            hold_ns: 4_000_000,
            probe_ns: 10_000_000,
            silence_ns: 1_000_000_000,
            close_ns: 1_000_000,
        }
    }
}
