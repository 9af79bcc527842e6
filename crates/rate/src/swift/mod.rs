//! Swift (SIGCOMM 2020).

mod options;
mod with_timeout;

use crate::math::{mul_div, rate_of};
use crate::{Feedback, Limits, Loss, RateControl, Sent};

pub use options::SwiftOptions;
pub use with_timeout::{SwiftTimeout, SwiftWithTimeout};

/// Fixed-point value of a window of one packet.
const PACKET: u64 = 1 << 20;

/// A window that follows the delay of the path: additive increase below a target delay,
/// multiplicative decrease above it, at most once per round trip. A window below one packet becomes
/// a pace: one packet per `rtt / cwnd`.
///
/// The paper's packets carry their time of departure, so each acknowledgement gives a delay. Here,
/// packets that were sent again give none ([`Newest::departed_ns`](crate::Newest::departed_ns)).
/// After an outage, all packets in flight are sent again, and without a delay the window would not
/// grow. So while reports give no delay, at least one packet may leave in each round trip.
///
/// Each report splits the delay: the round trip without the receiver's hold time drives the fabric
/// window, and the hold time drives the endpoint window. The smaller window applies. Here, the
/// delay in the sender's NIC and on the way back count as fabric delay.
#[derive(Clone, Debug)]
pub struct Swift {
    options: SwiftOptions,
    fabric: Window,
    endpoint: Window,
    rtt_ns: u64,
    /// Whether the last report gave no delay.
    is_blind: bool,
    retransmits: u32,
    received_packets: u64,
    received_bytes: u64,
    dropped_packets: u64,
    now_ns: u64,
}

/// A window, and the time of its last decrease.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// In units of [`PACKET`].
    cwnd: u64,
    decreased_ns: Option<u64>,
}

impl Swift {
    /// Starts with the bandwidth-delay product of the line rate and the base target, within the
    /// bounds of [`SwiftOptions`].
    #[must_use]
    pub fn new(options: SwiftOptions) -> Self {
        let options = options.bounded();
        let window_bytes = mul_div(options.line_rate_bps, options.base_target_ns, 8_000_000_000);
        let cwnd = mul_div(window_bytes, PACKET, options.packet_bytes);
        let window = Window {
            cwnd: cwnd.clamp(options.min_cwnd(), options.max_cwnd()),
            decreased_ns: None,
        };
        Self {
            options,
            fabric: window,
            endpoint: Window {
                cwnd: options.max_cwnd(),
                ..window
            },
            rtt_ns: options.base_target_ns,
            is_blind: false,
            retransmits: 0,
            received_packets: 0,
            received_bytes: 0,
            dropped_packets: 0,
            now_ns: 0,
        }
    }

    /// The current window, in millionths of a packet.
    #[must_use]
    pub fn cwnd_millionths(&self) -> u64 {
        mul_div(self.cwnd(), 1_000_000, PACKET)
    }

    fn cwnd(&self) -> u64 {
        self.fabric.cwnd.min(self.endpoint.cwnd)
    }

    /// Lowers both windows by `max_mdf`, if a decrease is allowed now.
    fn cut(&mut self) {
        let options = self.options;
        let most = mul_div(PACKET, options.max_mdf_millionths, 1_000_000);
        for window in [&mut self.fabric, &mut self.endpoint] {
            window.decrease(self.now_ns, self.rtt_ns, most, &options);
        }
    }
}

impl Window {
    /// Adjusts the window to the delay of `acked` newly arrived packets, in units of [`PACKET`].
    fn on_delay(
        &mut self,
        now_ns: u64,
        delay_ns: u64,
        target_ns: u64,
        acked: u64,
        swift: &SwiftOptions,
        rtt_ns: u64,
    ) {
        if delay_ns < target_ns {
            let more = mul_div(acked, swift.ai_millionths, 1_000_000);
            // Add one `ai` per window, or per packet if the window is smaller than one packet.
            let more = mul_div(more, PACKET, self.cwnd.max(PACKET));
            self.cwnd = self.cwnd.saturating_add(more).min(swift.max_cwnd());
            return;
        }
        let excess = mul_div(PACKET, delay_ns - target_ns, delay_ns);
        let share = mul_div(excess, swift.beta_millionths, 1_000_000);
        let most = mul_div(PACKET, swift.max_mdf_millionths, 1_000_000);
        self.decrease(now_ns, rtt_ns, share.min(most), swift);
    }

    /// Lowers the window by a share in units of [`PACKET`], unless the last decrease was less than
    /// a round trip ago.
    fn decrease(&mut self, now_ns: u64, rtt_ns: u64, share: u64, swift: &SwiftOptions) {
        let last_ns = self.decreased_ns;
        if last_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= rtt_ns) {
            self.cwnd = mul_div(self.cwnd, PACKET - share, PACKET).max(swift.min_cwnd());
            self.decreased_ns = Some(now_ns);
        }
    }
}

