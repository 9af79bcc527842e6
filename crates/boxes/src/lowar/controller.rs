//! Chooses r and c from the measured loss of the path. The paper does not specify how.

use super::coding::{BlockShape, MAX_BLOCK_PACKETS};
use super::format::{LossReport, SPANS};

/// Memory of the moving averages: after this number of packets, the weight of a measurement is 1/e.
/// A shorter memory forgets long bursts, which are rare, before the next one comes.
const MEMORY_PACKETS: f64 = 1_000_000.0;
/// The estimate starts as if half a packet were lost of this number of packets.
const PRIOR_PACKETS: f64 = 3000.0;
const PRIOR_LOST: f64 = 0.5;
/// It also starts as if this share of the bursts longer than one of [`SPANS`] were longer than the next one, and
/// counts this as much as one burst. Without this, the controller would expect no burst to be longer than those
/// measured.
const PRIOR_LONGER: f64 = 0.5;
/// Of two losses at random positions of a block, the first is followed by this share of the block on average.
const REST_OF_BLOCK: f64 = 2.0 / 3.0;
/// Assumed packets in flight before the first measurement.
const PRIOR_FLIGHT: f64 = 10_000.0;

/// Candidates for the number of data packets per repair packet.
const CLASS_SIZES: [u16; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Candidates for the number of repair packets per block: the burst lengths in [`SPANS`].
const UNITS: [u8; SPANS.len()] = [1, 2, 4, 8, 16, 32, 64];
/// A block takes at most one of this number of units that are free, so that a stream leaves units to
/// the others.
const FREE_SHARE: usize = 4;

/// Chooses the shape with the highest predicted goodput of a Go-Back-N sender.
///
/// A class has `s` data packets and one repair packet. Bursts begin at a share `b` of the packets and
/// lose a share `p`, so a burst loses `k = p / b` packets. Two bursts in one block take a packet of the
/// same class in `2 k - 1` of `c` positions, which is `(s + 1) b (2 p - b) / 2` times per packet sent; for
/// single losses that is `(s + 1) p^2 / 2`. Bursts longer than `c` begin at a share `l` of the packets. The
/// other box notices such an event at the end of the block. So it costs the `R` packets of one round trip, and
/// those of the block behind the first loss, about two thirds of `r`. The share of useful packets is
///
/// ```text
/// 1 / ((1 + repairs per data packet) (1 + (R + 2 r / 3) ((s + 1) b (2 p - b) / 2 + l)))
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    shape: BlockShape,
    packets: f64,
    lost: f64,
    bursts: f64,
    longer: [f64; SPANS.len()],
    /// Data packets sent per round trip.
    flight: Option<f64>,
    /// Average time between two packets of a block.
    gap_ns: Option<u64>,
    hold_ns: u64,
    /// Data packets sent, and how many of them ended a message and so a block.
    sent: f64,
    messages: f64,
    /// The previous report, and the boot number of the box that sent it.
    last: Option<(u64, LossReport)>,
}

impl Controller {
    /// A controller that begins with `shape`, for boxes that hold packets for `hold_ns`.
    pub(crate) fn new(shape: BlockShape, hold_ns: u64) -> Self {
        Self {
            shape,
            packets: 0.0,
            lost: 0.0,
            bursts: 0.0,
            longer: [0.0; SPANS.len()],
            flight: None,
            gap_ns: None,
            hold_ns,
            sent: 0.0,
            messages: 0.0,
            last: None,
        }
    }

    pub(crate) fn shape(&self) -> BlockShape {
        self.shape
    }

    pub(crate) fn sent(&mut self, ends_message: bool) {
        let keep = 1.0 - 1.0 / MEMORY_PACKETS;
        self.sent = self.sent * keep + 1.0;
        self.messages = self.messages * keep + f64::from(u8::from(ends_message));
    }

    /// Updates the packet gap with the duration of a block of several packets.
    pub(crate) fn measured_block(&mut self, packets: u16, took_ns: u64) {
        let gaps = u64::from(packets).saturating_sub(1);
        let Some(gap_ns) = took_ns.checked_div(gaps) else {
            return;
        };
        let before = self.gap_ns.unwrap_or(gap_ns);
        self.gap_ns = Some(before - before / 8 + gap_ns / 8);
    }

