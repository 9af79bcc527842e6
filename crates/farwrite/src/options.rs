//! Options of queue pairs and messages.

use std::fmt;
use std::time::Duration;

use farwrite_rate::{DcqcnOptions, EqdsOptions, RateControlName, Start, SwiftOptions};
use farwrite_schemes::registry::SchemeName;
use farwrite_sdr::{QpConfig, Timing};
use farwrite_wire::control::SchemeTag;
use farwrite_wire::sealing::SEALING_BYTES;

use crate::critical::CriticalRanges;

/// How fast packets are sent to a peer. With any of these, the sender slows down when the receiver
/// drops packets because it has no room (P5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateControl {
    /// Adapts to the path: uses its full rate, keeps queues short, and leaves others their fair
    /// share. Losses alone do not reduce the rate.
    Adaptive {
        /// Maximum rate in bits per second on the wire, including IP headers. `None`: no limit
        /// other than the path.
        max_bps: Option<u64>,
        /// What is known of the path, for example from [`PeerStats::learned`] of an earlier
        /// connection. Only the value of the first queue pair to a peer counts.
        ///
        /// [`PeerStats::learned`]: crate::PeerStats::learned
        start: Option<Start>,
    },
    /// A fixed rate, for a path of which you have a reserved share. There is no congestion control.
    Fixed {
        /// Rate in bits per second on the wire, including IP headers.
        rate_bps: u64,
    },
    /// DCQCN (SIGCOMM 2015), for datacenters with switches that mark packets. The marks that a
    /// report of the receiver counts (P4.10) replace congestion notification packets.
    Dcqcn(DcqcnOptions),
    /// Swift (SIGCOMM 2020), for datacenters: it keeps the delay at a target. The delay samples
    /// come from the receiver's reports (P4.10), and a repeated packet counts as a loss. A receiver
    /// holds reports for up to an eighth of the round trip, so
    /// [`SwiftOptions::endpoint_target_ns`] must be longer than that. The path replaces
    /// [`SwiftOptions::packet_bytes`] by the size of its own packets.
    Swift(SwiftOptions),
    /// EQDS (NSDI 2022), for datacenters in which the ports of the receivers are the bottlenecks: a
    /// sender sends a first window, and then only what the receiver has granted credit for (P4.12).
    /// An endpoint grants credit to all of its peers together, for 99 % of
    /// [`EqdsOptions::line_rate_bps`], the rate of its own port. So both ends need this
    /// choice ([`Error::NoCredit`](crate::Error::NoCredit)), and all queue pairs of an endpoint
    /// with this choice need the same `line_rate_bps`
    /// ([`Error::LineRate`](crate::Error::LineRate)).
    ///
    /// Sockets do not receive trimmed packets, so lost packets are repaired by the scheme of their
    /// message. A queue in front of another bottleneck than the receiver's port is not controlled:
    /// state its rate as `line_rate_bps`, or choose another controller.
    Eqds(EqdsOptions),
}

impl Default for RateControl {
    /// Returns adaptive rate control, with no maximum and no knowledge of the path.
    fn default() -> Self {
        Self::Adaptive {
            max_bps: None,
            start: None,
        }
    }
}

impl RateControl {
    /// The name of the controller.
    #[must_use]
    pub fn name(&self) -> RateControlName {
        match self {
            Self::Adaptive { .. } => RateControlName::Adaptive,
            Self::Fixed { .. } => RateControlName::Fixed,
            Self::Dcqcn(_) => RateControlName::Dcqcn,
            Self::Swift(_) => RateControlName::Swift,
            Self::Eqds(_) => RateControlName::Eqds,
        }
    }

    /// The highest rate in bits per second on the wire. `None`: no limit other than the path.
    #[must_use]
    pub fn max_rate_bps(&self) -> Option<u64> {
        match self {
            Self::Adaptive { max_bps, .. } => *max_bps,
            Self::Fixed { rate_bps } => Some(*rate_bps),
            Self::Dcqcn(options) => Some(options.line_rate_bps),
            Self::Swift(options) => Some(options.line_rate_bps),
            Self::Eqds(options) => Some(options.line_rate_bps),
        }
    }

    /// The same choice with another maximum rate, or with another rate if it is fixed. The rates of
    /// the other controllers are those of a port, and stay.
    #[must_use]
    pub fn at_most(self, max_rate_bps: u64) -> Self {
        match self {
            Self::Adaptive { start, .. } => Self::Adaptive {
                max_bps: Some(max_rate_bps),
                start,
            },
            Self::Fixed { .. } => Self::Fixed {
                rate_bps: max_rate_bps,
            },
            other => other,
        }
    }

