//! The measurements of a case.

use super::case::Case;

/// Length of a bin of the rates, in round trips.
const BIN_ROUNDS: f64 = 1.0;

/// Collects data while a case runs.
pub(crate) struct Measure {
    bin_ns: f64,
    warm_ns: f64,
    /// Delivered bytes of each flow, in bins of a round trip.
    bins: Vec<Vec<f64>>,
    queue_ns: Vec<f64>,
    most_queue_ns: f64,
}

/// The results of a case.
#[derive(Clone, Debug)]
pub(crate) struct CaseResult {
    /// Bytes delivered, divided by the bytes that the path could have carried, after the warm-up.
    pub(crate) utilisation: f64,
    /// Mean queueing delay divided by the round trip, after the warm-up.
    pub(crate) queue_mean: f64,
    pub(crate) queue_p99: f64,
    /// Longest queueing delay divided by the round trip, including the start.
    pub(crate) queue_most: f64,
    /// Share of the packets that the full queue dropped.
    pub(crate) dropped: f64,
    /// Jain's index over the flows' bytes after the warm-up.
    pub(crate) jain: f64,
    /// Share of the first flow in all bytes after the warm-up.
    pub(crate) first_share: f64,
    /// Number of round trips from the start, or from the step, until 90% of the path was used.
    pub(crate) rounds_to_90: Option<f64>,
    /// Highest pace of the first flow, in bits a second.
    pub(crate) most_pace_bps: u64,
    /// The longest time in nanoseconds for which its pace was more than twice what the path carries.
    pub(crate) excess_ns: u64,
    /// Its share of bytes that were sent again.
    pub(crate) repeated: f64,
    /// How long each message of the first flow took, in nanoseconds.
    pub(crate) message_times_ns: Vec<u64>,
}

impl Measure {
    pub(crate) fn new(case: &Case) -> Self {
        Self {
            bin_ns: BIN_ROUNDS * case.rtt_ns as f64,
            warm_ns: case.warm_rounds * case.rtt_ns as f64,
            bins: vec![vec![0.0; (case.rounds / BIN_ROUNDS).ceil() as usize]; case.flows.len()],
            queue_ns: Vec::new(),
            most_queue_ns: 0.0,
        }
    }

    pub(crate) fn delivered(&mut self, now_ns: u64, flow: usize, bytes: u64) {
        let bin = (now_ns as f64 / self.bin_ns) as usize;
        if let Some(sum) = self.bins[flow].get_mut(bin) {
            *sum += bytes as f64;
        }
    }

    pub(crate) fn queued(&mut self, now_ns: u64, queue_ns: f64) {
        self.most_queue_ns = self.most_queue_ns.max(queue_ns);
        if now_ns as f64 >= self.warm_ns {
            self.queue_ns.push(queue_ns);
        }
    }

    pub(crate) fn outcome(mut self, case: &Case, dropped: u64, offered: u64) -> CaseResult {
        let rtt_ns = case.rtt_ns as f64;
        let warm_bins = (case.warm_rounds / BIN_ROUNDS) as usize;
        let flows: Vec<f64> = self
            .bins
            .iter()
            .map(|bins| bins[warm_bins..].iter().sum())
            .collect();
        let total: f64 = flows.iter().sum();
        let squares: f64 = flows.iter().map(|bytes| bytes * bytes).sum();
        self.queue_ns.sort_by(f64::total_cmp);
        let samples = self.queue_ns.len().max(1);
        let p99 = self.queue_ns.get(samples * 99 / 100).copied();
        CaseResult {
            utilisation: total / self.capacity(case, warm_bins),
            queue_mean: self.queue_ns.iter().sum::<f64>() / samples as f64 / rtt_ns,
            queue_p99: p99.unwrap_or(0.0) / rtt_ns,
            queue_most: self.most_queue_ns / rtt_ns,
            dropped: dropped as f64 / offered.max(1) as f64,
            jain: total * total / (flows.len() as f64 * squares.max(1.0)),
            first_share: flows[0] / total.max(1.0),
            rounds_to_90: self.rounds_to_90(case),
            most_pace_bps: 0,
            excess_ns: 0,
            repeated: 0.0,
            message_times_ns: Vec::new(),
        }
    }

    /// Returns the bytes that the path could carry from a bin on, without random loss.
    fn capacity(&self, case: &Case, from_bin: usize) -> f64 {
        (from_bin..self.bins[0].len())
            .map(|bin| self.bin_capacity(case, bin))
            .sum()
    }

    fn bin_capacity(&self, case: &Case, bin: usize) -> f64 {
        let after = |at: f64| bin as f64 * BIN_ROUNDS >= at;
        let factor = match case.step {
            Some(step) if after(step.at_rounds) => step.rate_factor,
            _ => 1.0,
        };
        case.rate_bps as f64 * factor / 8e9 * self.bin_ns * (1.0 - case.loss)
    }

    /// Without the half round trip to the receiver.
    fn rounds_to_90(&self, case: &Case) -> Option<f64> {
        let from = case.step.map_or(0.0, |step| step.at_rounds);
        let from_bin = (from / BIN_ROUNDS).ceil() as usize;
        (from_bin..self.bins[0].len())
            .find(|&bin| {
                let total: f64 = self.bins.iter().map(|bins| bins[bin]).sum();
                total >= 0.9 * self.bin_capacity(case, bin)
            })
            .map(|bin| bin as f64 * BIN_ROUNDS - from)
    }
}

/// How long a pace stays above a bound.
pub(crate) struct Excess {
    bound_bps: u64,
    since_ns: Option<u64>,
    longest_ns: u64,
}

impl Excess {
    pub(crate) fn over(bound_bps: u64) -> Self {
        Self {
            bound_bps,
            since_ns: None,
            longest_ns: 0,
        }
    }

    pub(crate) fn note(&mut self, now_ns: u64, pace_bps: u64) {
        self.since_ns = match pace_bps > self.bound_bps {
            true => self.since_ns.or(Some(now_ns)),
            false => None,
        };
        let excess_ns = self.since_ns.map_or(0, |since_ns| now_ns - since_ns);
        self.longest_ns = self.longest_ns.max(excess_ns);
    }

    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }
}
