//! Celeris Fig. 2: times of steps of 25 MB between 128 hosts under bursts of other traffic.
//!
//! Each host sends 25 MB to the next one, mostly on the same leaf. The step of a host ends when
//! these bytes have arrived. A run is one measured round, after a round without other traffic from
//! which endpoints know their paths. The deadline is the median of RoCE's steps plus one standard
//! deviation, as in the paper.

use std::error::Error;

use clap::Args;
use farwrite_experiment::{Outcome, PatternNetwork, Workload};
use farwrite_net::{LeafSpine, Shape, Topology};

use crate::measure::{BOUNDED, Bursts, LOSSES, Subject, Table, at, cable, to_the_next};
use farwrite_units::stats::{deviation, mean};

const LEAVES: usize = 16;
const SPINES: usize = 8;
const HOSTS_PER_LEAF: usize = 8;
const HOSTS: usize = LEAVES * HOSTS_PER_LEAF;
const RATE_BPS: u64 = 100_000_000_000;
const STEP_BYTES: u64 = 25_000_000;
/// Start of the first bursts, and of the measured round, in nanoseconds.
const BURSTS_NS: u64 = 10_000_000;
const ROUND_NS: u64 = BURSTS_NS + 1_000_000;

/// Parameters of the rounds and of the random other traffic.
#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// Measured rounds
    #[arg(long, default_value_t = 6)]
    pub(crate) rounds: u64,
    /// Hosts that send bursts
    #[arg(long, default_value_t = 48)]
    senders: u64,
    /// Their mean length
    #[arg(long, default_value_t = 15)]
    burst_mb: u64,
    /// The mean silence between them
    #[arg(long, default_value_t = 3_000)]
    silence_us: u64,
    /// How long bursts begin after the round has begun
    #[arg(long, default_value_t = 3_000)]
    until_us: u64,
    /// Buffer of a switch
    #[arg(long, default_value_t = 9_437)]
    buffer_kb: u64,
    /// Rate of endpoints with a fixed rate
    #[arg(long, default_value_t = 90)]
    rate_gbps: u64,
}

impl Setting {
    /// Says it in words.
    pub(crate) fn conditions(&self) -> String {
        let Self {
            rounds,
            senders,
            burst_mb,
            silence_us,
            until_us,
            buffer_kb,
            rate_gbps,
        } = self;
        format!(
            "{HOSTS} hosts, {LEAVES} leaves, {SPINES} spines, 100 Gbit/s, buffers of {buffer_kb} kB; {rounds} rounds \
             of 25 MB; {senders} hosts send bursts of {burst_mb} MB (mean) after {silence_us} us (mean), the last one \
             {until_us} us into a round; fixed rate {rate_gbps} Gbit/s"
        )
    }

    /// The flows of the measured round, then the warm-up, which NICs do not need, then the bursts.
    fn workload(&self, seed: u64, with_warm_up: bool) -> Result<Workload, Box<dyn Error>> {
        let mut flows = to_the_next(HOSTS, STEP_BYTES, ROUND_NS);
        if with_warm_up {
            flows.extend(to_the_next(HOSTS, STEP_BYTES, 0));
        }
        let mut workload = Workload::of(flows);
        let bursts = Bursts {
            senders: usize::try_from(self.senders)?,
            burst_bytes: self.burst_mb * 1_000_000,
            silence_ns: self.silence_us * 1_000,
            from_ns: BURSTS_NS,
            until_ns: ROUND_NS + self.until_us * 1_000,
        };
        let network = PatternNetwork::uniform(HOSTS, RATE_BPS);
        workload.append(bursts.workload(&network, seed)?);
        Ok(workload)
    }
}

/// What the steps of one transport took.
#[derive(Default)]
pub(crate) struct Steps {
    /// Milliseconds, sorted.
    times: Vec<f64>,
    missing: u64,
    repeated: u64,
    timeouts: u64,
    dropped: u64,
    pauses: u64,
}

impl Steps {
    /// The steps of each of the transports.
    pub(crate) fn of(
        setting: &Setting,
        topology: &Topology,
        subjects: &[Subject],
        with_warm_up: bool,
    ) -> Result<Vec<Self>, Box<dyn Error>> {
        let workloads: Result<Vec<_>, _> = (1..=setting.rounds)
            .map(|seed| setting.workload(seed, with_warm_up))
            .collect();
        let buffer_bytes = setting.buffer_kb * 1_000;
        let rounds = Subject::run_all(
            subjects,
            topology,
            buffer_bytes,
            &workloads?,
            Self::of_round,
        )?;
        Ok(rounds.into_iter().map(Self::sum).collect())
    }

