//! How queue pairs and messages are made.

use std::fmt;
use std::time::Duration;

use farwrite_rate::Start;
use farwrite_schemes::registry::SchemeName;
use farwrite_sdr::{QpConfig, Timing};
use farwrite_wire::control::SchemeTag;

/// How fast packets are sent on a path. Whatever it is, the sender slows down when the receiver
/// drops packets for want of room (P5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateControl {
    /// Follows the path: fills it, keeps queues short, and leaves others their share. Losses alone
    /// do not slow it down.
    Adaptive {
        /// Most bits a second put on the wire, IP headers included; `None`: as fast as the path.
        max_bps: Option<u64>,
        /// What is known of the path, for instance from [`PathStats::learned`] of an earlier
        /// connection. Of the path's first queue pair alone it counts.
        ///
        /// [`PathStats::learned`]: crate::PathStats::learned
        start: Option<Start>,
    },
    /// The share of the path that is yours. There is no congestion control.
    Fixed {
        /// Bits a second put on the wire, IP headers included.
        rate_bps: u64,
    },
}

impl Default for RateControl {
    /// Adaptive, with no maximum and nothing known of the path.
    fn default() -> Self {
        Self::Adaptive {
            max_bps: None,
            start: None,
        }
    }
}

impl RateControl {
    /// Whether queue pairs with the two can share a path: they differ at most in what is known at
    /// the start.
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
        match self {
            Self::Adaptive {
                max_bps: Some(max_bps),
                ..
            } => write!(f, "adaptive, at most {max_bps} bit/s"),
            Self::Adaptive { max_bps: None, .. } => write!(f, "adaptive"),
            Self::Fixed { rate_bps } => write!(f, "fixed, {rate_bps} bit/s"),
        }
    }
}

/// How a queue pair is made.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// What both ends must agree on: packet and chunk sizes, immediate split, slots, generations,
    /// channels.
    pub sdr: QpConfig,
    /// How fast packets are sent on the path. All queue pairs between the same two endpoints share
    /// one path, and must want the same ([`Error::RateControl`](crate::Error::RateControl)).
    pub rate_control: RateControl,
    /// Most bytes put on the wire at once, by all queue pairs of the path together: those that the
    /// path's first queue pair gives. With [`RateControl::Fixed`] never more than leave at its rate
    /// in half of [`Timing::lateness_ns`], with [`RateControl::Adaptive`] in a tenth of it; but at
    /// least one packet.
    pub burst_bytes: u64,
    /// What both ends must agree on: how long they wait for what. With [`Timing::datacenter`],
    /// start from [`QpOptions::datacenter`], whose guess of the round trip fits.
    pub timing: Timing,
    /// Round trip assumed until the first one was measured.
    pub initial_rtt: Duration,
    /// How late a chunk may be, counted from the first later one, before it counts as lost; `None`
    /// takes an eighth of the round trip.
    pub reordering_window: Option<Duration>,
    /// The scheme that the peer is expected to use at first; later it is the one with the most
    /// parity of those that it used. Receives are posted with memory for the parity of that scheme.
    /// A receive posted without gets its memory when its message is offered, which takes a round
    /// trip. A message that has more parity than its receive has memory for goes without.
    pub expected_scheme: SchemeTag,
    /// Most memory for the parity of posted receives, in bytes. Beyond that, messages are received
    /// without their parity.
    pub max_parity_bytes: u64,
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
        }
    }
}

impl QpOptions {
    /// The defaults for two ends in one datacenter: [`Timing::datacenter`], and a first guess of
    /// 50 us for the round trip.
    #[must_use]
    pub fn datacenter() -> Self {
        Self {
            timing: Timing::datacenter(),
            initial_rtt: Duration::from_micros(50),
            ..Self::default()
        }
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// What repairs its losses: by default selective repeat with NACKs. With [`SchemeTag::NONE`]
    /// nothing does: the receiver watches the bitmap and closes the receive itself.
    pub scheme: SchemeTag,
    /// A user immediate to carry along.
    pub immediate: Option<u32>,
    /// When the send ends at the latest, in the clock of [`Endpoint::poll`](crate::Endpoint::poll).
    /// The first poll at or after that time stops it. It ends as partial where it was cleared to
    /// send and the receiver accepts that ([`RecvOptions::accept_partial`]), else as failed.
    pub deadline_ns: Option<u64>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack.tag(),
            immediate: None,
            deadline_ns: None,
        }
    }
}

/// What is known of a message when its receive is posted, and how the receive may end. By default
/// any message that fits the buffer is received, however long it takes.
///
/// A message that differs from `scheme`, `exact_length` or `immediate` fails at both ends before
/// any of its data is sent; [`RecvHandle::refusal`](crate::RecvHandle::refusal) and
/// [`SendHandle::refusal`](crate::SendHandle::refusal) name the difference.
///
/// With `scheme` and `exact_length` the receiving half of the scheme need not wait for the offer:
/// it begins with the first sign of the message. That saves a quarter of a round trip and more when
/// the offer is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecvOptions {
    /// The scheme that the message must have; memory for its parity is provided at once.
    pub scheme: Option<SchemeTag>,
    /// Whether the message must be exactly as long as the buffer.
    pub exact_length: bool,
    /// With `exact_length`: whether the message must carry a user immediate, or must carry none.
    pub immediate: bool,
    /// When the receive ends at the latest, in the clock of
    /// [`Endpoint::poll`](crate::Endpoint::poll). The first poll at or after that time takes in
    /// what has arrived, and ends the receive: as whole if it is, else as partial, also if not even
    /// the offer has come.
    pub deadline_ns: Option<u64>,
    /// Whether the receive ends as partial when the sender's deadline comes
    /// ([`SendOptions::deadline_ns`]). Otherwise it ends as failed.
    pub accept_partial: bool,
}
