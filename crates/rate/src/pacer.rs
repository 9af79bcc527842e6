//! Paces a sender in batches: packets that leave together cost one system call, and a queue sees them as one burst.

use crate::TokenBucket;
use crate::math::bytes_in;

/// Most bytes and packets of a batch: what UDP segmentation offload sends with one system call.
const MOST_BYTES: u64 = 65_507;
const MOST_PACKETS: u64 = 64;

/// Part of the path that a batch may fill: queues that hold a fraction of the path must hold batches.
const PATH_SHARE: u64 = 16;

/// What bounds the batches of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Bytes of a full packet on the wire.
    pub packet_bytes: u64,
    /// Most bytes that leave at once, also after a sleep that ended late.
    pub burst_bytes: u64,
    /// The longest time of a batch at the pace, in nanoseconds.
    pub longest_ns: u64,
    /// How late a sleep usually ends, in nanoseconds. Batches last at least this long, because shorter sleeps
    /// cost a wake-up without a better spacing, unless one system call sends less.
    pub late_ns: u64,
    /// The longest time, in nanoseconds, that a sender makes up for at once after a sleep that ended late.
    pub make_up_ns: u64,
    /// The longest time, in nanoseconds, that a sender at its highest pace makes up for later, beyond what it makes up
    /// for at once. Meanwhile it sends at twice its pace.
    pub owed_ns: u64,
}

impl BatchLimits {
    /// Bytes that leave together at a pace of `pace_bps` bits a second, on a path whose shortest round trip is
    /// `rtt_ns`, if that is measured: what the pace carries in [`BatchLimits::longest_ns`], but at most a sixteenth of
    /// the path; at least what it carries while a sleep ends late, and one packet; and no more than one system call
    /// sends.
    pub fn batch_bytes(&self, pace_bps: u64, rtt_ns: Option<u64>) -> u64 {
        let batch_ns = self.within_path(self.longest_ns, rtt_ns);
        let most_bytes = MOST_BYTES.min(MOST_PACKETS.saturating_mul(self.packet_bytes));
        let most_bytes = most_bytes.min(self.burst_bytes).max(self.packet_bytes);
        bytes_in(pace_bps, batch_ns).clamp(self.packet_bytes, most_bytes)
    }

    /// The longest time that a sender makes up for at once on a path whose shortest round trip is `rtt_ns`.
    fn made_up_ns(&self, rtt_ns: Option<u64>) -> u64 {
        self.within_path(self.make_up_ns, rtt_ns)
    }

    /// At most the part of the path that a queue must hold, but at least the usual lateness. A path that is shorter
    /// than the lateness lies within a machine or a rack: its queues hold more than the path. With batches of twice this
    /// length, several flows fill a queue of 100 kB for good.
    fn within_path(&self, most_ns: u64, rtt_ns: Option<u64>) -> u64 {
        let path_ns = match rtt_ns {
            None => u64::MAX,
            Some(ns) if ns < self.late_ns => self.longest_ns / 4,
            Some(ns) => ns / PATH_SHARE,
        };
        most_ns.min(path_ns).max(self.late_ns)
    }
}

/// Decides when the next batch of a sender leaves.
///
/// A batch leaves when the pace has earned it, and not packet by packet before. A sender that wakes up late sends
/// what the pace has earned in the meantime, up to [`BatchLimits::make_up_ns`], and at its highest pace what is left of
/// [`BatchLimits::owed_ns`] at twice the pace. A sender that had nothing to send, or whose window was full,
/// earns one batch at most.
///
/// At its highest pace, a sender sends whole batches of full packets, and keeps what else it has earned for the next
/// batch: a few packets more would cost a system call here, and a wake-up and a report at the receiver.
#[derive(Clone, Debug)]
pub struct Pacer {
    limits: BatchLimits,
    /// The pace, with all that is made up for.
    bucket: TokenBucket,
    /// The highest pace, with what is made up for at once.
    peak: TokenBucket,
    batch_bytes: u64,
    rtt_ns: Option<u64>,
    is_highest: bool,
    /// Whether a batch is leaving.
    is_open: bool,
    /// What is left of the batches that are leaving.
    left_bytes: u64,
    /// Whether something other than the pace has stopped the sender.
    is_idle: bool,
}