    /// The steps of one round, if all of them ended.
    fn of_round(outcome: &Outcome) -> Option<Self> {
        let mut steps = Self {
            dropped: outcome.totals.all_dropped(),
            pauses: outcome.totals.pauses_sent,
            ..Self::default()
        };
        for flow in &outcome.flows[..HOSTS] {
            steps.times.push(flow.time_ns()? as f64 / 1e6);
            steps.missing += flow.missing_bytes;
            steps.repeated += flow.repeated;
            steps.timeouts += flow.timeouts;
        }
        Some(steps)
    }

    fn sum(rounds: Vec<Self>) -> Self {
        let mut sum = Self::default();
        for round in rounds {
            sum.times.extend(round.times);
            sum.missing += round.missing;
            sum.repeated += round.repeated;
            sum.timeouts += round.timeouts;
            sum.dropped += round.dropped;
            sum.pauses += round.pauses;
        }
        sum.times.sort_by(f64::total_cmp);
        sum
    }

    fn missing_percent(&self) -> f64 {
        let bytes = self.times.len() as u64 * STEP_BYTES;
        self.missing as f64 * 100.0 / bytes as f64
    }

    /// The paper's timeout: the median plus one standard deviation, in nanoseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive time"
    )]
    pub(crate) fn deadline_ns(&self) -> u64 {
        ((at(&self.times, 0.5) + deviation(&self.times)) * 1e6) as u64
    }

    /// Adds the numbers at a place: a panel, and an x in it.
    pub(crate) fn write(&self, table: &mut Table, (panel, x): (&str, f64), name: &str) {
        let times = &self.times;
        let median = at(times, 0.5);
        let p99 = at(times, 0.99);
        eprintln!(
            "{panel:<20} {x:>6} {name:<24} median {median:6.2} ms, mean {:6.2}, p99 {p99:6.2}, worst {:6.2}; p99 {:4.2} medians; \
             {:.2}% missing; {} repeated, {} timeouts, {} dropped, {} pauses",
            mean(times),
            at(times, 1.0),
            p99 / median,
            self.missing_percent(),
            self.repeated,
            self.timeouts,
            self.dropped,
            self.pauses,
        );
        let counts = [self.repeated, self.timeouts, self.dropped, self.pauses];
        let counts = counts.map(|count| count as f64);
        for (measure, value) in [
            ("median_ms", median),
            ("mean_ms", mean(times)),
            ("p99_ms", p99),
            ("missing_percent", self.missing_percent()),
            ("repeated", counts[0]),
            ("timeouts", counts[1]),
            ("dropped", counts[2]),
            ("pauses", counts[3]),
        ] {
            table.add(panel, name, x, measure, value);
        }
    }

    /// Adds the times by the share of steps that have ended.
    fn write_steps(&self, table: &mut Table, panel: &str, name: &str) {
        for percent in 1..=100 {
            let percent = f64::from(percent);
            let time = at(&self.times, percent / 100.0);
            table.add(panel, name, percent, "step_ms", time);
        }
    }
}

pub(crate) fn topology(loss_packet: f64) -> Result<Topology, Box<dyn Error>> {
    let cable = cable(RATE_BPS, loss_packet);
    Ok(Shape::LeafSpine(LeafSpine {
        leaves: LEAVES,
        spines: SPINES,
        hosts_per_leaf: HOSTS_PER_LEAF,
        host_cable: cable,
        spine_cable: cable,
    })
    .build()?)
}

/// Measures all transports at one loss.
fn panel(
    setting: &Setting,
    (name, loss_packet): (&str, f64),
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let topology = topology(loss_packet)?;
    let mut subjects = Subject::reliable();
    subjects.push(Subject::new("endpoint, exact", "farwrite-sr-nack"));
    let mut done = Steps::of(setting, &topology, &subjects, true)?;
    let deadline_ns = done[0].deadline_ns();
    let fixed_bps = setting.rate_gbps * 1_000_000_000;
    let bounded = BOUNDED.map(|endpoint| Subject::bounded(endpoint, deadline_ns, fixed_bps));
    done.extend(Steps::of(setting, &topology, &bounded, true)?);
    subjects.extend(bounded);
    table.add(
        name,
        "best effort",
        0.0,
        "deadline_ms",
        deadline_ns as f64 / 1e6,
    );
    for (subject, steps) in subjects.iter().zip(&done) {
        steps.write(table, (name, 0.0), subject.name);
        steps.write_steps(table, name, subject.name);
    }
    Ok(())
}

pub(crate) fn measure(setting: &Setting) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new(setting.conditions(), "C2");
    for loss in LOSSES {
        panel(setting, loss, &mut table)?;
    }
    Ok(table)
}
