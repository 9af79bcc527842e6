//! Measures messages that take turns on few or many queue pairs of one endpoint, over loopback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farwrite::{
    Endpoint, Error, MemoryRegion, MrSlice, Outcome, QpConfig, QpOptions, QueuePair, RateControl,
    RecvHandle, SendHandle, SendOptions, UdpConfig, UdpFabric,
};

use crate::Failure;
use crate::connect::connect;
use crate::meter::{Meter, Usage};
use crate::table;
use farwrite_units::stats::median;

/// Numbers of queue pairs. The first case is the reference of the others.
const QUEUE_PAIRS: [usize; 3] = [1, 100, 1_000];
const MESSAGE_BYTES: usize = 256 * 1024;
/// Messages per run.
const MESSAGES: usize = 2_000;
/// Messages in flight, on all queue pairs together.
const IN_FLIGHT: usize = 16;
/// Lowest number of posted receives, so that no message waits for a receive.
const RECEIVES: usize = 2 * IN_FLIGHT;
/// Number of messages in the memory of an end: more than a cache holds.
const BUFFERS: usize = 256;
/// Longest sleep of an end before it checks whether the other has finished.
const MAX_WAIT: Duration = Duration::from_millis(5);

/// Measures all cases in alternation, and prints medians.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let crowds: Result<Vec<_>, _> = QUEUE_PAIRS.into_iter().map(ManyQueuePairs::new).collect();
    let mut crowds = crowds?;
    // Each queue pair is used before it is measured.
    for crowd in &mut crowds {
        crowd.run()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let round: Result<Vec<_>, _> = crowds.iter_mut().map(ManyQueuePairs::run).collect();
        rounds.push(round?);
    }
    let cases = QUEUE_PAIRS.into_iter().enumerate();
    let rows: Vec<_> = cases.map(|(case, n)| row(n, &rounds, case)).collect();
    let title = format!(
        "queue-pairs: {MESSAGES} messages of 256 KiB over loopback, which take turns on the queue \
         pairs of one endpoint;\n{IN_FLIGHT} in flight at a time; sr-nack; medians of {runs} runs. \
         Ratios are to one queue pair in the same run."
    );
    let header = [
        "queue pairs",
        "messages/s",
        "ratio",
        "messages/core-s",
        "ratio",
        "cores",
    ];
    table::print(&title, header, &rows);
    Ok(())
}

/// The medians of one case.
fn row(queue_pairs: usize, rounds: &[Vec<Usage>], case: usize) -> [String; 6] {
    let of = |what: fn(&Usage) -> f64| median(rounds.iter().map(|round| what(&round[case])));
    let ratio = |what: fn(&Usage) -> f64| {
        median(
            rounds
                .iter()
                .map(|round| what(&round[case]) / what(&round[0])),
        )
    };
    let per_second: fn(&Usage) -> f64 = |usage| MESSAGES as f64 / usage.wall.as_secs_f64();
    let per_core_second: fn(&Usage) -> f64 = |usage| MESSAGES as f64 / usage.cpu.as_secs_f64();
    [
        queue_pairs.to_string(),
        format!("{:.0}", of(per_second)),
        format!("{:.2}", ratio(per_second)),
        format!("{:.0}", of(per_core_second)),
        format!("{:.2}", ratio(per_core_second)),
        format!("{:.2}", of(Usage::cores)),
    ]
}

/// Two endpoints with queue pairs between them.
struct ManyQueuePairs {
    sender: Sender,
    receiver: Receiver,
}

