//! Settings of a NetRT box.

use super::format::{BITMAP_BITS, NO_KEY};
use super::rate::RateLimit;
use crate::Secret;
use crate::message::Seal;

/// Lower limit, so that the pool of a short and slow path still has room for some packets.
const MIN_POOL_BYTES: usize = 16 << 10;
/// Lower limit, because queueing delay in the network can be much longer than a short round trip.
const MIN_HOLD_NS: u64 = 1_000_000;

/// Settings. [`Config::new`] derives them from the path. The boxes of a path may have different
/// settings, except for the key and `repeat_dscp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The key that all boxes share. Without a key, anyone who can send packets to a box can forge box
    /// messages. A forged message can delay packets, but cannot change one.
    pub key: Option<Secret>,
    /// Size of the duplicate pool, in bytes of frames.
    pub pool_bytes: usize,
    /// Copies older than this are dropped first, from all flows. Otherwise, a flow that ended after
    /// a request would keep its copies forever, and later flows without requests would have none.
    /// A repair takes a few round trips, so older copies are useless. A path where packets wait long
    /// in queues needs more.
    pub copy_ns: u64,
    /// How fast packets are repeated, and when the sender is paused.
    pub rate: RateLimit,
    /// Highest number of frames that all flows together hold back. Those of one source hold back at most
    /// four fifths of them.
    pub max_held: usize,
    /// Highest number of connections of each half. A connection has one flow for each direction and
    /// PSN space that it uses: at most two in each half. One source (an IPv4 address, or an IPv6 network of
    /// 64 bits) has at most a third of them.
    pub max_connections: usize,
    /// After this time without a packet, a connection may be removed to make room for another one.
    /// After this time without a newer message from the other box, messages with a lower `boot` are
    /// taken too: the clock of that box may have been set back before it restarted.
    pub idle_ns: u64,
    /// Number of packets after the expected one within which missing packets are requested at once:
    /// the bits of a flow's bitmap. The paper has 128. One request covers up to 129 packets, so more
    /// bits take more requests, and the boxes of a path may differ. A path with more packets in
    /// flight needs as many bits as these, and a `pool_bytes` and `max_held` for them.
    pub bitmap_bits: u32,
    /// Delay before a missing packet is requested. On a path that reorders, a missing packet may
    /// only be late. 0 for a path that keeps the order.
    pub request_delay_ns: u64,
    /// Interval between two requests for the same packets. It must be above the round trip between
    /// the boxes. The box waits longer if this is less than twice the time that recent repeats
    /// took, or less than 1 us.
    pub request_ns: u64,
    /// Least interval between two repeats of a packet. A request that arrives within one round trip
    /// of a repeat was sent before the repeat arrived.
    pub guard_ns: u64,
    /// How long a flow may wait without progress. Then its held packets are forwarded with a gap.
    /// This must be far below the NIC's ACK timeout.
    pub hold_ns: u64,
    /// Interval between the marks of a flow that sends. A mark introduces the flow to a destination
    /// box that does not know it.
    pub mark_ns: u64,
    /// Delay of a mark after the last packet of a message, if no packet follows. The mark reveals
    /// the loss of that packet.
    pub tail_ns: u64,
    /// The priority to pause while many packets of a NIC without VLAN tags are repeated; `None` for the
    /// upper three bits of their code point. Packets with tags say their priority themselves.
    pub pause_priority: Option<u8>,
    /// Differentiated services code point of repeated packets, requests, notices and starts. The
    /// network must prioritise it. Hosts must not use it: the box does not protect packets that
    /// arrive with it.
    pub repeat_dscp: u8,
}

impl Config {
    /// Settings for ports of `rate_bps` and an unloaded round trip of `rtt_ns` between the NICs.
    ///
    /// No key; a pool of one bandwidth-delay product, at least 16 KiB, whose copies are old after 20
    /// round trips; the rates of the paper; 2560
    /// held frames; 2048 connections that are idle after 10 s; 128 bits; requests at once and again after a
    /// round trip; 40 round trips of hold, at least 1 ms; a mark every 20 round trips, and one round
    /// trip after the end of a message; pauses by code point; repeats with code point 48 (CS6).
    #[must_use]
    pub fn new(rate_bps: u64, rtt_ns: u64) -> Self {
        let product = u128::from(rate_bps) * u128::from(rtt_ns) / 8_000_000_000;
        let pool_bytes = usize::try_from(product).unwrap_or(usize::MAX);
        Self {
            key: None,
            pool_bytes: pool_bytes.max(MIN_POOL_BYTES),
            copy_ns: rtt_ns.saturating_mul(20),
            rate: RateLimit::new(rate_bps, pool_bytes.max(MIN_POOL_BYTES) as u64),
            max_held: 2560,
            max_connections: 2048,
            bitmap_bits: BITMAP_BITS,
            idle_ns: 10_000_000_000,
            request_delay_ns: 0,
            request_ns: rtt_ns,
            guard_ns: rtt_ns,
            hold_ns: rtt_ns.saturating_mul(40).max(MIN_HOLD_NS),
            mark_ns: rtt_ns.saturating_mul(20),
            tail_ns: rtt_ns,
            pause_priority: None,
            repeat_dscp: 48,
        }
    }

    /// Enlarges the pool for a port where up to `queue_bytes` of packets wait before they leave: it keeps
    /// copies of these, and of the packets of two round trips.
    #[must_use]
    pub fn with_queue(self, queue_bytes: u64) -> Self {
        let queue_bytes = usize::try_from(queue_bytes).unwrap_or(usize::MAX);
        let pool_bytes = self
            .pool_bytes
            .saturating_mul(2)
            .saturating_add(queue_bytes);
        Self { pool_bytes, ..self }
    }

    pub(crate) fn seal(&self) -> Seal {
        Seal::new(self.key.clone().unwrap_or_else(|| NO_KEY.into()))
    }
}
