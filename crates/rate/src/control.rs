//! What every controller takes in and answers.

/// What a controller allows.
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
    /// Bytes in flight with it: all that was sent after the newest packet that was reported, and
    /// after the latest [`RateControl::on_timeout`] that was due.
    pub in_flight_bytes: u64,
    /// The sender had nothing more to send, although pace and window would have allowed it.
    pub app_limited: bool,
}

/// The newest data packet that the receiver has seen, as the sender knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newest {
    /// Bytes sent on the path up to this packet, with it: the sum of [`Sent::bytes`].
    pub sent_bytes: u64,
    /// When it left, in nanoseconds of the sender's clock. `None` if the sender cannot know which
    /// of several copies arrived: such a packet gives no round-trip sample.
    pub departed_ns: Option<u64>,
    /// How long the receiver had held it when it sent the report, in nanoseconds.
    pub hold_ns: u64,
}

/// A report of the receiver about the path. Counts are sums since the path was opened, so a lost
/// report costs nothing but time.
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
    /// Packets that the receiver knows to have been dropped from a queue for want of room: at its
    /// socket or NIC, or trimmed by a switch.
    pub dropped_packets: u64,
    /// Bits a second that the receiver took in lately; 0 if it does not know.
    pub drain_bps: u64,
}

/// What is known about a path before the first packet: a description by the user, or what an
/// earlier transfer measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Bits a second on the wire.
    pub rate_bps: u64,
    /// Round-trip time without queues, in nanoseconds.
    pub rtt_ns: u64,
}

/// Decides how fast a path may be sent on.
///
/// All that happens on the path is passed to it as it happens, with times of one clock that does
/// not run backward; a time that does is taken for the latest one. After each call
/// [`limits`](Self::limits) may have changed.
///
/// A controller that the receiver drives (credits, congestion notification packets) has a second half
/// at the receiver: [`ReceiverControl`](crate::ReceiverControl). What that half sends arrives here
/// through [`on_notification`](Self::on_notification) and [`on_grant`](Self::on_grant), which the
/// other controllers ignore.
pub trait RateControl {
    /// Takes in that bytes left.
    fn on_sent(&mut self, sent: &Sent);

    /// Takes in a report. One that was overtaken by a newer one has no effect.
    fn on_feedback(&mut self, feedback: &Feedback);

    /// Takes in that [`next_timeout`](Self::next_timeout) has passed. Earlier calls have no effect.
    fn on_timeout(&mut self, now_ns: u64);

    /// When [`on_timeout`](Self::on_timeout) wants to be called, in nanoseconds; `None`: never.
    fn next_timeout(&self) -> Option<u64>;

    /// What is allowed now.
    fn limits(&self) -> Limits;

    /// Takes in a congestion notification packet: the receiver got a packet with a mark.
    fn on_notification(&mut self, _now_ns: u64) {}

    /// Takes in that the receiver has granted this many bytes since the path was opened. A smaller
    /// sum than the latest one has no effect, so a lost or late grant costs nothing but time.
    fn on_grant(&mut self, _now_ns: u64, _granted_bytes: u64) {}

    /// Takes in that the sender repeats packets.
    fn on_loss(&mut self, _now_ns: u64, _loss: Loss) {}

    /// Bytes that may leave now, on top of what [`limits`](Self::limits) says. A packet may leave
    /// while this is above 0. Controllers without credit have no limit here.
    fn credit_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// How a sender knows of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The receiver reported a gap, or a packet that arrived without its payload.
    Reported,
    /// No report came in time.
    TimedOut,
}