impl ManyQueuePairs {
    fn new(queue_pairs: usize) -> Result<Self, Error> {
        let options = QpOptions {
            sdr: QpConfig {
                max_message_bytes: MESSAGE_BYTES as u64,
                slots: 32,
                ..QpConfig::default()
            },
            rate_control: RateControl::Fixed {
                rate_bps: 100_000_000_000,
            },
            initial_rtt: Duration::from_millis(1),
            ..QpOptions::default()
        };
        let config = UdpConfig::new(([127, 0, 0, 1], 0).into());
        let mut tx = Endpoint::over_udp(&config)?;
        let mut rx = Endpoint::over_udp(&config)?;
        let pairs: Result<Vec<_>, _> = (0..queue_pairs)
            .map(|_| connect(&mut tx, &mut rx, &options))
            .collect();
        let pairs = pairs?;
        let mut receiver = Receiver {
            memory: rx.register(vec![0; BUFFERS * MESSAGE_BYTES])?,
            endpoint: rx,
            posted: VecDeque::new(),
            messages: 0,
        };
        for round in 0..RECEIVES.max(queue_pairs) {
            receiver.post(pairs[round % queue_pairs][1])?;
        }
        let sender = Sender {
            memory: tx.register(vec![1; BUFFERS * MESSAGE_BYTES])?,
            endpoint: tx,
            queue_pairs: pairs.iter().map(|pair| pair[0]).collect(),
            messages: 0,
        };
        Ok(Self { sender, receiver })
    }

    /// Moves [`MESSAGES`] messages, and waits until the sender has all acknowledgements.
    fn run(&mut self) -> Result<Usage, Error> {
        let done = AtomicBool::new(false);
        let meter = Meter::start();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receiver.run(&done));
            let sent = self.sender.run();
            done.store(true, Ordering::Release);
            receiver.join().expect("the receiver does not panic")?;
            sent
        })?;
        Ok(meter.read())
    }
}

/// The part of an end's memory that belongs to a message, counted from 0.
fn buffer(memory: MemoryRegion, message: usize) -> MrSlice {
    let offset = (message % BUFFERS * MESSAGE_BYTES) as u64;
    memory.slice(offset..offset + MESSAGE_BYTES as u64)
}

struct Sender {
    endpoint: Endpoint<UdpFabric>,
    queue_pairs: Vec<QueuePair>,
    memory: MemoryRegion,
    /// Messages posted in all runs.
    messages: usize,
}

impl Sender {
    fn run(&mut self) -> Result<(), Error> {
        let mut open: Vec<SendHandle> = Vec::new();
        let end = self.messages + MESSAGES;
        let mut wait = Duration::ZERO;
        while self.messages < end || !open.is_empty() {
            self.endpoint.poll_and_wait(wait)?;
            open.retain(|send| send.outcome() != Some(Outcome::Whole));
            wait = MAX_WAIT;
            while open.len() < IN_FLIGHT && self.messages < end {
                let qp = self.queue_pairs[self.messages % self.queue_pairs.len()];
                let source = buffer(self.memory, self.messages);
                let options = SendOptions::default();
                open.push(self.endpoint.post_send(qp, source, options)?);
                self.messages += 1;
                // The next poll sends the posted messages.
                wait = Duration::ZERO;
            }
        }
        Ok(())
    }
}

struct Receiver {
    endpoint: Endpoint<UdpFabric>,
    memory: MemoryRegion,
    /// Posted receives in the order of the messages.
    posted: VecDeque<(QueuePair, RecvHandle)>,
    /// Receives posted in all runs.
    messages: usize,
}

impl Receiver {
    fn post(&mut self, qp: QueuePair) -> Result<(), Error> {
        let target = buffer(self.memory, self.messages);
        let recv = self.endpoint.post_recv(qp, target)?;
        self.posted.push_back((qp, recv));
        self.messages += 1;
        Ok(())
    }

    /// Posts a receive for every message that has arrived, until `done`.
    fn run(&mut self, done: &AtomicBool) -> Result<(), Error> {
        let mut wait = Duration::ZERO;
        while !done.load(Ordering::Acquire) {
            self.endpoint.poll_and_wait(wait)?;
            wait = MAX_WAIT;
            while let Some((qp, recv)) = self.posted.front()
                && recv.outcome() == Some(Outcome::Whole)
            {
                let qp = *qp;
                self.posted.pop_front();
                self.post(qp)?;
                wait = Duration::ZERO;
            }
        }
        Ok(())
    }
}
