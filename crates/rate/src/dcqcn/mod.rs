//! DCQCN's reaction point (SIGCOMM 2015, section 3.1).

mod options;

use crate::{Feedback, Limits, Loss, RateControl, Sent};

pub use options::DcqcnOptions;

/// The value 1 of alpha.
const ONE: u64 = 1 << 32;

/// A rate that congestion notification packets cut, and that recovers with time and bytes sent.
/// The window, if there is one, follows the rate ([`DcqcnOptions::window_bytes`]).
///
/// A notification lowers the rate by the share alpha / 2. Alpha is the recent share of periods with
/// a notification. Then the rate recovers in steps, one each time that the timer `T` or the byte
/// counter `B` ends. There are three stages. Fast recovery halves the distance to the target, which
/// is the rate before the cut, `F` times. Additive increase also raises the target by `R_AI` per
/// step. Hyper increase, when timer and counter have both ended more than `F` times, raises it by
/// `R_HAI`.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    options: DcqcnOptions,
    /// `R_C`.
    rate_bps: u64,
    /// `R_T`.
    target_bps: u64,
    /// The rate when the last packet left.
    departure_bps: u64,
    /// 0 to [`ONE`].
    alpha: u64,
    /// When the current period of alpha began.
    period_ns: u64,
    period_notified: bool,
    /// When the first notification came.
    first_ns: Option<u64>,
    /// When the rate was cut last; `None` before the first time.
    cut_ns: Option<u64>,
    /// When a notification that waits for the end of a cut interval cuts the rate.
    next_cut_ns: Option<u64>,
    /// When the timer `T` ends; `None` while the rate is the line rate.
    increase_at_ns: Option<u64>,
    sent_bytes: u64,
    /// How often the timer has ended since the last cut.
    timer_steps: u32,
    byte_steps: u32,
    now_ns: u64,
    marked_packets: u64,
    dropped_packets: u64,
    received_packets: u64,
    /// When a report's marks last counted as a notification.
    report_ns: Option<u64>,
}

impl Dcqcn {
    /// Starts at the line rate. Values out of range are replaced by the nearest valid value: see
    /// [`DcqcnOptions`].
    #[must_use]
    pub fn new(options: DcqcnOptions) -> Self {
        let options = options.bounded();
        Self {
            options,
            rate_bps: options.line_rate_bps,
            target_bps: options.line_rate_bps,
            departure_bps: options.line_rate_bps,
            alpha: ONE,
            period_ns: 0,
            period_notified: false,
            first_ns: None,
            cut_ns: None,
            next_cut_ns: None,
            increase_at_ns: None,
            sent_bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
            now_ns: 0,
            marked_packets: 0,
            dropped_packets: 0,
            received_packets: 0,
            report_ns: None,
        }
    }

    /// Ends the periods of alpha that are over.
    fn update_alpha(&mut self) {
        let period_ns = self.options.alpha_timer_ns;
        let mut periods = self.now_ns.saturating_sub(self.period_ns) / period_ns;
        self.period_ns = self.period_ns.saturating_add(periods * period_ns);
        while periods > 0 {
            let notified = core::mem::take(&mut self.period_notified);
            if self.alpha == 0 && !notified {
                break;
            }
            let lower = (self.alpha >> self.options.g_shift).max(1).min(self.alpha);
            self.alpha -= lower;
            if notified {
                self.raise_alpha();
            }
            periods -= 1;
        }
    }

    fn raise_alpha(&mut self) {
        self.alpha = (self.alpha + (ONE >> self.options.g_shift)).min(ONE);
    }

    fn cut(&mut self) {
        // Without an increase since the last cut, the rate before that cut is still the target.
        if self.options.clamp_target || self.timer_steps + self.byte_steps > 0 {
            self.target_bps = self.rate_bps;
        }
        let share = u128::from(self.rate_bps) * u128::from(self.alpha) / u128::from(2 * ONE);
        let lower = u64::try_from(share).unwrap_or(u64::MAX);
        self.rate_bps = (self.rate_bps - lower).max(self.options.min_rate_bps);
        if !self.options.alpha_rises_by_period {
            self.alpha -= self.alpha >> self.options.g_shift;
            self.raise_alpha();
            self.period_ns = self.now_ns;
        }
        self.cut_ns = Some(self.now_ns);
        self.next_cut_ns = None;
        (self.timer_steps, self.byte_steps, self.sent_bytes) = (0, 0, 0);
        self.increase_at_ns = Some(self.now_ns.saturating_add(self.options.increase_timer_ns));
    }