impl RateControl for Swift {
    fn on_sent(&mut self, sent: &Sent) {
        self.now_ns = self.now_ns.max(sent.now_ns);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        self.now_ns = self.now_ns.max(feedback.now_ns);
        if feedback.received_packets < self.received_packets {
            return;
        }
        self.received_packets = feedback.received_packets;
        self.retransmits = 0;
        let arrived_bytes = feedback.received_bytes.saturating_sub(self.received_bytes);
        self.received_bytes = self.received_bytes.max(feedback.received_bytes);
        if feedback.dropped_packets > self.dropped_packets {
            self.dropped_packets = feedback.dropped_packets;
            self.on_loss(feedback.now_ns, Loss::Reported);
        }
        let Some(newest) = feedback.newest else {
            return;
        };
        self.is_blind = newest.departed_ns.is_none();
        let Some(departed_ns) = newest.departed_ns else {
            return;
        };
        let rtt_ns = self.now_ns.saturating_sub(departed_ns).max(1);
        let hold_ns = newest.hold_ns.min(rtt_ns);
        self.rtt_ns = rtt_ns;
        let acked = mul_div(arrived_bytes, PACKET, self.options.packet_bytes);
        let (options, now_ns) = (self.options, self.now_ns);
        let target_ns = options.target_ns(self.fabric.cwnd);
        let fabric_ns = rtt_ns - hold_ns;
        self.fabric
            .on_delay(now_ns, fabric_ns, target_ns, acked, &options, rtt_ns);
        let target_ns = options.endpoint_target_ns;
        self.endpoint
            .on_delay(now_ns, hold_ns, target_ns, acked, &options, rtt_ns);
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        let cwnd = self.cwnd();
        let packet_bytes = self.options.packet_bytes;
        let line_bps = self.options.line_rate_bps;
        if cwnd >= PACKET {
            return Limits {
                pace_bps: line_bps,
                window_bytes: mul_div(cwnd, packet_bytes, PACKET),
            };
        }
        let gap_ns = match self.is_blind {
            true => self.rtt_ns,
            false => mul_div(self.rtt_ns, PACKET, cwnd),
        };
        Limits {
            pace_bps: rate_of(packet_bytes, gap_ns).clamp(1, line_bps),
            window_bytes: packet_bytes,
        }
    }