impl Pacer {
    /// Paces at `pace_bps` bits a second on the wire (0 counts as 1), first with one batch.
    pub fn new(limits: BatchLimits, pace_bps: u64) -> Self {
        let mut pacer = Self {
            limits,
            bucket: TokenBucket::new(pace_bps, 1),
            peak: TokenBucket::new(peak_bps(pace_bps), 1),
            batch_bytes: 0,
            rtt_ns: None,
            is_highest: false,
            is_open: false,
            left_bytes: 0,
            is_idle: true,
        };
        pacer.size_batches(0);
        // The first batch is there from the start.
        pacer.bucket = TokenBucket::new(pace_bps, pacer.batch_bytes);
        pacer.peak = TokenBucket::new(peak_bps(pace_bps), pacer.batch_bytes);
        pacer.size_batches(0);
        pacer
    }

    /// Full packets may have `packet_bytes` on the wire. The largest number counts.
    pub fn carry(&mut self, packet_bytes: u64) {
        if packet_bytes > self.limits.packet_bytes {
            self.limits.packet_bytes = packet_bytes;
            self.size_batches(0);
        }
    }

    /// The pace in bits a second.
    pub fn pace_bps(&self) -> u64 {
        self.bucket.pace_bps()
    }

    /// Changes the pace from `now_ns` on (0 counts as 1). `rtt_ns` is the shortest round trip, if it is measured.
    ///
    /// `is_highest`: whether the pace is what the sender may have at most, so that the path carries more as far as it is
    /// known. Only then time that was lost beyond [`BatchLimits::make_up_ns`] is made up for. Elsewhere the pace grows
    /// until it meets a queue, and a higher one would only make that queue overflow.
    pub fn set_pace(&mut self, now_ns: u64, pace_bps: u64, rtt_ns: Option<u64>, is_highest: bool) {
        let is_same = rtt_ns == self.rtt_ns && is_highest == self.is_highest;
        if pace_bps.max(1) == self.bucket.pace_bps() && is_same {
            return;
        }
        (self.rtt_ns, self.is_highest) = (rtt_ns, is_highest);
        self.bucket.set_pace(now_ns, pace_bps);
        self.peak.set_pace(now_ns, peak_bps(pace_bps));
        self.size_batches(now_ns);
    }

    /// Sets the batch, and the bursts of the buckets.
    fn size_batches(&mut self, now_ns: u64) {
        let pace_bps = self.bucket.pace_bps();
        self.batch_bytes = self.limits.batch_bytes(pace_bps, self.rtt_ns);
        let packet_bytes = self.limits.packet_bytes.max(1);
        // Where a batch is about one full packet, several small ones may leave together.
        if self.is_highest && self.batch_bytes >= 2 * packet_bytes {
            self.batch_bytes -= self.batch_bytes % packet_bytes;
        }
        let made_up_ns = self.limits.made_up_ns(self.rtt_ns);
        let most_bytes = self.limits.burst_bytes.max(self.batch_bytes);
        let made_up_bytes = bytes_in(pace_bps, made_up_ns);
        let burst_bytes = self.batch_bytes.saturating_add(made_up_bytes);
        let burst_bytes = burst_bytes.min(most_bytes);
        let owed_bytes = match self.is_highest {
            true => bytes_in(pace_bps, self.limits.owed_ns),
            false => 0,
        };
        self.peak.set_burst(now_ns, burst_bytes);
        let all_bytes = burst_bytes.saturating_add(owed_bytes);
        self.bucket.set_burst(now_ns, all_bytes);
    }

    /// Bytes that may leave now, headers included: 0 until a batch is earned. Bytes beyond the allowance, up to a
    /// packet, become a debt.
    pub fn allowance(&mut self, now_ns: u64) -> u64 {
        if core::mem::take(&mut self.is_idle) {
            self.bucket.keep_at_most(now_ns, self.batch_bytes);
            self.peak.keep_at_most(now_ns, self.batch_bytes);
            // The pace did not hold back what has been earned.
            self.left_bytes = u64::MAX;
        }
        let earned_bytes = self.earned_bytes(now_ns);
        let packet_bytes = self.limits.packet_bytes;
        if earned_bytes < self.needed_bytes() {
            self.is_open = false;
        } else if !self.is_open {
            self.is_open = true;
            let with_debt_bytes = earned_bytes.saturating_add(packet_bytes);
            self.left_bytes = match self.is_highest {
                true => with_debt_bytes - with_debt_bytes % self.batch_bytes.max(1),
                false => u64::MAX,
            };
        }
        match self.is_open {
            // The last packet leaves as a debt.
            true => earned_bytes.min(
                self.left_bytes
                    .saturating_sub(packet_bytes)
                    .saturating_add(1),
            ),
            false => 0,
        }
    }