    /// A window for the line rate, in proportion to the rate. One byte allows one packet.
    fn scaled(&self, bytes: u64) -> u64 {
        let bytes = u128::from(bytes) * u128::from(self.rate_bps);
        let bytes = bytes / u128::from(self.options.line_rate_bps);
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    /// When a notification of this moment cuts the rate.
    fn cut_of_notification_ns(&self, first_ns: u64) -> u64 {
        let interval_ns = self.options.cut_interval_ns;
        if self.options.cuts_at_interval_ends {
            let interval_ns = interval_ns.max(1);
            let over = (self.now_ns - first_ns) / interval_ns;
            return first_ns.saturating_add((over + 1).saturating_mul(interval_ns));
        }
        self.cut_ns
            .map_or(0, |at_ns| at_ns.saturating_add(interval_ns))
    }

    fn increase(&mut self) {
        let (timer, bytes) = match self.options.byte_counter_bytes {
            Some(_) => (self.timer_steps, self.byte_steps),
            None => (self.timer_steps, self.timer_steps),
        };
        let steps = self.options.fast_recovery_steps;
        let more_bps = if timer.max(bytes) < steps {
            0
        } else if timer.min(bytes) > steps {
            self.options.hyper_increase_bps
        } else {
            self.options.additive_increase_bps
        };
        let line_bps = self.options.line_rate_bps;
        self.target_bps = self.target_bps.saturating_add(more_bps).min(line_bps);
        // Rounded up, so that the rate reaches the target.
        self.rate_bps += (self.target_bps - self.rate_bps).div_ceil(2);
    }

    /// Runs all timers that are due.
    fn run_timers(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.next_cut_ns.is_some_and(|at_ns| at_ns <= self.now_ns) {
            self.update_alpha();
            self.cut();
        }
        while let Some(at_ns) = self.increase_at_ns.filter(|at_ns| *at_ns <= self.now_ns) {
            self.increase();
            self.timer_steps = self.timer_steps.saturating_add(1);
            let below = self.rate_bps < self.options.line_rate_bps;
            let next_ns = at_ns.saturating_add(self.options.increase_timer_ns);
            self.increase_at_ns = below.then_some(next_ns).filter(|next_ns| *next_ns > at_ns);
        }
    }
}

impl RateControl for Dcqcn {
    fn on_sent(&mut self, sent: &Sent) {
        self.run_timers(sent.now_ns);
        self.departure_bps = self.rate_bps;
        let Some(counter) = self.options.byte_counter_bytes else {
            return;
        };
        self.sent_bytes = self.sent_bytes.saturating_add(sent.bytes);
        while self.sent_bytes >= counter && self.rate_bps < self.options.line_rate_bps {
            self.sent_bytes -= counter;
            self.increase();
            self.byte_steps = self.byte_steps.saturating_add(1);
        }
        self.sent_bytes %= counter;
    }

    /// All marks within [`DcqcnOptions::notification_interval_ns`] count as one notification. So
    /// the controller also works if the receiver sends reports instead of notifications. Packets
    /// for which the receiver had no room count as marks.
    fn on_feedback(&mut self, feedback: &Feedback) {
        self.run_timers(feedback.now_ns);
        if feedback.received_packets < self.received_packets {
            return;
        }
        self.received_packets = feedback.received_packets;
        let marked = feedback.marked_packets > self.marked_packets
            || feedback.dropped_packets > self.dropped_packets;
        self.marked_packets = self.marked_packets.max(feedback.marked_packets);
        self.dropped_packets = self.dropped_packets.max(feedback.dropped_packets);
        let interval_ns = self.options.notification_interval_ns;
        let due = self
            .report_ns
            .is_none_or(|at_ns| self.now_ns - at_ns >= interval_ns);
        if marked && due {
            self.report_ns = Some(self.now_ns);
            self.on_notification(feedback.now_ns);
        }
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        self.run_timers(now_ns);
        // The timers have nothing to do with reports.
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        self.next_cut_ns
            .into_iter()
            .chain(self.increase_at_ns)
            .min()
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: match self.options.paces_by_departures {
                true => self.departure_bps,
                false => self.rate_bps,
            },
            window_bytes: (self.options.window_bytes).map_or(u64::MAX, |bytes| self.scaled(bytes)),
        }
    }

