//! DCQCN's reaction point in 32 bytes.

use farwrite_rate::DcqcnOptions;

/// The value 1 of alpha.
const ONE: u32 = 1 << 31;
/// Bits of [`DcqcnContext::counters`]: bytes since the last step of the byte counter, then the two counters of
/// steps, then two flags.
const BYTES_MASK: u32 = (1 << 24) - 1;
const TIMER_SHIFT: u32 = 24;
const STEPS_SHIFT: u32 = 27;
/// More steps than this make no difference, because `F` is below it.
const MOST_STEPS: u32 = 7;
/// The timer `T` runs.
const RUNS: u32 = 1 << 30;
/// A notification has come, so the periods of alpha run.
const NOTIFIED: u32 = 1 << 31;

/// State of DCQCN: the rules of [`farwrite_rate::Dcqcn`] with [`DcqcnOptions::paper`], and the time at which the
/// pace allows the next packet. Rates are in kbit/s, and timers in microseconds that wrap after 71 minutes: a queue
/// pair that was idle for so long may have an alpha that is too high.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DcqcnContext {
    rate_kbps: u32,
    target_kbps: u32,
    /// 0 to [`ONE`].
    alpha: u32,
    counters: u32,
    /// When the current period of alpha began, in microseconds.
    period_us: u32,
    /// When the timer `T` ends, in microseconds.
    increase_us: u32,
    /// Nanoseconds, as two words: eight bytes in one would move the fields of the whole context apart.
    next_send_ns: [u32; 2],
}

impl DcqcnContext {
    /// Starts at the line rate, in bits per second. A rate above 2^32 kbit/s counts as 2^32 kbit/s.
    pub(super) fn new(line_rate_bps: u64) -> Self {
        let line_kbps = kbps(line_rate_bps);
        Self {
            rate_kbps: line_kbps,
            target_kbps: line_kbps,
            alpha: ONE,
            counters: 0,
            period_us: 0,
            increase_us: 0,
            next_send_ns: [0; 2],
        }
    }

    /// The fields in the order of their memory.
    pub(super) fn words(&self) -> [u32; 8] {
        let [high, low] = self.next_send_ns;
        [
            self.rate_kbps,
            self.target_kbps,
            self.alpha,
            self.counters,
            self.period_us,
            self.increase_us,
            high,
            low,
        ]
    }

    /// The present rate, in bits per second.
    pub(super) fn rate_bps(&self) -> u64 {
        u64::from(self.rate_kbps) * 1_000
    }

    /// Time at which the pace allows the next packet, in nanoseconds.
    pub(super) fn next_send_ns(&self) -> u64 {
        let [high, low] = self.next_send_ns.map(u64::from);
        high << 32 | low
    }

    /// Records that a packet of `bytes` leaves.
    pub(super) fn on_sent(&mut self, now_ns: u64, bytes: u32, options: &DcqcnOptions) {
        self.run_timer(now_ns, options);
        let busy_ns = (u64::from(bytes) * 8_000_000).div_ceil(u64::from(self.rate_kbps));
        let next_ns = self.next_send_ns().max(now_ns).saturating_add(busy_ns);
        self.next_send_ns = words(next_ns);
        let Some(limit) = byte_counter(options) else {
            return;
        };
        let mut sent = (self.counters & BYTES_MASK).saturating_add(bytes);
        while sent >= limit && self.rate_kbps < kbps(options.line_rate_bps) {
            sent -= limit;
            self.increase(options);
            self.count_step(STEPS_SHIFT);
        }
        self.counters = self.counters & !BYTES_MASK | (sent % limit);
    }

    /// A congestion notification cuts the rate.
    pub(super) fn on_notification(&mut self, now_ns: u64, options: &DcqcnOptions) {
        self.run_timer(now_ns, options);
        let now_us = micros(now_ns);
        if self.counters & NOTIFIED == 0 {
            // The periods begin with the first notification.
            self.period_us = now_us;
        }
        self.update_alpha(now_us, options);
        self.target_kbps = self.rate_kbps;
        let share = u64::from(self.rate_kbps) * u64::from(self.alpha) / (2 * u64::from(ONE));
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        // A line may be slower than the slowest rate.
        let least_bps = options.min_rate_bps.min(options.line_rate_bps);
        self.rate_kbps = (self.rate_kbps - share).max(kbps(least_bps));
        self.alpha -= self.alpha >> options.g_shift;
        self.alpha = (self.alpha + (ONE >> options.g_shift)).min(ONE);
        self.period_us = now_us;
        self.counters = RUNS | NOTIFIED;
        self.increase_us = now_us.wrapping_add(period(options.increase_timer_ns));
    }

    /// When [`run_timer`](Self::run_timer) has something to do; `None` for never.
    pub(super) fn next_timeout(&self, now_ns: u64) -> Option<u64> {
        (self.counters & RUNS != 0).then(|| {
            let wait_us = self.increase_us.wrapping_sub(micros(now_ns));
            let is_over = wait_us > u32::MAX / 2;
            let whole_ns = now_ns - now_ns % 1_000;
            if is_over {
                now_ns
            } else {
                whole_ns.saturating_add(u64::from(wait_us) * 1_000)
            }
        })
    }

    /// Takes the steps of the timer `T` that are due.
    pub(super) fn run_timer(&mut self, now_ns: u64, options: &DcqcnOptions) {
        let now_us = micros(now_ns);
        while self.counters & RUNS != 0 && now_us.wrapping_sub(self.increase_us) <= u32::MAX / 2 {
            self.increase(options);
            self.count_step(TIMER_SHIFT);
            if self.rate_kbps >= kbps(options.line_rate_bps) {
                self.counters &= !RUNS;
            }
            self.increase_us = self
                .increase_us
                .wrapping_add(period(options.increase_timer_ns));
        }
    }

