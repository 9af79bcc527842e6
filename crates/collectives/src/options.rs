//! How groups and operations are made.

use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, SchemeName, Timing};

use crate::bounded::BoundedOptions;
use crate::note::NOTE_BYTES;
use crate::operation::Algorithm;
use crate::segment::HEADER_BYTES;
use crate::sizes::Place;

/// Notes that may be on their way to each rank.
pub(crate) const NOTES_IN_FLIGHT: u32 = 8;

/// How a group works. All ranks must have the same, except where a field says otherwise.
/// [`Member::connect`](crate::Member::connect) checks this for all fields but `scheme` and `timing`.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// What repairs losses of exact operations; an exact scheme. Each rank chooses what it sends
    /// with, and expects the same of others.
    pub scheme: SchemeName,
    /// Bytes of a packet's payload: a multiple of 8, at most what the path carries less 84 bytes of
    /// headers.
    pub packet_bytes: u32,
    /// Packets of a segment, the unit that is sent, reduced and passed on. Large ones cost less
    /// work, small ones less time until the next rank can begin.
    pub packets_per_segment: u32,
    /// Segments that may be on their way to each rank. Together they should be as long as a round
    /// trip at full rate. Each rank has memory for as many, in both directions, for every other.
    pub segments_in_flight: u32,
    /// The waits that do not follow from the round trip.
    pub timing: Timing,
    /// Round trip assumed until the first one was measured. Ranks may differ.
    pub initial_rtt: Duration,
    /// How fast packets are sent. Ranks may differ.
    pub rate_control: RateControl,
    /// How long an operation may take that does not say so itself. Ranks may differ.
    pub timeout: Duration,
    /// The site of each rank, in order, as any number: ranks of one site are near each other. Empty:
    /// all are.
    pub sites: Vec<u32>,
    /// How bounded operations work.
    pub bounded: BoundedOptions,
}

impl Default for GroupOptions {
    /// Packets that fit Ethernet, selective repeat, 5 minutes.
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack,
            packet_bytes: 1408,
            packets_per_segment: 512,
            segments_in_flight: 16,
            timing: Timing::wide_area(),
            initial_rtt: Duration::from_millis(10),
            rate_control: RateControl::default(),
            timeout: Duration::from_secs(300),
            sites: Vec::new(),
            bounded: BoundedOptions::default(),
        }
    }
}

impl GroupOptions {
    /// The defaults for ranks on one machine that talk over its loopback interface, whose packets
    /// may be large.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            packet_bytes: 8192,
            packets_per_segment: 128,
            segments_in_flight: 8,
            initial_rtt: Duration::from_millis(1),
            ..Self::default()
        }
    }

    /// What a rank needs to plan.
    pub(crate) fn place(&self, rank: usize, ranks: usize) -> Place {
        Place {
            rank,
            ranks,
            packet_bytes: self.packet_bytes,
            packets_per_segment: self.packets_per_segment,
            sites: self.sites.clone(),
        }
    }

    /// Bytes of a buffer that takes a segment with its header.
    pub(crate) fn segment_bytes(&self) -> u32 {
        self.packet_bytes.saturating_mul(self.packets_per_segment)
    }

    /// Most bytes of a step in a segment.
    pub(crate) fn payload_bytes(&self) -> u64 {
        u64::from(self.segment_bytes()) - HEADER_BYTES as u64
    }

    /// The options of the queue pairs that carry segments.
    pub(crate) fn queue_pair(&self) -> QpOptions {
        QpOptions {
            sdr: QpConfig {
                mtu: self.packet_bytes,
                slots: (4 * self.segments_in_flight).next_power_of_two(),
                max_message_bytes: self.segment_bytes().into(),
                ..QpConfig::default()
            },
            timing: self.timing,
            initial_rtt: self.initial_rtt,
            rate_control: self.rate_control,
            expected_scheme: self.scheme.tag(),
            ..QpOptions::default()
        }
    }

    /// The options of the queue pairs that carry contributions to bounded operations.
    pub(crate) fn bounded_queue_pair(&self) -> QpOptions {
        QpOptions {
            expected_scheme: self.bounded.scheme.tag(),
            ..self.queue_pair()
        }
    }

    /// The options of the queue pairs that carry notes.
    pub(crate) fn note_queue_pair(&self) -> QpOptions {
        let options = self.queue_pair();
        QpOptions {
            sdr: QpConfig {
                mtu: u32::try_from(NOTE_BYTES).unwrap_or(u32::MAX),
                slots: 4 * NOTES_IN_FLIGHT,
                max_message_bytes: NOTE_BYTES as u64,
                ..options.sdr
            },
            expected_scheme: SchemeName::SrNack.tag(),
            ..options
        }
    }

    /// The first field that cannot work, its value, and what would.
    pub(crate) fn problem(&self) -> Option<(&'static str, String, String)> {
        let say = |name, value: &dyn ToString, expected: &str| {
            Some((name, value.to_string(), expected.to_owned()))
        };
        if !self.packet_bytes.is_multiple_of(8) || !(64..=65_464).contains(&self.packet_bytes) {
            return say(
                "packet_bytes",
                &self.packet_bytes,
                "a multiple of 8 from 64 to 65464",
            );
        }
        if !(1..=1 << 16).contains(&self.packets_per_segment) {
            return say(
                "packets_per_segment",
                &self.packets_per_segment,
                "from 1 to 65536",
            );
        }
        if u64::from(self.packet_bytes) * u64::from(self.packets_per_segment) > 1 << 30 {
            return say(
                "packets_per_segment",
                &self.packets_per_segment,
                "segments of at most 1 GiB",
            );
        }
        if !(1..=64).contains(&self.segments_in_flight) {
            return say(
                "segments_in_flight",
                &self.segments_in_flight,
                "from 1 to 64",
            );
        }
        if !self.scheme.is_exact() {
            return say("scheme", &self.scheme, "a scheme that brings everything");
        }
        if self.bounded.scheme.is_exact() {
            let expected = "a scheme of best effort";
            return say("bounded scheme", &self.bounded.scheme, expected);
        }
        None
    }
}

/// How one operation is done. All ranks must give the same, except the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationOptions {
    /// Which ranks talk to which.
    pub algorithm: Algorithm,
    /// How long it may take; `None`: [`GroupOptions::timeout`]. A bounded operation too fails if it
    /// takes longer.
    pub timeout: Option<Duration>,
    /// Whether it waits for everything.
    pub delivery: Delivery,
}

/// Whether an operation waits for everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The result is whole.
    #[default]
    Exact,
    /// Contributions that have not come after some time are left out: see [`BoundedOptions`].
    /// [`Report::missing`](crate::Report::missing) names them. For `AllReduce` and `ReduceScatter`
    /// of floats, and for `AllGather` and `AllToAll` of equal parts, whose values should be floats
    /// too.
    ///
    /// Each value is the reduction of exactly the contributors that are named; a mean divides by
    /// their number. Where nothing is reduced, missing bytes are 0. The result of an all-reduce is
    /// the same at all ranks. The first operation of each kind and size waits for everything that
    /// the path does not drop, to find out how long that takes.
    Bounded,
}
