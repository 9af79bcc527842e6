//! The options of groups and operations.

use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, SchemeName, Sealing, Timing};
use farwrite_choice::{SchemeSetting, parity_bytes};
use farwrite_codes::Layout;

use crate::bounded::frames::Frames;
use crate::bounded::{self, BoundedOptions};
use crate::control::CONTROL_BYTES;
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::index::to_usize;
use crate::info::MAX_RANKS;
use crate::memory_budget::MemoryBudget;
use crate::operation::{Algorithm, Delivery};
use crate::qp_buffers::Depth;
use crate::segment::HEADER_BYTES;

/// The maximum number of control messages in flight to each rank.
pub(crate) const CONTROLS_IN_FLIGHT: u32 = 8;

/// The minimum of [`GroupOptions::dead_after`]: an answer takes a round trip, and repeats if it is
/// lost.
const SHORTEST_DEAD_AFTER: Duration = Duration::from_millis(100);

/// How a group works. All ranks must have the same options, unless the description of a field
/// allows a difference. [`Member::connect`](crate::Member::connect) checks this for all fields
/// except `scheme` and `timing`.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// What repairs losses of exact operations: an exact scheme, or the choice of the planner for
    /// each segment. Each rank selects what it sends with. Each segment names its scheme, so ranks need
    /// not choose the same one. The parity of a whole segment must be no longer than the segment: m
    /// at most k if `packets_per_segment` is a multiple of k. [`SchemeSetting::Auto`] omits schemes with more parity.
    pub scheme: SchemeSetting,
    /// With [`SchemeSetting::Auto`]: the share of packets that the path is expected to lose. It counts
    /// until enough packets were judged. `None`: 1e-5. Ranks may differ.
    pub expected_loss: Option<f64>,
    /// The payload size of a packet in bytes: a multiple of 8, and at most the packet size that the
    /// path carries minus 84 bytes of headers, or 108 if packets are sealed.
    pub packet_bytes: u32,
    /// Whether data packets are encrypted and authenticated (P2.7). This protects the values if the
    /// messages that ranks exchange before they are connected are encrypted and authenticated too,
    /// for these contain the keys.
    pub sealed: bool,
    /// The number of packets in a segment, which is the unit of sending, reduction and forwarding.
    /// Large segments need less work. With small segments, the next rank can begin sooner.
    pub packets_per_segment: u32,
    /// The number of segments in flight to each rank at the start. Each rank allocates memory for
    /// this number of segments for every other rank, in both directions.
    pub segments_in_flight: u32,
    /// The maximum number of segments in flight to each rank. The number grows while a rank waits
    /// for segments that are in flight, until they last one and a half round trips at full rate. It
    /// equals `segments_in_flight` if it does not grow.
    pub most_segments_in_flight: u32,
    /// The memory, in bytes, for all segments in flight beyond the first ones, to and from all ranks
    /// together. Ranks may differ.
    pub buffer_growth_bytes: u64,
    /// The waiting times that do not depend on the round trip.
    pub timing: Timing,
    /// The round trip that is assumed until the first measurement. Ranks may differ.
    pub initial_rtt: Duration,
    /// How fast packets are sent. Ranks may differ.
    pub rate_control: RateControl,
    /// The timeout of operations that do not set their own. Ranks may differ.
    pub timeout: Duration,
    /// While operations wait, ranks ask each other for their progress. A rank that does not answer
    /// for this long counts as dead, and the group ends. The network may be interrupted for this
    /// long, and the machine of a rank may stop it for this long. Ranks may differ. The thread of a
    /// [`Communicator`](crate::Communicator) answers while a program computes; the owner of a
    /// [`Member`](crate::Member) must poll it more often than this.
    pub dead_after: Duration,
    /// The site of each rank, in order, as any number below `u32::MAX`. Ranks of one site are near
    /// each other. If it is empty, all ranks are near each other.
    pub sites: Vec<u32>,
    /// How bounded operations work.
    pub bounded: BoundedOptions,
}