    fn increase(&mut self, options: &DcqcnOptions) {
        let (timer, bytes) = (self.steps(TIMER_SHIFT), self.steps(STEPS_SHIFT));
        let fast = options.fast_recovery_steps;
        let more_bps = if timer.max(bytes) < fast {
            0
        } else if timer.min(bytes) > fast {
            options.hyper_increase_bps
        } else {
            options.additive_increase_bps
        };
        let target_kbps = self.target_kbps.saturating_add(kbps(more_bps));
        self.target_kbps = target_kbps.min(kbps(options.line_rate_bps));
        // Rounded up, so that the rate reaches the target.
        self.rate_kbps += (self.target_kbps - self.rate_kbps).div_ceil(2);
    }

    /// Ends the periods of alpha that are over.
    fn update_alpha(&mut self, now_us: u32, options: &DcqcnOptions) {
        let period_us = period(options.alpha_timer_ns);
        let periods = now_us.wrapping_sub(self.period_us) / period_us;
        self.period_us = self.period_us.wrapping_add(periods * period_us);
        for _ in 0..periods {
            if self.alpha == 0 {
                break;
            }
            self.alpha -= (self.alpha >> options.g_shift).max(1);
        }
    }

    fn steps(&self, shift: u32) -> u32 {
        self.counters >> shift & MOST_STEPS
    }

    fn count_step(&mut self, shift: u32) {
        if self.steps(shift) < MOST_STEPS {
            self.counters += 1 << shift;
        }
    }
}

/// Whole kilobits per second, at least 1 of a rate that is not 0.
fn kbps(bps: u64) -> u32 {
    u32::try_from(bps.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// The time in microseconds, without the bits above 32.
fn micros(now_ns: u64) -> u32 {
    words(now_ns / 1_000)[1]
}

/// The high and the low half.
fn words(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
    [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes)
}

/// A timer in microseconds.
fn period(timer_ns: u64) -> u32 {
    u32::try_from(timer_ns / 1_000).unwrap_or(u32::MAX).max(1)
}

/// The limit of the byte counter, which has 24 bits.
fn byte_counter(options: &DcqcnOptions) -> Option<u32> {
    let limit = options.byte_counter_bytes?;
    Some(
        u32::try_from(limit)
            .unwrap_or(u32::MAX)
            .clamp(1, BYTES_MASK),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_rate::{Dcqcn, RateControl, Sent};
    use proptest::prelude::*;

    const LINE: u64 = 25_000_000_000;

    proptest! {
        /// Times are whole microseconds, because the timers of the context are.
        #[test]
        fn the_rate_is_that_of_the_large_controller(
            calls in prop::collection::vec((0u64..2_000, prop::option::of(1u32..9_000_000)), 1..200),
        ) {
            let options = DcqcnOptions::paper(LINE);
            let mut large = Dcqcn::new(options);
            let mut small = DcqcnContext::new(LINE);
            let mut now_ns = 5_000;
            for (wait_us, bytes) in calls {
                now_ns += wait_us * 1_000;
                match bytes {
                    None => {
                        large.on_notification(now_ns);
                        small.on_notification(now_ns, &options);
                    }
                    Some(bytes) => {
                        let sent = Sent { now_ns, bytes: bytes.into(), ..Sent::default() };
                        large.on_sent(&sent);
                        small.on_sent(now_ns, bytes, &options);
                    }
                }
                let (want, have) = (large.limits().pace_bps as f64, small.rate_bps() as f64);
                prop_assert!((have / want - 1.0).abs() < 1e-3, "{have} for {want}");
            }
        }
    }

    #[test]
    fn timers_run_across_the_wrap_of_microseconds() {
        let options = DcqcnOptions::paper(LINE);
        let wrap_ns = (1u64 << 32) * 1_000;
        let mut context = DcqcnContext::new(LINE);
        context.on_notification(wrap_ns - 20_000, &options);
        assert_eq!(context.rate_bps(), LINE / 2);
        assert_eq!(
            context.next_timeout(wrap_ns - 10_500),
            Some(wrap_ns + 35_000)
        );
        context.run_timer(wrap_ns + 34_999, &options);
        assert_eq!(context.rate_bps(), LINE / 2);
        context.run_timer(wrap_ns + 35_000, &options);
        assert_eq!(context.rate_bps(), LINE / 4 * 3);
    }

    #[test]
    fn a_slow_line_keeps_its_rate() {
        let options = DcqcnOptions::paper(1_000_000);
        let mut context = DcqcnContext::new(1_000_000);
        for now_ns in (0..100).map(|round| round * 55_000) {
            context.on_notification(now_ns, &options);
            context.run_timer(now_ns + 55_000, &options);
            assert_eq!(context.rate_bps(), 1_000_000);
        }
    }

    #[test]
    fn the_timer_stops_at_the_line_rate() {
        let options = DcqcnOptions::paper(LINE);
        let mut context = DcqcnContext::new(LINE);
        context.on_notification(0, &options);
        let mut now_ns = 0;
        while let Some(at_ns) = context.next_timeout(now_ns) {
            assert!(at_ns > now_ns);
            now_ns = at_ns;
            context.run_timer(now_ns, &options);
        }
        assert_eq!(context.rate_bps(), LINE);
    }

    #[test]
    fn packets_are_as_far_apart_as_the_rate_says() {
        let options = DcqcnOptions::paper(LINE);
        let mut context = DcqcnContext::new(LINE);
        context.on_sent(1_000, 3_125, &options);
        assert_eq!(context.next_send_ns(), 2_000);
        // The second packet leaves before the pace allows it, and is charged too.
        context.on_sent(1_500, 3_125, &options);
        assert_eq!(context.next_send_ns(), 3_000);
    }
}
