//! The interface of all controllers.

/// The limits that a controller sets.
///
/// A sender may send a packet while the bytes in flight are below `window_bytes` and a
/// [`TokenBucket`](crate::TokenBucket) at `pace_bps` has a positive allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bits a second on the wire, headers included; never 0.
    pub pace_bps: u64,
    /// Most bytes in flight, headers included; never 0.
    pub window_bytes: u64,
}

/// One packet or one batch that has just left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When it left, in nanoseconds of the sender's clock.
    pub now_ns: u64,
    /// Bytes on the wire, headers included.
    pub bytes: u64,
    /// Bytes in flight including this packet: all bytes sent after the newest reported packet, and
    /// after the latest [`RateControl::on_timeout`] that was due.
    pub in_flight_bytes: u64,
    /// Whether the sender had no more data to send, although pace and window allowed more.
    pub app_limited: bool,
}

/// The newest data packet that the receiver has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Bytes sent on the path up to and including this packet: the sum of [`Sent::bytes`].
    pub sent_bytes: u64,
    /// When it left, in nanoseconds of the sender's clock. `None` if the sender cannot know which
    /// of several copies arrived: such a packet gives no round-trip sample.
    pub departed_ns: Option<u64>,
    /// How long the receiver had held it when it sent the report, in nanoseconds.
    pub hold_ns: u64,
}

/// A report of the receiver about the path. Counts are sums since the path was opened, so the loss
/// of a report only delays the information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// When the report arrived, in nanoseconds of the sender's clock.
    pub now_ns: u64,
    /// The newest data packet seen; `None` before the first one.
    pub newest: Option<Newest>,
    /// Bytes received, headers included as in [`Sent::bytes`].
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets among them that carried a congestion mark (ECN CE, RFC 3168).
    pub marked_packets: u64,
    /// Packets that a full queue dropped, as far as the receiver knows: at its socket or NIC, or
    /// trimmed by a switch.
    pub dropped_packets: u64,
    /// Rate at which the receiver recently processed data, in bits a second; 0 if it does not know.
    pub drain_bps: u64,
}

/// What a controller reads beside the packets sent, reports, notifications and losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Nothing.
    #[default]
    Reports,
    /// Each acknowledgement ([`RateControl::on_acknowledged`]), with the round trip and the mark of a packet.
    Packets,
    /// The same, with what the switches on the path wrote into the packet ([`Acknowledged::hops`]).
    Telemetry,
}

/// An acknowledgement of packets that were not known to have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged<'a> {
    /// When it arrived, in nanoseconds of the sender's clock.
    pub now_ns: u64,
    /// Bytes sent on the path up to and including the newest of its packets, as in [`Newest`].
    pub sent_bytes: u64,
    /// Bytes that it acknowledges, headers included.
    pub bytes: u64,
    /// Time from the departure of the newest of its packets, in nanoseconds. `None` if that packet was sent more than
    /// once.
    pub rtt_ns: Option<u64>,
    /// Whether the receiver got a mark (ECN CE, RFC 3168) on one of its packets.
    pub marked: bool,
    /// The ports of switches that the newest of its packets left by, in the order of its path. Empty without
    /// [`Detail::Telemetry`].
    pub hops: &'a [Hop],
}

/// What a port of a switch writes into a packet that leaves by it: in-band telemetry (INT) as in HPCC (SIGCOMM 2019).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// The port, by a number of its own in the network.
    pub port: u32,
    /// When the packet left, in nanoseconds of the network's clock.
    pub at_ns: u64,
    /// Bytes in the queues of the port, without this packet.
    pub queued_bytes: u64,
    /// Bytes that the port has sent before this packet.
    pub sent_bytes: u64,
    /// Rate of the port in bits a second.
    pub rate_bps: u64,
}

/// Estimates of a path before the first packet: from the user's description, or measured by an
/// earlier transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Bits a second on the wire.
    pub rate_bps: u64,
    /// Round-trip time without queues, in nanoseconds.
    pub rtt_ns: u64,
}

/// Decides how fast to send on a path.
///
/// The caller passes all events on the path as they happen. Times come from one monotonic clock; a
/// time that runs backward counts as the latest time. After each call, [`limits`](Self::limits) may
/// have changed.
///
/// A controller that the receiver drives (credits, congestion notification packets) has a second
/// half at the receiver: [`ReceiverControl`](crate::ReceiverControl). Its messages arrive here
/// through [`on_notification`](Self::on_notification) and [`on_grant`](Self::on_grant). The other
/// controllers ignore them.
pub trait RateControl {
    /// Records that bytes were sent.
    fn on_sent(&mut self, sent: &Sent);

    /// Processes a report. A report that a newer one has overtaken has no effect.
    fn on_feedback(&mut self, feedback: &Feedback);

    /// What the controller reads beside reports. The answer stays the same. NICs of `farwrite-rc` provide all of it,
    /// endpoints only reports.
    fn detail(&self) -> Detail {
        Detail::Reports
    }

    /// Processes an acknowledgement, just before the report about it. It is called with [`Detail::Packets`] and
    /// [`Detail::Telemetry`] only; each packet then asks for an acknowledgement.
    fn on_acknowledged(&mut self, _acknowledged: &Acknowledged<'_>) {}

    /// Processes the timeout, when [`next_timeout`](Self::next_timeout) has passed. Earlier calls
    /// have no effect. Returns whether no report came in time: then no packet counts as in flight any more.
    fn on_timeout(&mut self, now_ns: u64) -> bool;

    /// When to call [`on_timeout`](Self::on_timeout), in nanoseconds; `None`: never.
    fn next_timeout(&self) -> Option<u64>;

    /// The current limits.
    fn limits(&self) -> Limits;

    /// Processes a congestion notification packet: the receiver got a packet with a mark.
    fn on_notification(&mut self, _now_ns: u64) {}

    /// Processes a grant: the number of bytes that the receiver has granted since the path was
    /// opened. A number below the latest one has no effect, so a lost or late grant only delays the
    /// credit.
    fn on_grant(&mut self, _now_ns: u64, _granted_bytes: u64) {}

    /// Records that the sender repeats packets.
    fn on_loss(&mut self, _now_ns: u64, _loss: Loss) {}

    /// Changes the maximum rate in bits a second, above 0, while the path is in use. Controllers
    /// whose rates are those of a port ignore it.
    fn set_max_rate(&mut self, _max_rate_bps: u64) {}

    /// Credit in bytes, an additional limit beside [`limits`](Self::limits). A packet may be sent
    /// while the credit is above 0. Controllers without credit return no limit.
    fn credit_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// How a sender detected a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The receiver reported a gap, or a packet that arrived without its payload.
    Reported,
    /// No report came in time.
    TimedOut,
}
