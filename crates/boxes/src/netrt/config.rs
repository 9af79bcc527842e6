//! Settings of a NetRT box.

use super::format::NO_KEY;
use super::rate::RateLimit;
use crate::KEY_BYTES;
use crate::message::Seal;

/// A pool of a short and slow path has room for some packets too.
const MIN_POOL_BYTES: usize = 16 << 10;
/// Queues inside the network can be much longer than a short round trip.
const MIN_HOLD_NS: u64 = 1_000_000;

/// Settings. [`Config::new`] derives them from the path. Both boxes of a path can have different
/// ones, except for the key and `repeat_dscp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The key that all boxes share. Without one, anybody on the path can forge box messages. A
    /// forged message costs time; it cannot change a packet.
    pub key: Option<[u8; KEY_BYTES]>,
    /// Bytes of frames in the duplicate pool.
    pub pool_bytes: usize,
    /// Copies of this age make room first, whatever flow they are of. Without this, a flow that
    /// has ended after many requests would keep its copies for good.
    pub copy_ns: u64,
    /// How fast packets are repeated, and when the sender is paused.
    pub rate: RateLimit,
    /// Frames that all flows together hold back.
    pub max_held: usize,
    /// Flows of each half. A connection has one for each direction and PSN space that it uses.
    pub max_flows: usize,
    /// After this time without a packet, a flow makes room for another one.
    pub idle_ns: u64,
    /// A missing packet is requested after this time, because it may only be late: others may have
    /// overtaken it. 0 for a path that keeps the order.
    pub request_delay_ns: u64,
    /// The time between two requests for the same packets. It has to be above the round trip
    /// between the boxes. The box waits at least twice as long as recent repeats have taken, and
    /// at least 1 us.
    pub request_ns: u64,
    /// A packet repeated less than this ago is not repeated again. A request that comes within a
    /// round trip between the boxes does not know of the repeat.
    pub guard_ns: u64,
    /// How long a flow may be blocked without progress before its packets go on as they are. Has to
    /// be far below the NIC's ACK timeout.
    pub hold_ns: u64,
    /// How often a flow that sends is marked, for a box that does not know it yet.
    pub mark_ns: u64,
    /// After this time without a packet, a mark follows the last packet of a message, so that its
    /// loss is noticed.
    pub tail_ns: u64,
    /// Differentiated services code point of repeated packets, requests, notices and starts. The
    /// network has to prefer it, and hosts must not use it: packets that come with it are not
    /// protected.
    pub repeat_dscp: u8,
}

impl Config {
    /// For ports of `rate_bps` and a round trip of `rtt_ns` between the NICs, without queues.
    ///
    /// No key; a pool of one bandwidth-delay product, at least 16 KiB; the rates of the paper; 2048
    /// held frames; 512 flows that are idle after 10 s; requests at once and again after a round
    /// trip; 40 round trips of hold, at least 1 ms; a mark every 20 round trips, and one round trip
    /// after the end of a message; code point 48 (CS6).
    #[must_use]
    pub fn new(rate_bps: u64, rtt_ns: u64) -> Self {
        let product = u128::from(rate_bps) * u128::from(rtt_ns) / 8_000_000_000;
        let pool_bytes = usize::try_from(product).unwrap_or(usize::MAX);
        Self {
            key: None,
            pool_bytes: pool_bytes.max(MIN_POOL_BYTES),
            copy_ns: rtt_ns.saturating_mul(1000),
            rate: RateLimit::new(rate_bps, pool_bytes.max(MIN_POOL_BYTES) as u64),
            max_held: 2048,
            max_flows: 512,
            idle_ns: 10_000_000_000,
            request_delay_ns: 0,
            request_ns: rtt_ns,
            guard_ns: rtt_ns,
            hold_ns: rtt_ns.saturating_mul(40).max(MIN_HOLD_NS),
            mark_ns: rtt_ns.saturating_mul(20),
            tail_ns: rtt_ns,
            repeat_dscp: 48,
        }
    }

    pub(crate) fn seal(&self) -> Seal {
        Seal::new(self.key.unwrap_or(NO_KEY))
    }
}
