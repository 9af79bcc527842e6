//! OptiNIC Fig. 6: times of collectives among 8 hosts at 25 Gbit/s under bursts of other traffic.
//!
//! Rings: in each step, each host sends an eighth of the tensor to the next one. `AllReduce` has 14
//! steps; `AllGather` and `ReduceScatter` have 7, with the same packets. A collective ends when the
//! last host has ended its last step. A run is one collective, after one step without other traffic
//! from which endpoints know their paths. Every step of the bounded transport has the timeout of
//! OptiNIC's section 3.1.2: 1.25 times a warm-up, plus 50 us. The warm-ups are collectives of the same
//! transport under the same bursts, with a timeout that cuts nothing.

use std::error::Error;

use clap::Args;
use farwrite_experiment::{Flow, Outcome, Pattern, PatternNetwork, Start, Workload};
use farwrite_net::{Shape, Topology};

use crate::measure::{BOUNDED, Bursts, LOSSES, Subject, Table, at, cable, to_the_next};
use farwrite_units::stats::{deviation, mean, standard_error};

pub(crate) const HOSTS: usize = 8;
const RATE_BPS: u64 = 25_000_000_000;
/// Start of the bursts, and the time from there to the collective, in nanoseconds.
const BURSTS_NS: u64 = 20_000_000;
const LEAD_NS: u64 = 2_000_000;
const START_NS: u64 = BURSTS_NS + LEAD_NS;
/// Timeout of the steps of warm-ups, in nanoseconds, and their number.
pub(crate) const WARM_UP_NS: u64 = 1_000_000_000;
pub(crate) const WARM_UPS: u64 = 10;
/// The collectives, and their steps.
pub(crate) const COLLECTIVES: [(&str, usize); 2] = [
    ("AllReduce", 2 * (HOSTS - 1)),
    ("AllGather, ReduceScatter", HOSTS - 1),
];

/// Parameters of the collectives and of the random other traffic.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Measured collectives of each kind
    #[arg(long, default_value_t = 80)]
    pub(crate) runs: u64,
    /// Bytes of the tensor
    #[arg(long, default_value_t = 20)]
    pub(crate) tensor_mb: u64,
    /// Hosts that send bursts
    #[arg(long, default_value_t = 8)]
    pub(crate) senders: u64,
    /// Their mean length
    #[arg(long, default_value_t = 2_000)]
    pub(crate) burst_kb: u64,
    /// The mean silence between them
    #[arg(long, default_value_t = 4_000)]
    pub(crate) silence_us: u64,
    /// Buffer of the switch
    #[arg(long, default_value_t = 2_000)]
    pub(crate) buffer_kb: u64,
    /// Rate of endpoints with a fixed rate
    #[arg(long, default_value_t = 22_500)]
    pub(crate) rate_mbps: u64,
}

impl Setting {
    pub(crate) fn tensor_bytes(&self) -> u64 {
        self.tensor_mb * 1_000_000
    }

    pub(crate) fn rate_bps(&self) -> u64 {
        self.rate_mbps * 1_000_000
    }