    fn on_notification(&mut self, now_ns: u64) {
        self.run_timers(now_ns);
        let first = self.first_ns.is_none();
        let first_ns = *self.first_ns.get_or_insert(self.now_ns);
        if first {
            // The periods begin with the first notification.
            self.period_ns = self.now_ns;
        }
        self.update_alpha();
        let cut_ns = self.cut_of_notification_ns(first_ns);
        if cut_ns <= self.now_ns {
            self.cut();
        } else {
            self.next_cut_ns = Some(cut_ns);
        }
        self.period_notified |= self.options.alpha_rises_by_period && !first;
    }

    /// DCQCN does not react to losses.
    fn on_loss(&mut self, now_ns: u64, _loss: Loss) {
        self.run_timers(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: u64 = 40_000_000_000;

    fn after_notifications(options: DcqcnOptions, times_ns: &[u64]) -> Dcqcn {
        let mut dcqcn = Dcqcn::new(options);
        for at_ns in times_ns {
            dcqcn.on_notification(*at_ns);
        }
        dcqcn
    }

    fn sent(now_ns: u64, bytes: u64) -> Sent {
        Sent {
            now_ns,
            bytes,
            ..Sent::default()
        }
    }

    #[test]
    fn a_flow_starts_at_line_rate_and_the_first_cut_halves_it() {
        let mut dcqcn = Dcqcn::new(DcqcnOptions::paper(LINE));
        assert_eq!(dcqcn.limits().pace_bps, LINE);
        assert_eq!(dcqcn.next_timeout(), None);
        dcqcn.on_notification(1000);
        assert_eq!(dcqcn.limits().pace_bps, LINE / 2);
        assert_eq!(dcqcn.next_timeout(), Some(56_000));
    }

    /// Equation 1: the cut is alpha / 2 of the rate.
    #[test]
    fn a_period_without_notification_lowers_alpha_by_g() {
        let options = DcqcnOptions {
            increase_timer_ns: u64::MAX,
            ..DcqcnOptions::paper(LINE)
        };
        // Two periods of 55 us without notification: alpha is (255/256)^2.
        let dcqcn = after_notifications(options, &[0, 110_000]);
        let alpha = 255.0_f64 * 255.0 / 65_536.0;
        let want = 0.5 * LINE as f64 * (1.0 - alpha / 2.0);
        let pace = dcqcn.limits().pace_bps as f64;
        assert!((pace - want).abs() < 10.0, "{pace} {want}");
    }

    #[test]
    fn alpha_rises_by_g_with_each_notification() {
        let options = DcqcnOptions {
            increase_timer_ns: u64::MAX,
            ..DcqcnOptions::paper(LINE)
        };
        let mut dcqcn = Dcqcn::new(options);
        dcqcn.alpha = ONE / 2;
        dcqcn.on_notification(0);
        // (1 - g) / 2 + g.
        let want = ONE / 2 - ONE / 512 + ONE / 256;
        assert_eq!(dcqcn.alpha, want);
    }

    #[test]
    fn fast_recovery_halves_the_distance_f_times() {
        let mut dcqcn = after_notifications(DcqcnOptions::paper(LINE), &[0]);
        let mut distance = LINE / 2;
        for step in 1..=5 {
            dcqcn.on_timeout(step * 55_000);
            distance /= 2;
            assert_eq!(dcqcn.limits().pace_bps, LINE - distance);
        }
    }

    #[test]
    fn the_byte_counter_gives_steps_as_the_timer_does() {
        let mut dcqcn = after_notifications(DcqcnOptions::paper(LINE), &[0]);
        dcqcn.on_sent(&sent(10, 9_999_999));
        assert_eq!(dcqcn.limits().pace_bps, LINE / 2);
        dcqcn.on_sent(&sent(20, 1));
        assert_eq!(dcqcn.limits().pace_bps, LINE / 4 * 3);
    }

    /// Two cuts in a row make the target half the line rate. After five steps of fast recovery, one
    /// of the two counters beyond `F` adds `R_AI`, and both beyond it `R_HAI`.
    #[test]
    fn additive_increase_follows_and_hyper_increase_needs_both_counters() {
        let mut dcqcn = after_notifications(DcqcnOptions::paper(LINE), &[0, 1]);
        for step in 1..=5 {
            dcqcn.on_timeout(1 + step * 55_000);
        }
        let target = dcqcn.target_bps;
        assert_eq!(target, LINE / 2);
        dcqcn.on_timeout(1 + 6 * 55_000);
        dcqcn.on_timeout(1 + 7 * 55_000);
        assert_eq!(dcqcn.target_bps, target + 80_000_000);
        // Six steps of the counter are additive, because the timer's count is at most F.
        dcqcn.on_sent(&sent(8 * 55_000, 60_000_000));
        assert_eq!(dcqcn.target_bps, target + 8 * 40_000_000);
        dcqcn.on_sent(&sent(8 * 55_000, 10_000_000));
        assert_eq!(dcqcn.target_bps, target + 8 * 40_000_000 + 400_000_000);
    }

    #[test]
    fn a_notification_ends_hyper_increase_and_restarts_the_timer() {
        let mut dcqcn = after_notifications(DcqcnOptions::paper(LINE), &[0, 50_000]);
        assert_eq!(dcqcn.next_timeout(), Some(105_000));
        assert_eq!((dcqcn.timer_steps, dcqcn.byte_steps), (0, 0));
        dcqcn.on_notification(105_000);
        assert_eq!(dcqcn.timer_steps, 0);
    }

    #[test]
    fn cuts_keep_their_interval_and_the_target_outlives_two_of_them() {
        let mut dcqcn = after_notifications(DcqcnOptions::ns3(LINE), &[0, 1_000, 2_000]);
        assert_eq!(dcqcn.rate_bps, LINE / 2);
        assert_eq!(dcqcn.next_timeout(), Some(4_000));
        dcqcn.on_timeout(4_000);
        assert!(dcqcn.rate_bps < LINE * 26 / 100);
        assert_eq!(dcqcn.target_bps, LINE);
    }

    /// Intervals of 4 us from 1 us on.
    #[test]
    fn cuts_at_interval_ends_wait_even_for_the_first_one() {
        let options = DcqcnOptions {
            cuts_at_interval_ends: true,
            ..DcqcnOptions::ns3(LINE)
        };
        let mut dcqcn = after_notifications(options, &[1_000, 3_000]);
        assert_eq!((dcqcn.rate_bps, dcqcn.next_timeout()), (LINE, Some(5_000)));
        dcqcn.on_timeout(5_000);
        let once = dcqcn.rate_bps;
        assert!((LINE * 50 / 100..LINE * 51 / 100).contains(&once), "{once}");
        // The interval from 5 to 9 us has no notification.
        dcqcn.on_notification(10_000);
        assert_eq!((dcqcn.rate_bps, dcqcn.next_timeout()), (once, Some(13_000)));
        dcqcn.on_timeout(13_000);
        assert!(dcqcn.rate_bps < LINE * 27 / 100);
    }

    #[test]
    fn the_rate_at_a_departure_is_the_pace_until_the_next_one() {
        let options = DcqcnOptions {
            paces_by_departures: true,
            ..DcqcnOptions::ns3(LINE)
        };
        let mut dcqcn = after_notifications(options, &[0]);
        assert_eq!(dcqcn.limits().pace_bps, LINE);
        dcqcn.on_sent(&sent(5_000, 1_000));
        assert_eq!(dcqcn.limits().pace_bps, dcqcn.rate_bps);
        assert!(dcqcn.rate_bps < LINE);
    }

    #[test]
    fn the_window_follows_the_rate_and_lets_one_packet_pass() {
        let options = DcqcnOptions {
            window_bytes: Some(50_000),
            ..DcqcnOptions::ns3(LINE)
        };
        let mut dcqcn = Dcqcn::new(options);
        assert_eq!(dcqcn.limits().window_bytes, 50_000);
        dcqcn.on_notification(0);
        assert_eq!(dcqcn.limits().window_bytes, 25_000);
        let tiny = DcqcnOptions {
            window_bytes: Some(1),
            ..options
        };
        assert_eq!(after_notifications(tiny, &[0]).limits().window_bytes, 1);
    }

    #[test]
    fn marks_in_reports_are_one_notification_in_n() {
        let mut dcqcn = Dcqcn::new(DcqcnOptions::paper(LINE));
        let report = |now_ns, marked| Feedback {
            now_ns,
            received_packets: marked,
            marked_packets: marked,
            ..Feedback::default()
        };
        for at in 0..10 {
            dcqcn.on_feedback(&report(at * 1_000, at + 1));
        }
        assert_eq!(dcqcn.limits().pace_bps, LINE / 2);
        // Without a new mark, there is no notification.
        dcqcn.on_feedback(&report(52_000, 10));
        assert_eq!(dcqcn.limits().pace_bps, LINE / 2);
        dcqcn.on_feedback(&report(53_000, 11));
        assert!(dcqcn.limits().pace_bps < LINE * 26 / 100);
    }

    #[test]
    fn a_quiet_flow_returns_to_line_rate_and_its_timer_ends() {
        let mut dcqcn = after_notifications(DcqcnOptions::ns3(LINE), &[0, 10_000, 20_000]);
        let mut steps = 0;
        while let Some(at_ns) = dcqcn.next_timeout() {
            dcqcn.on_timeout(at_ns);
            steps += 1;
        }
        assert_eq!(dcqcn.rate_bps, LINE);
        assert!(steps < 3000, "{steps}");
    }

    proptest! {
        #[test]
        fn the_rate_keeps_its_bounds_whatever_comes(
            calls in prop::collection::vec((0u8..5, any::<u64>(), any::<u64>()), 1..60),
            line_rate_bps in any::<u64>(),
            min_rate_bps in any::<u64>(),
            g_shift in any::<u32>(),
            timers in prop::collection::vec(1u64..100_000_000_000, 4),
            ns3 in any::<bool>(),
        ) {
            let base = if ns3 { DcqcnOptions::ns3 } else { DcqcnOptions::paper };
            let options = DcqcnOptions {
                min_rate_bps,
                g_shift,
                alpha_timer_ns: timers[0],
                increase_timer_ns: timers[1].max(10_000_000_000),
                cut_interval_ns: timers[2],
                byte_counter_bytes: (!ns3).then_some(timers[3].max(1_000_000_000)),
                ..base(line_rate_bps)
            };
            let least = min_rate_bps.clamp(1, line_rate_bps.max(1));
            let mut dcqcn = Dcqcn::new(options);
            for (call, now_ns, value) in calls {
                // A time span in which the loops over missed timers stay short.
                let now_ns = now_ns % 1_000_000_000_000;
                match call {
                    0 => dcqcn.on_notification(now_ns),
                    1 => _ = dcqcn.on_timeout(now_ns),
                    2 => dcqcn.on_sent(&sent(now_ns, value % 1_000_000_000_000)),
                    3 => dcqcn.on_loss(now_ns, Loss::TimedOut),
                    _ => dcqcn.on_feedback(&Feedback {
                        now_ns,
                        received_packets: value,
                        marked_packets: value / 2,
                        ..Feedback::default()
                    }),
                }
                let pace_bps = dcqcn.limits().pace_bps;
                prop_assert!((least..=line_rate_bps.max(1)).contains(&pace_bps));
                prop_assert!(dcqcn.alpha <= ONE);
            }
        }
    }
}
