//! One transfer: two endpoints and the emulated link between them, each in its own thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::fabric::threads::lock;
use farwrite::{Counters, Outcome, QpStats, SchemeName, SendHandle};
use farwrite_emulator::udp::UdpEmulatorCounters;

use super::connected_ends::{ConnectedEnds, End, Memory};
use super::fill::{Fill, Sampler};
use super::scenario::Scenario;
use crate::exit::{Exit, Failure, OrExit};
use farwrite_transfer::Cancel;

/// The time between two samples of the bitmap.
const SAMPLE_PERIOD: Duration = Duration::from_millis(4);
/// A transfer fails after this time plus twenty round trips without an arrival.
const STALL: Duration = Duration::from_secs(10);

pub(crate) struct Run {
    pub(crate) scheme: SchemeName,
    pub(crate) times: Times,
    pub(crate) sender: QpStats,
    pub(crate) receiver: QpStats,
    /// The counters of the sockets of the sender and the receiver.
    pub(crate) sockets: [Counters; 2],
    /// The size of the receive buffer that the system granted to the receiver.
    pub(crate) recv_buffer_bytes: usize,
    pub(crate) emulator: UdpEmulatorCounters,
    pub(crate) fill: Fill,
}

/// The times of events at the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    start: Instant,
    /// The time from the first chunk to the final ACK.
    pub(crate) completion: Duration,
    /// The time from the first chunk until every chunk had been sent once. During this time, there
    /// is always data to send.
    pub(crate) first_pass: Duration,
    /// The number of chunks sent in that time, including repeats.
    pub(crate) first_pass_chunks: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferState {
    /// The time since the first chunk was sent.
    pub(crate) elapsed: Duration,
    pub(crate) arrived_chunks: u64,
    pub(crate) sender: QpStats,
}

/// The state that the threads of a transfer share.
#[derive(Default)]
struct Live {
    over: AtomicBool,
    started: OnceLock<Instant>,
    /// When every chunk had been sent once, and the number of chunks sent until then.
    passed: OnceLock<(Instant, u64)>,
    finished: OnceLock<Instant>,
    sender: Mutex<QpStats>,
}

impl Live {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The times of a completed transfer.
    fn times(&self) -> Option<Times> {
        let &start = self.started.get()?;
        let &(passed, first_pass_chunks) = self.passed.get()?;
        Some(Times {
            start,
            completion: *self.finished.get()? - start,
            first_pass: passed - start,
            first_pass_chunks,
        })
    }
}

/// Ends a transfer for all of its threads when the first of them ends, for any reason.
struct EndAll<'a>(&'a Live);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// Moves the source to the target with one scheme, regularly reports the progress to `watch`, and
/// compares every byte. Returns the memory for the next transfer.
pub(crate) fn transfer(
    scenario: &Scenario,
    scheme: SchemeName,
    memory: Memory,
    cancel: &Cancel,
    watch: impl FnMut(&TransferState),
) -> Result<(Run, Memory), Failure> {
    let mut ends = ConnectedEnds::new(scenario, scheme, memory)?;
    let (sends, recvs) = ends
        .post(scenario, scheme)
        .or_exit(Exit::Other, "posting the message")?;
    let live = Live::default();
    let mut sampler = Sampler::new(&recvs, &scenario.chunks_of_messages());
    thread::scope(|scope| {
        let (sender, receiver) = (&mut ends.sender, &mut ends.receiver);
        let sending = scope.spawn(|| send(sender, &sends, scenario.chunks(), &live));
        let receiving = scope.spawn(|| receive(receiver, &live));
        let watched = watch_over(scenario, &live, cancel, &mut sampler, watch);
        live.over.store(true, Ordering::Release);
        for (thread, what) in [(sending, "sending"), (receiving, "receiving")] {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.or_exit(Exit::Unreachable, what)?;
        }
        watched
    })?;
    let whole = |outcome| outcome == Some(Outcome::Whole);
    let is_whole = sends.iter().all(|send| whole(send.outcome()))
        && recvs.iter().all(|recv| whole(recv.outcome()));
    let times = live.times().filter(|_| is_whole).ok_or_else(|| {
        let what = format!("{scheme}: the transfer ended, and the message is not whole");
        Failure::new(Exit::Unreachable, what)
    })?;
    sampler.sample();
    settle(scheme, ends, times, sampler.finish(times.start))
}