    /// Returns the least and the usual greatest number of round trips that a long message spends on
    /// finding the rate of an unknown path, with adaptive rate control. `packet_bytes` is the length of
    /// an IP packet. On a path whose [`Start`] is given, it is one round trip.
    #[must_use]
    pub fn search_round_trips(packet_bytes: u64, rate_bps: u64) -> [u32; 2] {
        farwrite_rate::Adaptive::search_round_trips(packet_bytes, rate_bps)
    }

    /// Returns whether queue pairs with these two values can share a peer. The values may differ
    /// only in what is known at the start.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Adaptive { max_bps, .. }, Self::Adaptive { max_bps: other, .. }) => {
                max_bps == other
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for RateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match (self, self.max_rate_bps()) {
            (_, None) => write!(f, "{name}"),
            (Self::Fixed { .. }, Some(bps)) => write!(f, "{name}, {bps} bit/s"),
            (_, Some(bps)) => write!(f, "{name}, at most {bps} bit/s"),
        }
    }
}

/// Whether the data packets of a queue pair are sealed: encrypted and authenticated (P2.7).
///
/// The keys follow from those in [`QpInfo`](crate::QpInfo), so only the two ends can read or change
/// sealed packets if that information has travelled over a confidential and authenticated channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// They are not sealed. A peer that requires sealing is refused
    /// ([`Error::Sealing`](crate::Error::Sealing)).
    #[default]
    Off,
    /// They are sealed if the peer seals too. RDMA devices and older versions do not.
    Preferred,
    /// They are sealed. A peer that does not seal is refused.
    Required,
}

impl Sealing {
    /// How many bytes a packet has in addition, if it is sealed. So this is what an end that may seal
    /// subtracts from the room that a path has for the payload, before it chooses
    /// [`QpConfig::mtu`](crate::QpConfig::mtu).
    #[must_use]
    pub fn reserved_bytes(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Preferred | Self::Required => SEALING_BYTES,
        }
    }
}

/// Options of a queue pair.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// Configuration that both ends must agree on: packet and chunk sizes, immediate split, slots,
    /// generations, channels.
    pub sdr: QpConfig,
    /// How fast packets are sent to the peer. All queue pairs between the same two endpoints share
    /// one rate, and must have the same rate control
    /// ([`Error::RateControl`](crate::Error::RateControl)).
    pub rate_control: RateControl,
    /// Maximum number of bytes put on the wire at once, by all queue pairs to the peer together.
    /// Only the value of the first queue pair to a peer counts. Packets leave in batches of at most what the rate
    /// carries in a tenth of [`Timing::lateness_ns`] and in a sixteenth of the round trip (but not less than in a
    /// hundredth of `lateness_ns`), and of at most 64 packets or 65,507 bytes. A batch after a sleep that ended late
    /// also has what the rate carries in up to half of `lateness_ns` with [`RateControl::Fixed`], and in a fortieth of
    /// it with the others. A burst is never less than one packet.
    pub burst_bytes: u64,
    /// The timeouts that both ends must agree on. With [`Timing::datacenter`], start from
    /// [`QpOptions::datacenter`], because its initial round trip fits.
    pub timing: Timing,
    /// The round trip assumed until the first measurement.
    pub initial_rtt: Duration,
    /// How late a chunk may be before it counts as lost, counted from the arrival of the first
    /// later chunk. `None` selects an eighth of the round trip, or more while packets arrive here
    /// that are later than that (P5.0.11).
    pub reordering_window: Option<Duration>,
    /// The scheme that the peer is expected to use first. Later, the expected scheme is the one
    /// with the most parity among those that the peer has used. Receives are posted with memory for
    /// the parity of the expected scheme. A receive posted without such memory gets it when its
    /// message is offered, which takes a round trip. If a message has more parity than its receive
    /// has memory for, it is sent without parity.
    pub expected_scheme: SchemeTag,
    /// Maximum memory for the parity of posted receives, in bytes. Beyond this limit, messages are
    /// received without their parity. The same limit holds for the parity of answers to the peer's
    /// reads.
    pub max_parity_bytes: u64,
    /// Maximum number of the peer's reads that are answered at once; 0 counts as 1. More of them
    /// wait. Their number is bounded by the slots. An answer takes about as much memory as a send does.
    pub max_answers: u32,
    /// Maximum parity of an answer to the peer's read: m parity chunks for k data chunks, in percent
    /// of k. The peer chooses the code, and this end computes the parity. Reads with more parity are
    /// refused ([`ReadRefusal::Scheme`](crate::ReadRefusal::Scheme)).
    pub max_answer_parity_percent: u32,
    /// The deadline of messages and receives that are posted without one, counted from the first poll
    /// after they were posted. It ends them if the peer has vanished. `None`: they stay open. Reads that
    /// this end answers or requests have no such deadline.
    pub default_deadline: Option<Duration>,
    /// After which time the peer counts as vanished, if it has answered none of the pings that open sends
    /// cause (P4.9.3): these sends fail. `None`: they stay open. Receives are not concerned, as nobody asks for
    /// their messages.
    pub vanished_after: Option<Duration>,
    /// Whether this end sends: messages, and answers to the peer's reads. If not, calls that would are
    /// refused ([`Error::SwitchedOff`](crate::Error::SwitchedOff)).
    pub sends: bool,
    /// Whether this end receives: messages, and answers to its reads. If not, calls that would are refused,
    /// and messages of the peer wait.
    pub receives: bool,
    /// Whether data packets are sealed. A sealed packet has 24 bytes more than [`QpConfig::mtu`]. All
    /// queue pairs to a peer must be sealed, or none ([`Error::Sealing`](crate::Error::Sealing)).
    pub sealing: Sealing,
    /// Whether sealed packets have no ICRC, if the peer wants that too (P2.7). Their tag protects more than
    /// the ICRC does, and an end needs less processor time without it. LoWAR and NetRT boxes do not repair such
    /// packets. An end that has not connected yet does not know that packets have no ICRC, so it drops them as damaged.
    pub omit_icrc: bool,
}

