//! Variation of the path's delay that no queue causes: of Wi-Fi, mobile networks and satellites.

use super::constants::{
    BURST_PACKETS, GROWTH_SHARE, MEMORY_NS, RISE_MULTIPLE, RISES_ENOUGH, RISES_KEPT, SHORT_ROUNDS,
};
use super::path::Sample;
use crate::math::mul_div;

/// What else than a variation of the path makes the delay rise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    /// [`AdaptiveOptions::jitter_ns`](super::AdaptiveOptions::jitter_ns).
    pub(super) jitter_ns: u64,
    /// Time of one packet on the path, in nanoseconds.
    pub(super) packet_ns: u64,
    /// Bytes in flight with which the flow itself causes no queue.
    pub(super) free_bytes: u64,
}

/// A rise of the delay that is too fast for a queue.
#[derive(Clone, Copy, Debug)]
struct Rise {
    ns: u64,
    /// The sample after the rise.
    top: Sample,
}

/// Recent rises of the delay that were too fast, and too short, for a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variation {
    previous: Option<Sample>,
    /// The latest rise that has not fallen.
    pending: Option<Rise>,
    /// The latest rises that have, at most one for each round trip.
    rises: [Option<Rise>; RISES_KEPT],
}

impl Variation {
    pub(super) fn note(&mut self, sample: Sample, rtt_ns: u64, noise: Noise) {
        let Some(previous) = self.previous.replace(sample) else {
            return;
        };
        self.end_rise(sample, rtt_ns, noise);
        let rise_ns = sample.rtt_ns.saturating_sub(previous.rtt_ns);
        let elapsed_ns = sample.departed_ns.saturating_sub(previous.departed_ns);
        let others_ns = (elapsed_ns / GROWTH_SHARE)
            .max(noise.jitter_ns)
            .saturating_add(BURST_PACKETS.saturating_mul(noise.packet_ns));
        if rise_ns > others_ns.saturating_add(own_ns(previous, sample, noise)) {
            self.pending = Some(Rise {
                ns: rise_ns,
                top: sample,
            });
        }
    }

    /// Ends the pending rise if the delay has fallen again, or if the delay has stayed long for too long.
    fn end_rise(&mut self, sample: Sample, rtt_ns: u64, noise: Noise) {
        let Some(rise) = self.pending else {
            return;
        };
        let short_ns = rtt_ns.saturating_mul(SHORT_ROUNDS);
        if sample.departed_ns > rise.top.departed_ns.saturating_add(short_ns) {
            self.pending = None;
            return;
        }
        let fall_ns = rise.top.rtt_ns.saturating_sub(sample.rtt_ns);
        if fall_ns >= (rise.ns / 2).saturating_add(own_ns(sample, rise.top, noise)) {
            self.pending = None;
            self.keep(rise, rtt_ns);
        }
    }

    fn keep(&mut self, rise: Rise, rtt_ns: u64) {
        if let Some(latest) = &mut self.rises[0]
            && rise.top.departed_ns < latest.top.departed_ns.saturating_add(rtt_ns)
        {
            latest.ns = latest.ns.max(rise.ns);
            return;
        }
        self.rises.rotate_right(1);
        self.rises[0] = Some(rise);
    }

    /// By how much the delay has risen too fast for a queue, in nanoseconds, at a packet that left at `since_ns` or
    /// later, if it has not fallen since. 0 if it has not.
    pub(super) fn pending_ns(&self, since_ns: u64) -> u64 {
        let recent = self.pending.filter(|rise| rise.top.departed_ns >= since_ns);
        recent.map_or(0, |rise| rise.ns)
    }

    /// By how much the delay of the path varies, in nanoseconds. 0 if it does not, as far as the
    /// samples show.
    pub(super) fn ns(&self, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(MEMORY_NS);
        let is_recent = |rise: &&Rise| rise.top.departed_ns >= since_ns;
        let recent = self.rises.iter().flatten().filter(is_recent);
        if recent.clone().count() < RISES_ENOUGH {
            return 0;
        }
        let longest_ns = recent.map(|rise| rise.ns).max();
        RISE_MULTIPLE.saturating_mul(longest_ns.unwrap_or(0))
    }
}