/// Compares the bytes and drops both ends.
fn settle(
    scheme: SchemeName,
    ends: ConnectedEnds,
    times: Times,
    fill: Fill,
) -> Result<(Run, Memory), Failure> {
    let ConnectedEnds {
        sender,
        receiver,
        link,
    } = ends;
    let emulator = link.stop().or_exit(Exit::Other, "emulating the link")?;
    verify(scheme, &sender, &receiver)?;
    let granted = receiver.endpoint.fabric().carrier().granted(0);
    let take = || -> Result<_, farwrite::Error> {
        let run = Run {
            scheme,
            times,
            sender: sender.endpoint.qp_stats(sender.qp)?,
            receiver: receiver.endpoint.qp_stats(receiver.qp)?,
            sockets: [&sender, &receiver].map(|end| end.endpoint.counters()),
            recv_buffer_bytes: granted.recv_buffer_bytes,
            emulator,
            fill,
        };
        let memory = Memory {
            source: sender.into_memory()?,
            target: receiver.into_memory()?,
        };
        Ok((run, memory))
    };
    take().or_exit(Exit::Other, "taking the ends apart")
}

fn verify(scheme: SchemeName, sender: &End, receiver: &End) -> Result<(), Failure> {
    let both = sender.bytes().and_then(|s| Ok((s, receiver.bytes()?)));
    let (sent, received) = both.or_exit(Exit::Other, "looking at the memory")?;
    match difference(sent, received) {
        None => Ok(()),
        Some(what) => Err(Failure::new(Exit::Corrupt, format!("{scheme}: {what}"))),
    }
}

/// A description of the difference between the sent and the received bytes.
fn difference(sent: &[u8], received: &[u8]) -> Option<String> {
    if sent == received {
        return None;
    }
    let pairs = sent.iter().zip(received).enumerate();
    let mut wrong = pairs.filter(|(_, (sent, received))| sent != received);
    let first = wrong.next().map_or(0, |(at, _)| at);
    Some(format!(
        "{} of {} bytes are not what was sent, the first at {first}",
        wrong.count() + 1,
        sent.len()
    ))
}

fn send(
    end: &mut End,
    sends: &[SendHandle],
    chunks: u64,
    live: &Live,
) -> Result<(), farwrite::Error> {
    let _end_all = EndAll(live);
    let qp = end.qp;
    end.endpoint.run_until(|endpoint| {
        let stats = endpoint.qp_stats(qp).unwrap_or_default();
        if stats.sender.sent_chunks > 0 {
            live.started.get_or_init(Instant::now);
        }
        let sent = stats.sender.sent_chunks;
        if sent - stats.sender.retransmitted_chunks >= chunks {
            live.passed.get_or_init(|| (Instant::now(), sent));
        }
        *lock(&live.sender) = stats;
        if sends.iter().all(|send| send.outcome().is_some()) {
            live.finished.get_or_init(Instant::now);
        }
        live.finished.get().is_some() || live.is_over()
    })
}

/// The thread of the receiver. It answers until the sender has received all acknowledgements.
fn receive(end: &mut End, live: &Live) -> Result<(), farwrite::Error> {
    let _end_all = EndAll(live);
    end.endpoint.run_until(|_| live.is_over())
}

/// Samples the bitmap until the transfer has ended.
fn watch_over(
    scenario: &Scenario,
    live: &Live,
    cancel: &Cancel,
    sampler: &mut Sampler,
    mut watch: impl FnMut(&TransferState),
) -> Result<(), Failure> {
    let patience = STALL + scenario.link.rtt * 20;
    let mut last = (0, Instant::now());
    while !live.is_over() {
        thread::sleep(SAMPLE_PERIOD);
        cancel.check()?;
        let arrived_chunks = sampler.sample();
        if arrived_chunks != last.0 {
            last = (arrived_chunks, Instant::now());
        } else if last.1.elapsed() > patience {
            let what = format!(
                "nothing has arrived for {} s, with {arrived_chunks} of {} chunks there",
                patience.as_secs(),
                scenario.chunks()
            );
            return Err(Failure::new(Exit::Unreachable, what));
        }
        let elapsed = live.started.get().map_or(Duration::ZERO, Instant::elapsed);
        // The sender's thread needs this lock in each poll, so it is not held while the state is shown.
        let sender = *lock(&live.sender);
        watch(&TransferState {
            elapsed,
            arrived_chunks,
            sender,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_and_told() {
        let sent = vec![7; 1000];
        let mut received = sent.clone();
        assert_eq!(difference(&sent, &received), None);
        received[999] = 0;
        received[300] = 0;
        let told = difference(&sent, &received).expect("a difference");
        assert!(told.starts_with("2 of 1000 bytes"), "{told}");
        assert!(told.ends_with("at 300"), "{told}");
    }
}