    /// Bytes of a step.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.tensor_bytes() / HOSTS as u64
    }

    /// Says it in words.
    pub(crate) fn conditions(&self, tensor: &str) -> String {
        let Self {
            runs,
            senders,
            burst_kb,
            silence_us,
            buffer_kb,
            rate_mbps,
            ..
        } = self;
        format!(
            "{HOSTS} hosts, one switch, 25 Gbit/s, buffer of {buffer_kb} kB; {runs} collectives of {tensor}; \
             {senders} hosts send bursts of {burst_kb} kB (mean) after {silence_us} us (mean); fixed rate {rate_mbps} \
             Mbit/s"
        )
    }

    /// The flows of the collective, then the warm-up, then the bursts.
    fn workload(&self, steps: usize, seed: u64) -> Result<Workload, Box<dyn Error>> {
        let network = PatternNetwork::uniform(HOSTS, RATE_BPS);
        let ring = Pattern::RingAllReduce {
            size: self.tensor_bytes(),
            hosts: None,
        };
        let mut workload = ring.build(&network, seed, &[].into())?;
        workload.flows.truncate(steps * HOSTS);
        for flow in &mut workload.flows {
            if let Start::At(at_ns) = &mut flow.start {
                *at_ns += START_NS;
            }
        }
        for flow in &mut workload.flows[(steps - 1) * HOSTS..] {
            flow.when_received = None;
        }
        workload.append(Workload::of(to_the_next(HOSTS, self.part_bytes(), 0)));
        workload.append(
            self.other_traffic(steps, BURSTS_NS)
                .workload(&network, seed)?,
        );
        Ok(workload)
    }

    /// What `measured` makes of collectives, for each of the transports.
    pub(crate) fn run_all<T: Send>(
        &self,
        topology: &Topology,
        subjects: &[Subject],
        (steps, runs): (usize, u64),
        measured: impl Fn(&Outcome) -> Option<T> + Sync,
    ) -> Result<Vec<Vec<T>>, Box<dyn Error>> {
        let workloads: Result<Vec<_>, _> =
            (1..=runs).map(|seed| self.workload(steps, seed)).collect();
        let buffer_bytes = self.buffer_kb * 1_000;
        let results = Subject::run_all(subjects, topology, buffer_bytes, &workloads?, measured)?;
        Ok(results)
    }

    /// The bursts of a run, from time 0 on, and the time at which its collective begins, in nanoseconds.
    pub(crate) fn bursts(
        &self,
        steps: usize,
        seed: u64,
    ) -> Result<(Vec<Flow>, u64), Box<dyn Error>> {
        let network = PatternNetwork::uniform(HOSTS, RATE_BPS);
        let workload = self.other_traffic(steps, 0).workload(&network, seed)?;
        Ok((workload.flows, LEAD_NS))
    }

    fn other_traffic(&self, steps: usize, from_ns: u64) -> Bursts {
        let steps = steps as u64;
        Bursts {
            senders: usize::try_from(self.senders).unwrap_or(usize::MAX),
            burst_bytes: self.burst_kb * 1_000,
            silence_ns: self.silence_us * 1_000,
            from_ns,
            // Twice the time of the collective alone.
            until_ns: from_ns + LEAD_NS + 2 * steps * self.part_bytes() * 8_000_000_000 / RATE_BPS,
        }
    }
}

/// What one collective took.
struct Collective {
    time_ms: f64,
    missing: u64,
    repeated: u64,
    timeouts: u64,
    dropped: u64,
}

impl Collective {
    /// If all of its steps ended.
    fn of(outcome: &Outcome, steps: usize) -> Option<Self> {
        let mut done = Self {
            time_ms: 0.0,
            missing: 0,
            repeated: 0,
            timeouts: 0,
            dropped: outcome.totals.all_dropped(),
        };
        for flow in &outcome.flows[..steps * HOSTS] {
            let end_ns = flow.start_ns? + flow.time_ns()?;
            done.time_ms = done.time_ms.max((end_ns - START_NS) as f64 / 1e6);
            done.missing += flow.missing_bytes;
            done.repeated += flow.repeated;
            done.timeouts += flow.timeouts;
        }
        Some(done)
    }
}

/// What the collectives of one transport took.
pub(crate) struct Times {
    /// Milliseconds, sorted.
    times: Vec<f64>,
    missing_percent: f64,
    repeated: u64,
    timeouts: u64,
    dropped: u64,
}

impl Times {
    /// The times of each of the transports.
    pub(crate) fn of(
        setting: &Setting,
        topology: &Topology,
        subjects: &[Subject],
        (steps, runs): (usize, u64),
    ) -> Result<Vec<Self>, Box<dyn Error>> {
        let measured = |outcome: &Outcome| Collective::of(outcome, steps);
        let collectives = setting.run_all(topology, subjects, (steps, runs), measured)?;
        let bytes = runs * steps as u64 * setting.tensor_bytes();
        let times = |of_subject: Vec<Collective>| Self::sum(&of_subject, bytes);
        Ok(collectives.into_iter().map(times).collect())
    }

    /// `bytes`: what all hosts send in all collectives.
    fn sum(collectives: &[Collective], bytes: u64) -> Self {
        let mut times: Vec<_> = collectives.iter().map(|one| one.time_ms).collect();
        times.sort_by(f64::total_cmp);
        let sum = |of: fn(&Collective) -> u64| collectives.iter().map(of).sum::<u64>();
        Self {
            times,
            missing_percent: sum(|one| one.missing) as f64 * 100.0 / bytes as f64,
            repeated: sum(|one| one.repeated),
            timeouts: sum(|one| one.timeouts),
            dropped: sum(|one| one.dropped),
        }
    }

