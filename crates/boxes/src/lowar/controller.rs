//! The choice of r and c from what the path loses. The paper leaves it open.

use super::coding::{MAX_BLOCK_PACKETS, Shape};
use super::format::{Report, SPANS};

/// Packets after which a measurement counts for 1/e.
const MEMORY_PACKETS: f64 = 300_000.0;
/// Before anything is lost, half a loss in this number of further packets is assumed.
const PRIOR_PACKETS: f64 = 500.0;
const PRIOR_LOST: f64 = 0.5;
/// With fewer packets than this, nothing is chosen.
const MIN_PACKETS: f64 = 100.0;
/// A new shape has to promise so much more goodput. This avoids a change with each report.
const MIN_GAIN: f64 = 1.01;
/// Packets in flight before the first measurement.
const PRIOR_FLIGHT: f64 = 10_000.0;

/// Data packets per repair packet that are tried.
const CLASS_SIZES: [u16; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// Repair packets per block that are tried: 1, and those up to whose number bursts are counted.
const UNITS: [u8; 5] = [1, 2, 4, 8, 16];

/// Chooses the shape with the highest predicted goodput of a Go-Back-N sender.
///
/// With loss `p` and classes of `s` data packets and one repair packet, losses that meet in a
/// class occur `(s + 1) p^2 / 2` times per packet. Bursts longer than `c` occur `b` times. Each
/// costs the packets `R` of one round trip. The share of useful packets is
///
/// ```text
/// 1 / ((1 + repairs per data packet) (1 + R ((s + 1) p^2 / 2 + b)))
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    shape: Shape,
    packets: f64,
    lost: f64,
    bursts: f64,
    longer: [f64; SPANS.len()],
    /// Data packets sent in a round trip.
    flight: Option<f64>,
    /// Time between two packets of a block.
    gap_ns: Option<u64>,
    hold_ns: u64,
    /// Data packets and, of these, ends of messages that end blocks.
    sent: f64,
    messages: f64,
    /// Counts of the report before, and the box's start that they belong to.
    last: Option<(u64, Report)>,
}

impl Controller {
    /// A controller that begins with `shape`, for boxes that hold packets for `hold_ns`.
    pub(crate) fn new(shape: Shape, hold_ns: u64) -> Self {
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

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Takes in a data packet that is sent.
    pub(crate) fn sent(&mut self, ends_message: bool) {
        let keep = 1.0 - 1.0 / MEMORY_PACKETS;
        self.sent = self.sent * keep + 1.0;
        self.messages = self.messages * keep + f64::from(u8::from(ends_message));
    }

    /// Takes in how long a block of several packets took.
    pub(crate) fn measured_block(&mut self, packets: u16, took_ns: u64) {
        let gaps = u64::from(packets).saturating_sub(1);
        let Some(gap_ns) = took_ns.checked_div(gaps) else {
            return;
        };
        let before = self.gap_ns.unwrap_or(gap_ns);
        self.gap_ns = Some(before - before / 8 + gap_ns / 8);
    }

    /// Takes in the number of data packets that were sent during a round trip.
    pub(crate) fn measured_flight(&mut self, packets: u64) {
        // A counter of 2^53 packets is out of reach.
        #[allow(clippy::cast_precision_loss)]
        let packets = packets as f64;
        // A sender that goes back is idle at times: the highest number counts, and fades.
        let held = self.flight.map_or(0.0, |flight| flight * 0.9);
        self.flight = Some(packets.max(held));
    }

    /// Takes in what the other box has counted since it started at `boot`, and chooses.
    pub(crate) fn report(&mut self, boot: u64, report: &Report) {
        let before = self.last.replace((boot, *report));
        let before = before.filter(|(at, _)| *at == boot);
        let before = before.map_or_else(Report::default, |(_, report)| report);
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
        if self.packets >= MIN_PACKETS {
            self.choose();
        }
    }

    /// Most packets of a block. Half of the hold time is left for the path.
    fn max_packets(&self) -> u16 {
        let gap_ns = self.gap_ns.unwrap_or(0).max(1);
        let in_time = u16::try_from(self.hold_ns / 2 / gap_ns).unwrap_or(u16::MAX);
        in_time.clamp(1, MAX_BLOCK_PACKETS)
    }

    fn choose(&mut self) {
        let max_packets = self.max_packets();
        let mut best = (0.0, Shape::DEFAULT);
        if self.shape.packets() <= max_packets {
            best = (self.goodput(self.shape) * MIN_GAIN, self.shape);
        }
        for units in UNITS {
            for class in CLASS_SIZES {
                let packets = class * u16::from(units);
                if packets > max_packets {
                    continue;
                }
                if let Ok(shape) = Shape::new(packets, units) {
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
    fn goodput(&self, shape: Shape) -> f64 {
        let seen = self.packets + PRIOR_PACKETS;
        let loss = (self.lost + PRIOR_LOST) / seen;
        let units = f64::from(shape.units());
        let message = if self.messages > 0.0 {
            self.sent / self.messages
        } else {
            f64::INFINITY
        };
        // A message shorter than a block is one block.
        let packets = f64::from(shape.packets()).min(message.max(1.0));
        let repairs = units.min(packets) / packets;
        let class = (packets / units).max(1.0);
        // `longer` says how many bursts a shape does not cover.
        let covered = SPANS
            .iter()
            .rposition(|span| *span <= u32::from(shape.units()));
        let uncovered = covered.map_or(self.bursts, |at| self.longer[at]) / seen;
        let failures = (class + 1.0) * loss * loss / 2.0 + uncovered;
        let flight = self.flight.unwrap_or(PRIOR_FLIGHT);
        1.0 / ((1.0 + repairs) * (1.0 + failures * flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(lost: u32, flight: u64, longer: [u32; 5]) -> Shape {
        let mut controller = Controller::new(Shape::DEFAULT, 4_000_000);
        controller.measured_flight(flight);
        controller.report(
            1,
            &Report {
                packets: 1_000_000,
                lost,
                bursts: lost,
                longer,
                ..Report::default()
            },
        );
        controller.shape()
    }

    #[test]
    fn more_loss_means_smaller_classes() {
        let class = |lost| chosen(lost, 45_000, [0; 5]).packets();
        let classes = [0, 100, 1000, 10_000].map(class);
        // At 100 in a million, 64 would gain less than a change has to.
        assert_eq!(classes, [256, 32, 6, 1]);
        assert!(chosen(1000, 100, [0; 5]).packets() > 64);
    }

    #[test]
    fn blocks_are_over_before_the_hold_time() {
        let mut controller = Controller::new(Shape::DEFAULT, 4_000_000);
        // A packet each 100 us.
        controller.measured_block(11, 1_000_000);
        let packets = 1_000_000;
        controller.report(
            1,
            &Report {
                packets,
                ..Report::default()
            },
        );
        assert_eq!(controller.shape().packets(), 16);
    }

    #[test]
    fn bursts_want_as_many_classes_as_they_have_packets() {
        let shape = chosen(1000, 45_000, [900, 800, 700, 0, 0]);
        assert_eq!(shape.units(), 8);
    }

    #[test]
    fn counters_that_begin_again_count_from_zero() {
        let mut controller = Controller::new(Shape::DEFAULT, 4_000_000);
        let report = |packets| Report {
            packets,
            ..Report::default()
        };
        controller.report(1, &report(1000));
        controller.report(2, &report(10));
        assert!(controller.packets < 1011.0);
    }
}
