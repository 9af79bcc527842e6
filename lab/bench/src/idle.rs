//! Measures the cost of idle queue pairs for active ones.

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite::{MemoryRegion, Outcome, QpConfig, QpOptions, QueuePair, SendOptions};

use crate::Failure;
use crate::meter::Meter;
use crate::sim::SimEnds;
use crate::table;
use farwrite_units::stats::median;

/// Number of queue pairs that send, each one message at a time.
const ACTIVE: usize = 10;
/// Numbers of idle queue pairs. The first case is the reference of the others.
const IDLE: [usize; 3] = [0, 1_000, 10_000];
/// Length of a message: one packet, so that the cost of polls dominates.
const MESSAGE_BYTES: usize = 4096;
/// Processor time of one sample.
const SAMPLE: Duration = Duration::from_millis(200);
/// Number of queue pairs whose first use happens at the same time. This phase is not measured, so
/// it polls rarely.
const GATHERED: usize = 256;
const GRAIN: Duration = Duration::from_millis(1);

/// Measures all cases in alternation, and prints medians.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let crowds: Result<Vec<_>, _> = IDLE.into_iter().map(ManyQueuePairs::new).collect();
    let mut crowds = crowds?;
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let round: Result<Vec<_>, _> = crowds
            .iter_mut()
            .map(ManyQueuePairs::seconds_a_message)
            .collect();
        rounds.push(round?);
    }
    let rows: Vec<_> = IDLE
        .into_iter()
        .enumerate()
        .map(|(case, idle)| {
            let seconds = median(rounds.iter().map(|round| round[case]));
            let ratio = median(rounds.iter().map(|round| round[case] / round[0]));
            [
                idle.to_string(),
                format!("{:.1}", seconds * 1e6),
                format!("{ratio:.2}"),
            ]
        })
        .collect();
    let title = format!(
        "idle: processor time of a message of {MESSAGE_BYTES} bytes, both ends together, over the \
         simulated\nfabric; {ACTIVE} queue pairs send and the others are idle, at both ends; \
         medians of {runs} runs.\nQueue pairs have {} slots of {} KiB. Goal: a ratio of at most \
         1.10.",
        options().sdr.slots,
        options().sdr.max_message_bytes >> 10,
    );
    let header = ["idle queue pairs", "us a message", "ratio"];
    table::print(&title, header, &rows);
    Ok(())
}

/// Options of small queue pairs: 10,000 at each of two ends must fit into the memory of a small
/// machine.
fn options() -> QpOptions {
    QpOptions {
        sdr: QpConfig {
            max_message_bytes: 64 << 10,
            slots: 4,
            generations: 2,
            ..QpConfig::default()
        },
        initial_rtt: Duration::from_millis(1),
        ..QpOptions::default()
    }
}

/// Two endpoints with active and idle queue pairs.
struct ManyQueuePairs {
    ends: SimEnds,
    active: Vec<[QueuePair; 2]>,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl ManyQueuePairs {
    /// Connects all queue pairs and uses each once.
    fn new(idle: usize) -> Result<Self, Failure> {
        let link = LinkConfig {
            delay: Duration::from_micros(500),
            ..LinkConfig::default()
        };
        let mut ends = SimEnds::new(1, link)?;
        let pairs: Result<Vec<_>, _> = (0..ACTIVE + idle)
            .map(|_| ends.connect(&options()))
            .collect();
        let pairs = pairs?;
        let source = ends.tx.register(vec![1; MESSAGE_BYTES])?;
        let target = ends.rx.register(vec![0; MESSAGE_BYTES])?;
        let mut crowd = Self {
            ends,
            active: pairs[..ACTIVE].to_vec(),
            source,
            target,
        };
        for pairs in pairs.chunks(GATHERED) {
            crowd.use_once(pairs, GRAIN)?;
        }
        crowd
            .ends
            .rest(Duration::from_secs(1), Duration::from_secs(60))?;
        Ok(crowd)
    }

    /// Sends one message on each of `pairs`, all at the same time.
    fn use_once(&mut self, pairs: &[[QueuePair; 2]], grain: Duration) -> Result<(), Failure> {
        let mut sends = Vec::with_capacity(pairs.len());
        for &[tx_qp, rx_qp] in pairs {
            self.ends.rx.post_recv(rx_qp, self.target.whole())?;
            let options = SendOptions::default();
            sends.push(
                self.ends
                    .tx
                    .post_send(tx_qp, self.source.whole(), options)?,
            );
        }
        self.ends.run_until(grain, || {
            sends.retain(|send| send.outcome() != Some(Outcome::Whole));
            sends.is_empty()
        })
    }

    /// Processor time of a message, averaged over the messages of one sample.
    fn seconds_a_message(&mut self) -> Result<f64, Failure> {
        let active = self.active.clone();
        let meter = Meter::start();
        let mut messages = 0;
        loop {
            self.use_once(&active, Duration::ZERO)?;
            messages += active.len();
            let usage = meter.read();
            if usage.cpu >= SAMPLE {
                return Ok(usage.cpu.as_secs_f64() / messages as f64);
            }
        }
    }
}
