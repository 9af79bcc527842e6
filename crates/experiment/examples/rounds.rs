//! Measures the steps of communication rounds under bursty background traffic (claim C2, Celeris
//! Fig. 2): with RDMA NICs, and with endpoints that end the steps at a deadline.
//!
//! The network is a Clos of 16 leaves and 8 spines with 128 hosts, all cables 100 Gbit/s. In a
//! round, each host sends 25 MB to the next one, mostly on the same leaf. The step of a host ends
//! when these bytes have arrived. Meanwhile hosts send bursts to random others. The deadline is the
//! median of RoCE's steps plus one standard deviation, as in the paper. One run is one round.
//!
//! `cargo run --release -p farwrite-experiment --example rounds -- [--seeds N] [--senders N]
//! [--burst-mb N] [--silence-us N]`

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use farwrite_experiment::plan::Plan;
use farwrite_experiment::run;

const HOSTS: usize = 128;
const HOSTS_PER_LEAF: usize = 8;
const MEGABYTES: usize = 25;

/// Parameters of the rounds and of the random background traffic.
struct Background {
    seeds: usize,
    senders: usize,
    burst_mb: usize,
    silence_us: usize,
}

impl Background {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut numbers = BTreeMap::from([
            ("--seeds", 2),
            ("--senders", 32),
            ("--burst-mb", 15),
            ("--silence-us", 3_000),
        ]);
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let number = numbers.get_mut(name.as_str());
            let number = number.ok_or_else(|| format!("{name}: there is no such option"))?;
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} has no value"))?;
            *number = value
                .parse()
                .map_err(|why| format!("{name} {value}: {why}"))?;
        }
        Ok(Self {
            seeds: numbers["--seeds"],
            senders: numbers["--senders"],
            burst_mb: numbers["--burst-mb"],
            silence_us: numbers["--silence-us"],
        })
    }

    /// The plan of all rounds with one transport.
    fn plan(&self, transport: &str) -> Result<Plan, Box<dyn Error>> {
        let mut flows = String::new();
        for src in 0..HOSTS {
            let dst = (src + 1) % HOSTS;
            // The round starts when the background traffic is already active.
            write!(
                flows,
                r#"{{ src = {src}, dst = {dst}, size = "{MEGABYTES}MB", start = "1ms" }}, "#
            )?;
        }
        let text = format!(
            r#"
            seeds = {}
            [topology.clos]
            shape = "leaf-spine"
            leaves = {}
            spines = 8
            hosts_per_leaf = {HOSTS_PER_LEAF}
            host_cable = {{ rate = "100Gbit", delay = "1us" }}
            spine_cable = {{ rate = "100Gbit", delay = "1us" }}
            [workload.round]
            pattern = "mix"
            [[workload.round.parts]]
            pattern = "flows"
            flows = [{flows}]
            [[workload.round.parts]]
            pattern = "on-off"
            senders = {}
            burst = "{}MB"
            silence = "{}us"
            until = "4ms"
            [transport.it]
            {transport}
            "#,
            self.seeds,
            HOSTS / HOSTS_PER_LEAF,
            self.senders,
            self.burst_mb,
            self.silence_us,
        );
        let no_file = |name: &str| Err(format!("{name}: the plan has no files"));
        Ok(Plan::read(&text, &no_file)?)
    }

    /// Runs all rounds and prints a row. Returns the durations of steps in milliseconds, sorted.
    fn measure(&self, name: &str, transport: &str) -> Result<Vec<f64>, Box<dyn Error>> {
        let plan = self.plan(transport)?;
        let (mut times, mut missing, mut unfinished) = (Vec::new(), 0, 0);
        for case in plan.cases() {
            let parts = plan.parts(&case)?;
            let outcome = run(&parts.scene(false))?;
            for step in &outcome.flows[..HOSTS] {
                match step.time_ns() {
                    Some(time_ns) => times.push(time_ns as f64 / 1e6),
                    None => unfinished += 1,
                }
                missing += step.missing_bytes;
            }
        }
        times.sort_by(f64::total_cmp);
        let bytes = (self.seeds * HOSTS * MEGABYTES * 1_000_000) as f64;
        println!(
            "{name:<34} median {:7.2} ms, mean {:7.2}, p99 {:7.2}, worst {:7.2}; p99 {:4.2} medians; {:.3}% \
             missing, {unfinished} not done",
            at(&times, 0.5),
            times.iter().sum::<f64>() / times.len() as f64,
            at(&times, 0.99),
            at(&times, 1.0),
            at(&times, 0.99) / at(&times, 0.5),
            missing as f64 * 100.0 / bytes,
        );
        Ok(times)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list"
)]
fn at(times: &[f64], share: f64) -> f64 {
    let index = (times.len().saturating_sub(1)) as f64 * share;
    times.get(index as usize).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn Error>> {
    let background = Background::parse()?;
    let roce = background.measure("RoCE, PFC", r#"protocol = "roce""#)?;
    background.measure("RoCE without PFC", r#"protocol = "roce-lossy""#)?;
    background.measure("IRN", r#"protocol = "irn""#)?;
    background.measure("farwrite, exact", r#"protocol = "farwrite-sr-nack""#)?;
    let mean = roce.iter().sum::<f64>() / roce.len() as f64;
    let variance = roce.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / roce.len() as f64;
    let deadline_us = (at(&roce, 0.5) + variance.sqrt()) * 1e3;
    for scheme in ["best-effort", "best-effort+sr"] {
        let transport =
            format!("protocol = \"farwrite-{scheme}\"\ndeadline = \"{deadline_us:.0}us\"");
        background.measure(&format!("farwrite, {scheme}"), &transport)?;
    }
    println!(
        "deadline {deadline_us:.0} us; {} rounds, {} hosts send bursts of {} MB (mean) after {} us (mean)",
        background.seeds, background.senders, background.burst_mb, background.silence_us
    );
    Ok(())
}