/// The part of the difference between two delays that the flow itself causes by what it has sent.
fn own_ns(shorter: Sample, longer: Sample, noise: Noise) -> u64 {
    let before_bytes = shorter.in_flight_bytes.max(noise.free_bytes);
    let added_bytes = longer.in_flight_bytes.saturating_sub(before_bytes);
    mul_div(longer.rtt_ns, added_bytes, longer.in_flight_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NOISE: Noise = Noise {
        jitter_ns: MS,
        packet_ns: MS / 4,
        free_bytes: 0,
    };

    /// The variation after samples of these round trips in milliseconds, 4 ms apart.
    fn after(rtts_ms: impl IntoIterator<Item = u64>) -> u64 {
        let mut variation = Variation::default();
        let mut departed_ns = 0;
        for rtt_ms in rtts_ms {
            departed_ns += 4 * MS;
            let sample = Sample {
                departed_ns,
                rtt_ns: rtt_ms * MS,
                in_flight_bytes: 100_000,
            };
            variation.note(sample, 30 * MS, NOISE);
        }
        variation.ns(departed_ns) / MS
    }

    /// Round trips that are longer for 40 ms in each 80 ms.
    fn slots(longer_ms: u64) -> impl Iterator<Item = u64> {
        (0..20).flat_map(move |slot| [30 + longer_ms * (slot % 2); 10])
    }

    #[test]
    fn delays_that_jump_are_a_variation() {
        assert_eq!(after(slots(5)), 10);
        assert_eq!(after(slots(1)), 0, "hosts cause as much");
    }

    #[test]
    fn a_queue_that_grows_and_drains_is_not() {
        // One millisecond in 4 ms is the rise that BBR causes when it probes.
        let ramp = (0..20).flat_map(|_| (30..40).chain((30..40).rev()));
        assert_eq!(after(ramp), 0);
    }

    #[test]
    fn few_flows_that_start_and_end_are_not() {
        assert_eq!(after(slots(9).take(90)), 0, "four rises that fell");
        assert_eq!(after(slots(9).take(110)), 18, "five");
    }

    #[test]
    fn a_queue_that_a_train_leaves_is_not() {
        let trains = (0..20).flat_map(|_| [30, 40].into_iter().chain([40; 20]));
        assert_eq!(after(trains), 0);
    }

    /// The variation after 20 trains, of which each doubles the bytes in flight from 10,000 and adds
    /// a third to the delay.
    fn after_trains(noise: Noise) -> u64 {
        let mut variation = Variation::default();
        for train in 0..20u64 {
            for (step, in_flight_bytes) in [(0, 10_000), (1, 20_000)] {
                let sample = Sample {
                    departed_ns: (train * 40 + step) * MS,
                    rtt_ns: (30 + 10 * step) * MS,
                    in_flight_bytes,
                };
                variation.note(sample, 30 * MS, noise);
            }
        }
        variation.ns(1_000 * MS) / MS
    }

    #[test]
    fn what_the_flow_has_sent_itself_is_not() {
        assert_eq!(after_trains(NOISE), 0);
    }

    #[test]
    fn what_fits_on_the_path_explains_no_rise() {
        // A host that waits for a processor sends in bursts, and fills its part of the path now and then.
        let sharing = |free_bytes| Noise {
            free_bytes,
            ..NOISE
        };
        assert_eq!(after_trains(sharing(20_000)), 20);
        assert_eq!(after_trains(sharing(15_000)), 0, "part of it fits");
    }

    #[test]
    fn it_ends_after_ten_seconds() {
        let mut variation = Variation::default();
        for slot in 0..11u64 {
            let sample = Sample {
                departed_ns: slot * 50 * MS,
                rtt_ns: (30 + 20 * (slot % 2)) * MS,
                in_flight_bytes: 100_000,
            };
            variation.note(sample, 30 * MS, NOISE);
        }
        assert_eq!(variation.ns(1_000 * MS), 40 * MS);
        assert_eq!(variation.ns(10_600 * MS), 0);
    }
}