impl Default for QpOptions {
    fn default() -> Self {
        Self {
            sdr: QpConfig::default(),
            rate_control: RateControl::default(),
            burst_bytes: 256 * 1024,
            timing: Timing::wide_area(),
            initial_rtt: Duration::from_millis(100),
            reordering_window: None,
            expected_scheme: SchemeTag::NONE,
            max_parity_bytes: 1 << 30,
            max_answers: 16,
            max_answer_parity_percent: 100,
            default_deadline: None,
            vanished_after: None,
            sends: true,
            receives: true,
            sealing: Sealing::Off,
            omit_icrc: false,
        }
    }
}

impl QpOptions {
    /// Returns the defaults for two ends in one datacenter: [`Timing::datacenter`], and an initial
    /// round trip of 50 us.
    #[must_use]
    pub fn datacenter() -> Self {
        Self {
            timing: Timing::datacenter(),
            initial_rtt: Duration::from_micros(50),
            ..Self::default()
        }
    }
}

/// Options of a send.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The scheme that repairs losses. The default is selective repeat with NACKs. With
    /// [`SchemeTag::NONE`], losses are not repaired: the receiver watches the bitmap and closes the
    /// receive itself.
    pub scheme: SchemeTag,
    /// A user immediate to send with the message.
    pub immediate: Option<u32>,
    /// The chunk of the peer's buffer at which the bytes begin. The message has its first bytes there, so
    /// the chunks before are never sent. Above 0, the message must have no scheme, at least one byte, and
    /// with an immediate a packet for each part of it (P3.4).
    pub first_chunk: u32,
    /// The deadline of the send, by the clock of [`Endpoint::poll`](crate::Endpoint::poll). The
    /// first poll at or after that time stops the send. The send ends as partial if it was cleared
    /// to send and the receiver accepts that ([`RecvOptions::accept_partial`]), and as failed
    /// otherwise. With `best-effort+exact`, it ends as partial only if the critical ranges are known
    /// to have arrived.
    pub deadline_ns: Option<u64>,
    /// The critical ranges of the message, with `best-effort+first` and `best-effort+exact`. The
    /// receiver gets them with the offer.
    pub critical: CriticalRanges,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack.tag(),
            immediate: None,
            first_chunk: 0,
            deadline_ns: None,
            critical: CriticalRanges::NONE,
        }
    }
}

/// What is known of a message when its receive is posted, and how the receive may end. By default,
/// a receive accepts any message that fits the buffer, and has no deadline.
///
/// If a message differs from `scheme`, `exact_length` or `immediate`, it fails at both ends before
/// any of its data is sent. [`RecvHandle::refusal`](crate::RecvHandle::refusal) and
/// [`SendHandle::refusal`](crate::SendHandle::refusal) name the difference.
///
/// With `scheme` and `exact_length`, the receiving half of the scheme does not wait for the offer:
/// it begins with the first sign of the message. This saves a quarter of a round trip, and more
/// when the offer is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecvOptions {
    /// The scheme that the message must have. Memory for its parity is provided at once.
    pub scheme: Option<SchemeTag>,
    /// Whether the message must be exactly as long as the buffer.
    pub exact_length: bool,
    /// With `exact_length`: whether the message must have a user immediate. If false, the message
    /// must have none.
    pub immediate: bool,
    /// The deadline of the receive, by the clock of [`Endpoint::poll`](crate::Endpoint::poll). The
    /// first poll at or after that time processes what has arrived, and ends the receive. The
    /// receive ends as whole if all of it has arrived, and as partial otherwise, even if the offer
    /// has not arrived.
    pub deadline_ns: Option<u64>,
    /// Whether the receive ends as partial at the sender's deadline ([`SendOptions::deadline_ns`]).
    /// If false, the receive ends as failed.
    pub accept_partial: bool,
}