    /// A share of the mean time of a step, in nanoseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive time"
    )]
    pub(crate) fn step_ns(&self, steps: usize, share: f64) -> u64 {
        (mean(&self.times) * 1e6 / steps as f64 * share) as u64
    }

    /// The first timeout of a step after these collectives as warm-ups (OptiNIC, section 3.1.2), in
    /// nanoseconds. Each step gets the same share of the collective. The paper adds 50 us to the collective.
    /// Here, each step is a message with a deadline of its own, so each step gets them: 2 % of its time.
    pub(crate) fn timeout_ns(&self, steps: usize) -> u64 {
        self.step_ns(steps, 1.25) + 50_000
    }

    /// Adds the numbers at a place: a panel, and an x in it.
    pub(crate) fn write(&self, table: &mut Table, (panel, x): (&str, f64), name: &str) {
        let (mean, p99, median) = (
            mean(&self.times),
            at(&self.times, 0.99),
            at(&self.times, 0.5),
        );
        eprintln!(
            "{panel:<38} {x:>3} {name:<30} mean {mean:7.2} ms, median {median:7.2}, p99 {p99:7.2}; {:.2}% missing; {} \
             repeated, {} timeouts, {} dropped",
            self.missing_percent, self.repeated, self.timeouts, self.dropped
        );
        let counts = [self.repeated, self.timeouts, self.dropped].map(|count| count as f64);
        for (measure, value) in [
            ("mean_ms", mean),
            ("median_ms", median),
            ("p99_ms", p99),
            ("missing_percent", self.missing_percent),
            ("repeated", counts[0]),
            ("timeouts", counts[1]),
            ("dropped", counts[2]),
        ] {
            table.add(panel, name, x, measure, value);
        }
    }

    /// Adds the standard deviation of the times at a place, and the standard error of their mean.
    pub(crate) fn write_spread(&self, table: &mut Table, (panel, x): (&str, f64), name: &str) {
        for (measure, value) in [
            ("deviation_ms", deviation(&self.times)),
            ("error_ms", standard_error(&self.times)),
        ] {
            table.add(panel, name, x, measure, value);
        }
    }
}

pub(crate) fn topology(loss_packet: f64) -> Result<Topology, Box<dyn Error>> {
    let cable = cable(RATE_BPS, loss_packet);
    Ok(Shape::Star {
        hosts: HOSTS,
        cable,
    }
    .build()?)
}

/// Warm-ups of bounded transports, with a timeout that cuts nothing.
pub(crate) fn warm_up(
    setting: &Setting,
    loss_packet: f64,
    bounded: &[(&'static str, &str, bool)],
    steps: usize,
) -> Result<Vec<Times>, Box<dyn Error>> {
    let subject = |&of| Subject::bounded(of, WARM_UP_NS, setting.rate_bps());
    let subjects: Vec<_> = bounded.iter().map(subject).collect();
    let runs = (steps, setting.runs.min(WARM_UPS));
    Times::of(setting, &topology(loss_packet)?, &subjects, runs)
}

pub(crate) fn measure(setting: Setting) -> Result<Table, Box<dyn Error>> {
    let tensor = format!("{} MB", setting.tensor_mb);
    let mut table = Table::new(setting.conditions(&tensor), "O6");
    for (loss, loss_packet) in LOSSES {
        let topology = topology(loss_packet)?;
        for (collective, steps) in COLLECTIVES {
            let panel = format!("{collective}, {loss}");
            let mut subjects = Subject::reliable();
            let warm = warm_up(&setting, loss_packet, &BOUNDED, steps)?;
            for (endpoint, warm) in BOUNDED.into_iter().zip(warm) {
                let timeout_ns = warm.timeout_ns(steps);
                let timeout_ms = timeout_ns as f64 / 1e6;
                table.add(&panel, endpoint.0, 0.0, "timeout_ms", timeout_ms);
                subjects.push(Subject::bounded(endpoint, timeout_ns, setting.rate_bps()));
            }
            let times = Times::of(&setting, &topology, &subjects, (steps, setting.runs))?;
            for (subject, times) in subjects.iter().zip(times) {
                times.write(&mut table, (&panel, 0.0), subject.name);
            }
        }
    }
    Ok(table)
}