    /// Updates the packets in flight with the number of data packets sent during a round trip.
    pub(crate) fn measured_flight(&mut self, packets: u64) {
        // A counter of 2^53 packets is out of reach.
        #[allow(clippy::cast_precision_loss)]
        let packets = packets as f64;
        // A Go-Back-N sender is sometimes idle, so use a decaying maximum.
        let held = self.flight.map_or(0.0, |flight| flight * 0.9);
        self.flight = Some(packets.max(held));
    }

    /// Adds the counters that the other box has collected since it started at `boot`, and chooses
    /// the shape again. `free_units`: coding units that other streams do not use.
    pub(crate) fn report(&mut self, boot: u64, report: &LossReport, free_units: usize) {
        let before = self.last.replace((boot, *report));
        let before = before.filter(|(at, _)| *at == boot);
        let before = before.map_or_else(LossReport::default, |(_, report)| report);
        let since = |now: u32, then: u32| f64::from(now.wrapping_sub(then));
        let packets = since(report.packets, before.packets);
        let keep = MEMORY_PACKETS / (MEMORY_PACKETS + packets);
        let add = |sum: &mut f64, more: f64| *sum = *sum * keep + more;
        add(&mut self.packets, packets);
        add(&mut self.lost, since(report.lost, before.lost));
        add(&mut self.bursts, since(report.bursts, before.bursts));
        for (at, longer) in self.longer.iter_mut().enumerate() {
            add(longer, since(report.longer[at], before.longer[at]));
        }
        self.choose(free_units / FREE_SHARE);
    }

    /// Highest number of packets in a block. A block may last half of the hold time; the rest is
    /// left for the path.
    fn max_packets(&self) -> u16 {
        let gap_ns = self.gap_ns.unwrap_or(0).max(1);
        let in_time = u16::try_from(self.hold_ns / 2 / gap_ns).unwrap_or(u16::MAX);
        in_time.clamp(1, MAX_BLOCK_PACKETS)
    }

    /// Chooses among the shapes with at most `max_units`, and those with one.
    fn choose(&mut self, max_units: usize) {
        let max_packets = self.max_packets();
        let fits = |units: u8| units == 1 || usize::from(units) <= max_units;
        let mut best = (0.0, BlockShape::DEFAULT);
        for units in UNITS.into_iter().filter(|units| fits(*units)) {
            for class in CLASS_SIZES {
                let packets = class * u16::from(units);
                if packets > max_packets {
                    continue;
                }
                if let Ok(shape) = BlockShape::new(packets, units) {
                    let goodput = self.goodput(shape);
                    if goodput > best.0 {
                        best = (goodput, shape);
                    }
                }
            }
        }
        self.shape = best.1;
    }

    /// The predicted share of useful packets.
    fn goodput(&self, shape: BlockShape) -> f64 {
        let seen = self.packets + PRIOR_PACKETS;
        let [loss, bursts] = [self.lost, self.bursts].map(|count| (count + PRIOR_LOST) / seen);
        let units = f64::from(shape.units());
        let message = if self.messages > 0.0 {
            self.sent / self.messages
        } else {
            f64::INFINITY
        };
        // A message shorter than a block is a block of its own.
        let packets = f64::from(shape.packets()).min(message.max(1.0));
        let repairs = units.min(packets) / packets;
        let class = (packets / units).max(1.0);
        let uncovered = self.longer_than(shape.units()) / seen;
        let failures = (class + 1.0) * bursts * (2.0 * loss - bursts).max(loss) / 2.0 + uncovered;
        let cost = self.flight.unwrap_or(PRIOR_FLIGHT) + REST_OF_BLOCK * packets;
        1.0 / ((1.0 + repairs) * (1.0 + failures * cost))
    }