    /// Records that bytes left, headers included.
    pub fn consume(&mut self, now_ns: u64, wire_bytes: u64) {
        self.bucket.consume(now_ns, wire_bytes);
        self.peak.consume(now_ns, wire_bytes);
        self.left_bytes = self.left_bytes.saturating_sub(wire_bytes);
        let is_left = self.left_bytes >= self.limits.packet_bytes;
        self.is_open &= is_left && self.earned_bytes(now_ns) > 0;
    }

    /// What the pace and the highest pace allow.
    fn earned_bytes(&self, now_ns: u64) -> u64 {
        let bytes = self.bucket.allowance(now_ns);
        bytes.min(self.peak.allowance(now_ns))
    }

    /// Records that the sender has nothing to send, or no window: what it earns from now on is not made up for.
    pub fn pause(&mut self) {
        self.is_idle = true;
    }

    /// When bytes may leave; `now_ns` if they may leave now.
    pub fn next_ns(&self, now_ns: u64) -> u64 {
        let bytes = self.needed_bytes();
        let peak_ns = self.peak.next_bytes_ns(now_ns, bytes);
        self.bucket.next_bytes_ns(now_ns, bytes).max(peak_ns)
    }

    /// The allowance from which on bytes may leave. The last packet of a batch leaves as a debt.
    fn needed_bytes(&self) -> u64 {
        if self.is_open {
            return 1;
        }
        let needed_bytes = self.batch_bytes.saturating_sub(self.limits.packet_bytes);
        needed_bytes.max(1)
    }
}