    fn on_loss(&mut self, now_ns: u64, loss: Loss) {
        self.now_ns = self.now_ns.max(now_ns);
        match loss {
            Loss::Reported => {
                self.retransmits = 0;
                self.cut();
            }
            Loss::TimedOut => {
                self.is_blind = false;
                self.retransmits = self.retransmits.saturating_add(1);
                if self.retransmits >= self.options.retx_reset_threshold {
                    let min_cwnd = self.options.min_cwnd();
                    (self.fabric.cwnd, self.endpoint.cwnd) = (min_cwnd, min_cwnd);
                } else {
                    self.cut();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Newest;
    use proptest::prelude::*;

    const LINE: u64 = 50_000_000_000;

    fn options() -> SwiftOptions {
        SwiftOptions::new(LINE, 1_000, 2)
    }

    /// A sender with a given window, and the number of packets that have arrived.
    struct Case {
        swift: Swift,
        packets: u64,
        now_ns: u64,
    }

    impl Case {
        fn new(cwnd_millionths: u64) -> Self {
            let mut swift = Swift::new(options());
            swift.fabric.cwnd = mul_div(cwnd_millionths, PACKET, 1_000_000);
            Self {
                swift,
                packets: 0,
                now_ns: 1_000_000,
            }
        }

        /// One packet arrives after `rtt_ns`, of which the receiver held it for `hold_ns`.
        fn ack(&mut self, rtt_ns: u64, hold_ns: u64) -> u64 {
            self.packets += 1;
            self.swift.on_feedback(&Feedback {
                now_ns: self.now_ns,
                newest: Some(Newest {
                    sent_bytes: self.packets * 1_000,
                    departed_ns: Some(self.now_ns - rtt_ns),
                    hold_ns,
                }),
                received_bytes: self.packets * 1_000,
                received_packets: self.packets,
                ..Feedback::default()
            });
            self.swift.cwnd_millionths()
        }
    }

    fn near(value: u64, want: u64) -> bool {
        value.abs_diff(want) <= want / 10_000 + 2
    }

    #[test]
    fn the_target_has_base_hops_and_flow_scaling() {
        let options = options();
        let packets = |millionths| mul_div(millionths, PACKET, 1_000_000);
        // 20 us plus twice 3 us, and no flow scaling from fs_max_cwnd on.
        assert_eq!(options.target_ns(packets(100_000_000)), 26_000);
        assert_eq!(options.target_ns(packets(400_000_000)), 26_000);
        // All of fs_range at fs_min_cwnd or below.
        assert!(near(options.target_ns(packets(100_000)), 126_000));
        assert!(near(options.target_ns(packets(10_000)), 126_000));
        // alpha / sqrt(4) + beta, with alpha = fs_range / (sqrt(10) - 1/10) = 32,655.6 ns and beta
        // = -alpha / 10.
        assert!(near(options.target_ns(packets(4_000_000)), 39_062));
    }

    #[test]
    fn below_the_target_a_window_of_packets_adds_ai() {
        let mut case = Case::new(10_000_000);
        for _ in 0..10 {
            case.ack(10_000, 0);
        }
        // Slightly less, because the window grows in between.
        let cwnd = case.swift.cwnd_millionths();
        assert!((10_940_000..=11_000_000).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn below_one_packet_each_packet_adds_ai() {
        let mut case = Case::new(500_000);
        assert!(near(case.ack(10_000, 0), 1_500_000));
    }

    #[test]
    fn above_the_target_the_window_falls_by_the_excess_once_a_round_trip() {
        let mut case = Case::new(100_000_000);
        // 1 - 0.8 * (32.5 - 26) / 32.5.
        assert!(near(case.ack(32_500, 0), 84_000_000));
        case.now_ns += 32_499;
        assert!(near(case.ack(32_500, 0), 84_000_000));
        case.now_ns += 1;
        assert!(case.ack(32_500, 0) < 84_000_000);
    }

    #[test]
    fn no_delay_takes_more_than_max_mdf() {
        let mut case = Case::new(100_000_000);
        assert!(near(case.ack(900_000, 0), 50_000_000));
    }

    #[test]
    fn time_at_the_receiver_counts_for_its_own_window() {
        let mut case = Case::new(100_000_000);
        case.ack(60_000, 40_000);
        assert!(case.swift.fabric.cwnd >= 100 * PACKET);
        case.now_ns += 1_000_000;
        case.ack(400_000, 390_000);
        assert!(case.swift.fabric.cwnd >= 100 * PACKET);
        assert!(case.swift.endpoint.cwnd < case.swift.options.max_cwnd());
    }

    #[test]
    fn a_window_below_a_packet_is_a_pace() {
        let mut case = Case::new(250_000);
        case.swift.rtt_ns = 10_000;
        let limits = case.swift.limits();
        // One packet of 8000 bits each 40 us.
        assert_eq!(limits.window_bytes, 1_000);
        assert_eq!(limits.pace_bps, 200_000_000);
        case.swift.fabric.cwnd = 3 * PACKET;
        assert_eq!(case.swift.limits().window_bytes, 3_000);
        assert_eq!(case.swift.limits().pace_bps, LINE);
    }

    #[test]
    fn without_delays_one_packet_leaves_in_a_round_trip() {
        let mut case = Case::new(250_000);
        case.swift.rtt_ns = 10_000;
        case.packets += 1;
        case.swift.on_feedback(&Feedback {
            now_ns: case.now_ns,
            newest: Some(Newest::default()),
            received_packets: case.packets,
            ..Feedback::default()
        });
        assert_eq!(case.swift.limits().pace_bps, 800_000_000);
        assert_eq!(case.swift.limits().window_bytes, 1_000);
        // Nothing may arrive any more.
        case.swift.on_loss(case.now_ns, Loss::TimedOut);
        assert!(case.swift.limits().pace_bps < 800_000_000);
    }

    #[test]
    fn losses_cut_by_max_mdf_once_a_round_trip_and_timeouts_in_a_row_reset() {
        let mut case = Case::new(100_000_000);
        case.swift.on_loss(1_000_000, Loss::Reported);
        case.swift.on_loss(1_000_001, Loss::Reported);
        assert!(near(case.swift.cwnd_millionths(), 50_000_000));
        for _ in 0..4 {
            case.swift.on_loss(1_000_002, Loss::TimedOut);
        }
        assert!(near(case.swift.cwnd_millionths(), 50_000_000));
        case.swift.on_loss(1_000_003, Loss::TimedOut);
        assert!(case.swift.cwnd_millionths() <= 1_000);
    }

    proptest! {
        #[test]
        fn windows_keep_their_bounds_whatever_comes(
            calls in prop::collection::vec((0u8..4, any::<[u64; 5]>()), 1..60),
            numbers in any::<[u64; 8]>(),
        ) {
            let mut swift = Swift::new(SwiftOptions {
                line_rate_bps: numbers[0],
                packet_bytes: numbers[1],
                base_target_ns: numbers[2],
                fs_range_ns: numbers[3],
                ai_millionths: numbers[4],
                beta_millionths: numbers[5],
                max_mdf_millionths: numbers[6],
                min_cwnd_millionths: numbers[7],
                ..options()
            });
            for (call, [now_ns, a, b, c, d]) in calls {
                match call {
                    0 => swift.on_loss(now_ns, Loss::TimedOut),
                    1 => swift.on_loss(now_ns, Loss::Reported),
                    _ => swift.on_feedback(&Feedback {
                        now_ns,
                        newest: Some(Newest { sent_bytes: a, departed_ns: Some(b), hold_ns: c }),
                        received_bytes: d,
                        received_packets: a,
                        ..Feedback::default()
                    }),
                }
                let limits = swift.limits();
                prop_assert!((1..=numbers[0].max(1)).contains(&limits.pace_bps));
                prop_assert!(limits.window_bytes >= 1);
                let bounds = swift.options.min_cwnd()..=swift.options.max_cwnd();
                prop_assert!(bounds.contains(&swift.cwnd()));
            }
        }
    }
}
