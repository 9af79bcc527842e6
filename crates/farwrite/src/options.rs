//! How queue pairs and messages are made.

use std::time::Duration;

use farwrite_schemes::registry::SchemeName;
use farwrite_sdr::{QpConfig, Timing};
use farwrite_wire::control::SchemeTag;

/// How a queue pair is made.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// What both ends must agree on: packet and chunk sizes, immediate split, slots, generations,
    /// channels.
    pub sdr: QpConfig,
    /// Most bits a second put on the wire, IP headers included. There is no congestion control:
    /// give the share of the path that is yours.
    pub rate_bps: u64,
    /// Most bytes put on the wire at once; never more than leave at `rate_bps` in half of
    /// [`Timing::lateness_ns`], or one packet.
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
            rate_bps: 1_000_000_000,
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
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack.tag(),
            immediate: None,
        }
    }
}