impl Default for GroupOptions {
    /// Packets that fit Ethernet, selective repeat, 5 minutes.
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack.into(),
            expected_loss: None,
            packet_bytes: 1408,
            sealed: false,
            packets_per_segment: 512,
            segments_in_flight: 16,
            most_segments_in_flight: 256,
            buffer_growth_bytes: 1 << 28,
            timing: Timing::wide_area(),
            initial_rtt: Duration::from_millis(10),
            rate_control: RateControl::default(),
            timeout: Duration::from_secs(300),
            dead_after: Duration::from_secs(5),
            sites: Vec::new(),
            bounded: BoundedOptions::default(),
        }
    }
}

impl GroupOptions {
    /// The defaults for ranks on one machine that communicate over its loopback interface, where
    /// packets may be large.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            packet_bytes: 32_704,
            packets_per_segment: 32,
            segments_in_flight: 8,
            most_segments_in_flight: 8,
            buffer_growth_bytes: 0,
            initial_rtt: Duration::from_millis(1),
            ..Self::default()
        }
    }

    /// The view of the group that a rank needs to plan operations.
    pub(crate) fn view(&self, rank: usize, ranks: usize) -> GroupView {
        GroupView {
            rank,
            ranks,
            packet_bytes: self.bounded_packet_bytes(),
            packets_per_segment: self.packets_per_segment,
            hadamard: self.bounded.hadamard,
            bounded_algorithm: self.bounded.algorithm,
            parts: self.bounded.parts,
            sites: self.sites.clone(),
        }
    }

    /// Whether the queue pairs are sealed.
    pub(crate) fn sealing(&self) -> Sealing {
        match self.sealed {
            true => Sealing::Required,
            false => Sealing::Off,
        }
    }

    /// The size of a buffer for a segment with its header, in bytes.
    pub(crate) fn segment_bytes(&self) -> u32 {
        self.packet_bytes.saturating_mul(self.packets_per_segment)
    }

    /// The maximum number of bytes of a step in a segment.
    pub(crate) fn payload_bytes(&self) -> u64 {
        u64::from(self.segment_bytes()) - HEADER_BYTES as u64
    }

    /// The options of the queue pairs that carry segments.
    pub(crate) fn queue_pair(&self) -> QpOptions {
        QpOptions {
            sdr: QpConfig {
                mtu: self.packet_bytes,
                slots: self.slots(),
                max_message_bytes: self.segment_bytes().into(),
                ..QpConfig::default()
            },
            timing: self.timing,
            initial_rtt: self.initial_rtt,
            rate_control: self.rate_control,
            sealing: self.sealing(),
            expected_scheme: self.most_parity().tag(),
            ..QpOptions::default()
        }
    }

    /// Slots for twice the segments in flight, so that a slot is free when its turn comes.
    fn slots(&self) -> u32 {
        let slots = (4 * self.segments_in_flight).max(2 * self.most_segments_in_flight);
        slots.next_power_of_two()
    }

    /// How many buffers the queue pairs of segments have.
    pub(crate) fn depth(&self) -> Depth {
        Depth {
            first: to_usize(self.segments_in_flight.into()),
            most: to_usize(self.most_segments_in_flight.into()),
            budget: MemoryBudget::new(self.buffer_growth_bytes),
        }
    }

    /// The packet size of bounded operations in bytes. Transformed values are distributed over
    /// packets, and the number of values in such a packet is a power of two.
    fn bounded_packet_bytes(&self) -> u32 {
        match self.bounded.hadamard {
            Some(_) => 1 << self.packet_bytes.max(1).ilog2(),
            None => self.packet_bytes,
        }
    }

    /// The options of the queue pairs that carry contributions to bounded operations.
    pub(crate) fn bounded_queue_pair(&self) -> QpOptions {
        let options = Self {
            packet_bytes: self.bounded_packet_bytes(),
            ..self.clone()
        };
        QpOptions {
            expected_scheme: self.bounded.scheme.tag(),
            ..options.queue_pair()
        }
    }

    /// The options of the queue pairs that carry control messages.
    pub(crate) fn control_queue_pair(&self) -> QpOptions {
        let options = self.queue_pair();
        QpOptions {
            sdr: QpConfig {
                mtu: u32::try_from(CONTROL_BYTES).unwrap_or(u32::MAX),
                slots: 4 * CONTROLS_IN_FLIGHT,
                max_message_bytes: CONTROL_BYTES as u64,
                ..options.sdr
            },
            expected_scheme: SchemeName::SrNack.tag(),
            ..options
        }
    }

    /// The schemes that segments may be sent with.
    pub(crate) fn candidates(&self) -> Vec<SchemeName> {
        let mut candidates = self.scheme.candidates();
        candidates.retain(|&scheme| self.has_room_for_parity(scheme));
        candidates
    }

    /// The candidate that sends the most parity for a segment.
    fn most_parity(&self) -> SchemeName {
        let parity = |scheme: &SchemeName| {
            parity_bytes(
                *scheme,
                self.segment_bytes().into(),
                self.packet_bytes.into(),
            )
        };
        let most = self.candidates().into_iter().max_by_key(parity);
        most.unwrap_or(SchemeName::SrNack)
    }

    /// Whether the parity of a whole segment is no longer than a segment. The receiver has no room
    /// for more.
    fn has_room_for_parity(&self, scheme: SchemeName) -> bool {
        let (SchemeName::Ec(code) | SchemeName::BestEffortEc(code)) = scheme else {
            return true;
        };
        let packets = to_usize(self.packets_per_segment.into());
        // Uses chunks of one byte: the number of chunks does not depend on their size.
        let layout = Layout::new(code, packets, 1);
        layout.is_ok_and(|layout| layout.parity_chunks() <= packets)
    }

    /// Checks the options of rank `rank` of `ranks`.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`].
    pub(crate) fn check(&self, rank: usize, ranks: usize) -> Result<(), CollectiveError> {
        let wrong = |argument, value: String, expected: String| CollectiveError::Argument {
            rank,
            argument,
            value,
            expected,
        };
        if !(1..=MAX_RANKS).contains(&ranks) {
            let expected = format!("from 1 to {MAX_RANKS}");
            return Err(wrong("ranks", ranks.to_string(), expected));
        }
        if rank >= ranks {
            let expected = format!("there are {ranks} ranks, counted from 0");
            return Err(wrong("rank", rank.to_string(), expected));
        }
        if !self.sites.is_empty() && self.sites.len() != ranks {
            let sites = self.sites.len().to_string();
            return Err(wrong("sites", sites, format!("none, or {ranks}")));
        }
        // Ranks exchange each number plus one.
        if self.sites.contains(&u32::MAX) {
            return Err(wrong(
                "sites",
                u32::MAX.to_string(),
                format!("below {}", u32::MAX),
            ));
        }
        match self.problem_of(ranks) {
            Some((argument, value, expected)) => Err(wrong(argument, value, expected)),
            None => Ok(()),
        }
    }

    /// What is wrong for a group of this number of ranks.
    pub(crate) fn problem_of(&self, ranks: usize) -> Option<Problem> {
        let packet_bytes = self.bounded_packet_bytes();
        let has_room = Frames::new(ranks, packet_bytes.into()).is_some();
        let is_small = self.bounded.parts == Delivery::Bounded && !has_room;
        let small = is_small.then(|| {
            let expected =
                format!("packets with room for bounded parts and the names of {ranks} ranks");
            ("packet_bytes", packet_bytes.to_string(), expected)
        });
        self.problem().or(small)
    }

    /// The first field with an invalid value, that value, and the values that are valid.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let sizes = self
            .problem_of_sizes()
            .or_else(|| self.problem_of_schemes())
            .or_else(|| self.problem_of_times());
        sizes.or_else(|| self.problem_of_transform())
    }

    fn problem_of_sizes(&self) -> Option<Problem> {
        // A sealed packet has 24 more bytes (P2.7).
        let most = if self.sealed { 65_440 } else { 65_464 };
        if !self.packet_bytes.is_multiple_of(8) || !(64..=most).contains(&self.packet_bytes) {
            let expected = format!("a multiple of 8 from 64 to {most}");
            return invalid("packet_bytes", &self.packet_bytes, &expected);
        }
        if !(1..=1 << 16).contains(&self.packets_per_segment) {
            return invalid(
                "packets_per_segment",
                &self.packets_per_segment,
                "from 1 to 65536",
            );
        }
        if u64::from(self.packet_bytes) * u64::from(self.packets_per_segment) > 1 << 30 {
            return invalid(
                "packets_per_segment",
                &self.packets_per_segment,
                "segments of at most 1 GiB",
            );
        }
        if !(1..=64).contains(&self.segments_in_flight) {
            return invalid(
                "segments_in_flight",
                &self.segments_in_flight,
                "from 1 to 64",
            );
        }
        let most = self.segments_in_flight..=256;
        if !most.contains(&self.most_segments_in_flight) {
            return invalid(
                "most_segments_in_flight",
                &self.most_segments_in_flight,
                "from segments_in_flight to 256",
            );
        }
        None
    }

    fn problem_of_times(&self) -> Option<Problem> {
        let is_short = self.dead_after < SHORTEST_DEAD_AFTER;
        let value = format!("{:?}", self.dead_after);
        let expected = format!("at least {SHORTEST_DEAD_AFTER:?}");
        is_short.then_some(("dead_after", value, expected))
    }

    fn problem_of_schemes(&self) -> Option<Problem> {
        if let SchemeSetting::Named(scheme) = self.scheme
            && !scheme.is_exact()
        {
            return invalid(
                "scheme",
                &scheme,
                "a scheme that delivers everything, or auto",
            );
        }
        if let Some(loss) = self.expected_loss
            && !(0.0..1.0).contains(&loss)
        {
            return invalid("expected_loss", &loss, "a share from 0 to below 1");
        }
        let known = [Algorithm::Auto, Algorithm::Direct, Algorithm::Ring];
        if !known.contains(&self.bounded.algorithm) {
            let value = &self.bounded.algorithm;
            return invalid("bounded.algorithm", value, "auto, direct or ring");
        }
        // A segment has no critical ranges, and with `+exact` its receiver would wait for an offer.
        let is_critical = matches!(
            self.bounded.scheme,
            SchemeName::BestEffortFirst | SchemeName::BestEffortExact
        );
        if self.bounded.scheme.is_exact() || is_critical {
            let expected = "a scheme of best effort without critical ranges";
            return invalid("bounded scheme", &self.bounded.scheme, expected);
        }
        let named = match self.scheme {
            SchemeSetting::Named(scheme) => Some(("scheme", scheme)),
            SchemeSetting::Auto => None,
        };
        let bounded = ("bounded scheme", self.bounded.scheme);
        for (name, scheme) in named.into_iter().chain([bounded]) {
            if !self.has_room_for_parity(scheme) {
                let packets = self.packets_per_segment;
                let expected =
                    format!("at most {packets} packets of parity for a segment of {packets}");
                return invalid(name, &scheme, &expected);
            }
        }
        None
    }

    fn problem_of_transform(&self) -> Option<Problem> {
        if let Some(hadamard) = self.bounded.hadamard
            && let Some(problem) = bounded::hadamard::problem(hadamard)
        {
            let value = format!("{hadamard:?}");
            return invalid("bounded.hadamard", &value, &problem.to_string());
        }
        None
    }
}

/// A field, its value, and the values that are valid.
type Problem = (&'static str, String, String);

fn invalid(name: &'static str, value: &dyn ToString, expected: &str) -> Option<Problem> {
    Some((name, value.to_string(), expected.to_owned()))
}

/// How one operation runs. All ranks must give the same options, except the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationOptions {
    /// The communication pattern between ranks.
    pub algorithm: Algorithm,
    /// How long the operation may take; `None` selects [`GroupOptions::timeout`]. A bounded
    /// operation that takes longer fails too. If it ends earlier, the group still fails if the record
    /// of some rank has not arrived within this time.
    pub timeout: Option<Duration>,
    /// Whether the operation waits for all data.
    pub delivery: Delivery,
}