/// The pace of a sender that makes up for lost time.
fn peak_bps(pace_bps: u64) -> u64 {
    pace_bps.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const GBIT: u64 = 1_000_000_000;
    const LIMITS: BatchLimits = BatchLimits {
        packet_bytes: 1_500,
        burst_bytes: 262_144,
        longest_ns: MS,
        late_ns: 100 * US,
        make_up_ns: 250 * US,
        owed_ns: 4 * MS,
    };

    /// The rate that a sender reaches at `pace_bps` if each of its sleeps ends `late_ns` late. `rtt_ns` is the round
    /// trip of the path, if it is measured.
    fn reached_bps(pace_bps: u64, rtt_ns: Option<u64>, late_ns: u64) -> u64 {
        let mut pacer = Pacer::new(LIMITS, pace_bps);
        pacer.set_pace(0, pace_bps, rtt_ns, false);
        let (mut now_ns, mut bytes) = (0, 0);
        while now_ns < 1_000 * MS {
            while pacer.allowance(now_ns) > 0 {
                pacer.consume(now_ns, LIMITS.packet_bytes);
                bytes += LIMITS.packet_bytes;
            }
            now_ns = pacer.next_ns(now_ns) + late_ns;
        }
        bytes * 8
    }

    #[test]
    fn late_sleeps_do_not_starve_a_pace() {
        for (pace_bps, rtt_ns) in [
            (GBIT / 5, Some(10 * US)),
            (GBIT / 2, Some(MS)),
            (GBIT, Some(2 * MS)),
            (GBIT, Some(40 * MS)),
            // A fixed rate has no round trip, and a pace that never changes.
            (2 * GBIT, None),
        ] {
            for late_ns in [0, 77 * US] {
                let reached_bps = reached_bps(pace_bps, rtt_ns, late_ns);
                assert!(
                    reached_bps.abs_diff(pace_bps) < pace_bps / 100,
                    "{pace_bps} {rtt_ns:?} {late_ns} {reached_bps}"
                );
            }
        }
    }

    /// The rate of a sender on a path of 1 ms whose sleeps end 50 us late, and each 50th one 3 ms late, and the most
    /// bytes that leave at once.
    fn busy_bps(is_highest: bool) -> (u64, u64) {
        let pace_bps = GBIT / 5;
        let mut pacer = Pacer::new(LIMITS, pace_bps);
        pacer.set_pace(0, pace_bps, Some(MS), is_highest);
        let (mut now_ns, mut bytes, mut most_bytes) = (0, 0, 0);
        for sleep in 1u64.. {
            let before_bytes = bytes;
            while pacer.allowance(now_ns) > 0 {
                pacer.consume(now_ns, LIMITS.packet_bytes);
                bytes += LIMITS.packet_bytes;
            }
            most_bytes = most_bytes.max(bytes - before_bytes);
            let late_ns = if sleep.is_multiple_of(50) {
                3 * MS
            } else {
                50 * US
            };
            now_ns = pacer.next_ns(now_ns) + late_ns;
            if now_ns > 1_000 * MS {
                break;
            }
        }
        (bytes * 8, most_bytes)
    }

    #[test]
    fn a_sender_at_its_highest_pace_makes_up_for_long_sleeps() {
        let (reached_bps, most_bytes) = busy_bps(true);
        assert!(reached_bps > GBIT / 5 / 100 * 98, "{reached_bps}");
        assert!(reached_bps <= GBIT / 5 / 100 * 101, "{reached_bps}");
        // 3 ms are 75 kB.
        assert!(most_bytes < 8_000, "{most_bytes}");
        let (reached_bps, _) = busy_bps(false);
        assert!(reached_bps < GBIT / 5 / 10 * 8, "{reached_bps}");
    }

    #[test]
    fn a_batch_is_a_small_part_of_the_path() {
        let batch = |rtt_ns| LIMITS.batch_bytes(GBIT, rtt_ns);
        assert_eq!(batch(Some(8 * MS)), 62_500);
        assert_eq!(batch(Some(4 * MS)), 31_250);
        assert_eq!(batch(Some(MS)), 12_500, "the lateness of sleeps");
        assert_eq!(batch(Some(10 * US)), 31_250, "within a rack");
        assert_eq!(batch(None), 65_507, "one system call");
        assert_eq!(LIMITS.batch_bytes(1_000, None), 1_500);
    }

    /// Sends full packets as long as they may leave. Returns their bytes.
    fn send(pacer: &mut Pacer, now_ns: u64) -> u64 {
        let mut bytes = 0;
        while pacer.allowance(now_ns) > 0 {
            pacer.consume(now_ns, LIMITS.packet_bytes);
            bytes += LIMITS.packet_bytes;
        }
        bytes
    }

    #[test]
    fn a_batch_leaves_when_it_is_earned_and_as_a_whole() {
        let mut pacer = Pacer::new(LIMITS, 1);
        pacer.set_pace(0, GBIT, Some(4 * MS), false);
        send(&mut pacer, 0);
        let next_ns = pacer.next_ns(0);
        assert_eq!(pacer.allowance(next_ns - 1), 0);
        let earned_bytes = pacer.allowance(next_ns);
        assert!((29_000..31_250).contains(&earned_bytes), "{earned_bytes}");
        pacer.consume(next_ns, 1_500);
        assert!(
            pacer.allowance(next_ns) > 0,
            "the rest of it may leave at once"
        );
    }

    #[test]
    fn batches_at_the_highest_pace_are_whole() {
        let mut pacer = Pacer::new(LIMITS, 1);
        pacer.set_pace(0, GBIT, Some(4 * MS), true);
        send(&mut pacer, 0);
        let next_ns = pacer.next_ns(0);
        let late_ns = next_ns + 100 * US;
        assert_eq!(send(&mut pacer, late_ns), 30_000);
        // The next batch leaves when it would have left without the lateness.
        let after_ns = pacer.next_ns(late_ns);
        assert!(
            after_ns.abs_diff(next_ns + 240 * US) < 15 * US,
            "{after_ns}"
        );
        let late_ns = after_ns + 300 * US;
        assert_eq!(send(&mut pacer, late_ns), 2 * 30_000, "two are earned");
    }

    /// The first queue pair of a connection has smaller packets than the later ones.
    #[test]
    fn batches_are_whole_for_the_largest_packets() {
        let mut pacer = Pacer::new(LIMITS, 1);
        pacer.carry(4_160);
        pacer.set_pace(0, GBIT, None, true);
        assert_eq!(pacer.batch_bytes, 15 * 4_160);
    }

    #[test]
    fn a_sender_that_had_nothing_to_send_has_one_batch() {
        let mut pacer = Pacer::new(LIMITS, 1);
        pacer.set_pace(0, GBIT, Some(4 * MS), false);
        pacer.pause();
        assert_eq!(pacer.allowance(1_000 * MS), 31_250);
        pacer.consume(1_000 * MS, 31_250);
        assert_eq!(
            pacer.allowance(1_001 * MS),
            31_250 + 31_250,
            "late for the pace"
        );
    }
}