    /// The expected number of bursts longer than `units`, which a block does not cover.
    fn longer_than(&self, units: u8) -> f64 {
        let (mut expected, mut before) = (self.bursts + PRIOR_LOST, self.bursts);
        for (span, longer) in SPANS.into_iter().zip(self.longer) {
            if span > u32::from(units) {
                break;
            }
            expected *= (longer + PRIOR_LONGER) / (before + 1.0);
            before = longer;
        }
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of a pool that nothing else uses.
    const FREE: usize = 1024;

    fn chosen(lost: u32, flight: u64, longer: [u32; 7]) -> BlockShape {
        chosen_with(FREE, flight, lost, lost, longer)
    }

    fn chosen_with(
        free: usize,
        flight: u64,
        lost: u32,
        bursts: u32,
        longer: [u32; 7],
    ) -> BlockShape {
        let mut controller = Controller::new(BlockShape::DEFAULT, 4_000_000);
        controller.measured_flight(flight);
        let report = LossReport {
            packets: 1_000_000,
            lost,
            bursts,
            longer,
            ..LossReport::default()
        };
        controller.report(1, &report, free);
        controller.shape()
    }

    fn class_of(shape: BlockShape) -> u16 {
        shape.packets() / u16::from(shape.units())
    }

    #[test]
    fn more_loss_means_smaller_classes() {
        let class = |lost| class_of(chosen(lost, 45_000, [0; 7]));
        let classes = [0, 100, 1000, 10_000].map(class);
        assert_eq!(classes, [128, 64, 6, 1]);
        assert!(class_of(chosen(1000, 100, [0; 7])) > 64);
    }

    /// Before the first losses, the controller does not know how long bursts are. Where a round trip has
    /// many packets, it expects long ones.
    #[test]
    fn a_new_stream_is_protected_from_bursts() {
        let units = |flight, packets| {
            let mut controller = Controller::new(BlockShape::DEFAULT, 4_000_000);
            controller.measured_flight(flight);
            let report = LossReport {
                packets,
                ..LossReport::default()
            };
            controller.report(1, &report, FREE);
            controller.shape().units()
        };
        assert_eq!(
            [units(100, 0), units(45_000, 0), units(45_000, 30_000)],
            [2, 32, 8]
        );
    }

    #[test]
    fn blocks_are_over_before_the_hold_time() {
        let mut controller = Controller::new(BlockShape::DEFAULT, 4_000_000);
        // One packet per 100 us.
        controller.measured_block(11, 1_000_000);
        let report = LossReport {
            packets: 1_000_000,
            ..LossReport::default()
        };
        controller.report(1, &report, FREE);
        assert!((10..=20).contains(&controller.shape().packets()));
    }

    #[test]
    fn bursts_want_as_many_classes_as_they_have_packets() {
        let bursts_up_to = |packets: u32| {
            let longer = SPANS.map(|span| if span < packets { 90 } else { 0 });
            chosen_with(FREE, 45_000, 90 * packets, 90, longer)
        };
        for packets in [4u32, 8, 16, 24, 64] {
            let units = u32::from(bursts_up_to(packets).units());
            assert!(
                (packets..=2 * packets.next_power_of_two()).contains(&units),
                "{units}"
            );
        }
    }

    /// Where the lengths of a few bursts vary, still longer ones will come. Many bursts of one length say that
    /// longer ones are rare.
    #[test]
    fn lengths_that_vary_want_room_for_longer_bursts() {
        let units = |packets, lost, bursts, longer| {
            let mut controller = Controller::new(BlockShape::DEFAULT, 4_000_000);
            controller.measured_flight(45_000);
            let report = LossReport {
                packets,
                lost,
                bursts,
                longer,
                ..LossReport::default()
            };
            controller.report(1, &report, FREE);
            controller.shape().units()
        };
        assert_eq!(units(100_000, 40, 10, [8, 6, 4, 2, 0, 0, 0]), 32);
        assert_eq!(units(1_000_000, 160, 20, [20, 20, 20, 0, 0, 0, 0]), 8);
    }

    /// A block that cannot be repaired costs what follows the loss in it, too.
    #[test]
    fn blocks_are_short_where_a_round_trip_is() {
        let packets = chosen(30_000, 1000, [0; 7]).packets();
        assert!(packets <= 16, "{packets}");
    }

    #[test]
    fn a_block_leaves_units_to_other_streams() {
        let longer = [80, 70, 60, 50, 30, 10, 0];
        let units = |free| chosen_with(free, 45_000, 90 * 40, 90, longer).units();
        assert_eq!([256, 255, 64, 4, 0].map(units), [64, 32, 16, 1, 1]);
    }

    #[test]
    fn counters_that_begin_again_count_from_zero() {
        let mut controller = Controller::new(BlockShape::DEFAULT, 4_000_000);
        let report = |packets| LossReport {
            packets,
            ..LossReport::default()
        };
        controller.report(1, &report(1000), FREE);
        controller.report(2, &report(10), FREE);
        assert!(controller.packets < 1011.0);
    }
}
