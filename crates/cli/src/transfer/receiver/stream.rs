//! From messages to segments: the thread that polls the receiver's endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use farwrite::{
    Endpoint, MemoryRegion, Outcome, QpStats, QueuePair, RecvHandle, Region, UdpFabric,
};
use farwrite_session::Message;
use farwrite_session::files::Manifest;

use super::disk::{Job, Tally, Written};
use super::{Event, Limits};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::transfer::failure::of_endpoint;
use crate::transfer::meter::Meter;
use crate::transfer::shape::Shape;
use crate::transfer::talk::{Voice, say_info};
use crate::transfer::watch::{Signs, Watch};
use crate::transfer::{Around, HOUSEKEEPING, MAX_WAIT};
use crate::units::real;

/// Between two words to the sender on how far this end is.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// When all is done: for the sender to hear so and to close the channel.
const LINGER: Duration = Duration::from_secs(5);

/// What the endpoint's thread looks at beside its endpoint.
pub(super) struct Watched<'a> {
    pub(super) voice: &'a Voice,
    /// Messages that came on the channel.
    pub(super) words: &'a AtomicU64,
    pub(super) events: &'a Receiver<Event>,
    pub(super) limits: &'a Limits,
    /// Between which UDP ports packets go, for people.
    pub(super) ports: String,
}

/// What came of the reception.
pub(super) struct Received {
    pub(super) tally: Tally,
    pub(super) stats: QpStats,
}

/// Receives the stream.
pub(super) struct Stream {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    shape: Shape,
    /// Receives under way, in the order of the stream.
    posted: VecDeque<(RecvHandle, MemoryRegion)>,
    /// Segments for which a receive was posted.
    posted_segments: u64,
    /// Segments handed to the disk, or about to be.
    taken_segments: u64,
    /// Buffers made so far.
    made: u64,
    /// Memory that the endpoint had no slot for yet.
    ready: Option<MemoryRegion>,
    /// A segment that the disk had no room for yet.
    waiting: Option<Job>,
    jobs: SyncSender<Job>,
    empties: Receiver<Region>,
    written: Arc<Written>,
}

impl Stream {
    pub(super) fn new(
        endpoint: Endpoint<UdpFabric>,
        qp: QueuePair,
        shape: Shape,
        jobs: SyncSender<Job>,
        empties: Receiver<Region>,
        written: Arc<Written>,
    ) -> Self {
        Self {
            endpoint,
            qp,
            shape,
            posted: VecDeque::new(),
            posted_segments: 0,
            taken_segments: 0,
            made: 0,
            ready: None,
            waiting: None,
            jobs,
            empties,
            written,
        }
    }

    /// Tells the sender where to send to.
    fn announce(&self, voice: &Voice) -> Result<(), Failure> {
        let info = self.endpoint.qp_info(self.qp);
        say_info(voice, &info.map_err(|error| of_endpoint(&error))?)
    }

    /// Receives until the disk has done with every file.
    pub(super) fn run(
        mut self,
        watched: Watched<'_>,
        manifest: &Arc<Manifest>,
        around: &Around<'_>,
    ) -> Result<Received, Failure> {
        // First the receives: the sender may be quick.
        self.post()?;
        self.announce(watched.voice)?;
        let mut meter = Meter::new(around.console, "receiving", Arc::clone(manifest));
        let mut kept = Instant::now();
        let mut told = kept;
        let mut watch = Watch::new(watched.limits.timeout, watched.ports, kept);
        loop {
            self.poll()?;
            self.take()?;
            self.post()?;
            match watched.events.try_recv() {
                Ok(Event::Disk(tally)) => {
                    let tally = tally?;
                    meter.finish(self.shape.stream_bytes, "done");
                    self.linger(watched.events, around.interrupt)?;
                    let stats = self.stats()?;
                    return Ok(Received { tally, stats });
                }
                Ok(Event::Ended(failure)) => return Err(failure),
                Err(_) => {}
            }
            let now = Instant::now();
            if now - kept < HOUSEKEEPING {
                continue;
            }
            kept = now;
            around.interrupt.check()?;
            let stats = self.stats()?;
            watch.look(now, self.signs(&stats, watched.words))?;
            let stream_bytes = self.written.bytes();
            meter.show(now, stream_bytes, twice(&stats), "came twice");
            if now - told >= HEARTBEAT {
                told = now;
                let progress = Message::Progress { stream_bytes };
                watched.voice.say_by_the_way(&progress);
            }
        }
    }

    fn poll(&mut self) -> Result<(), Failure> {
        self.endpoint
            .poll_and_wait(MAX_WAIT)
            .map_err(|error| of_endpoint(&error))
    }

    /// Answers until the sender has closed the channel: what it heard last may have been lost.
    fn linger(&mut self, events: &Receiver<Event>, interrupt: &Interrupt) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < LINGER && events.try_recv().is_err() && interrupt.check().is_ok() {
            self.poll()?;
        }
        Ok(())
    }

    /// Hands whole messages to the disk, in the order of the stream. A full queue leaves them where
    /// they are, and so no new receives are posted: a slow disk slows the sender down.
    fn take(&mut self) -> Result<(), Failure> {
        loop {
            if let Some(job) = self.waiting.take() {
                match self.jobs.try_send(job) {
                    Ok(()) => {}
                    Err(TrySendError::Full(job)) => {
                        self.waiting = Some(job);
                        return Ok(());
                    }
                    // The disk's thread has ended, and tells why.
                    Err(TrySendError::Disconnected(_)) => return Ok(()),
                }
            }
            let Some((handle, _)) = self.posted.front() else {
                return Ok(());
            };
            let Some(outcome) = handle.outcome() else {
                return Ok(());
            };
            let (segment, came) = (self.taken_segments, handle.length());
            let want = self.shape.bytes_of(segment);
            if outcome != Outcome::Whole || came != Some(want) {
                let came = came.map_or("no".into(), |bytes| bytes.to_string());
                let what = format!(
                    "segment {segment} ended as {outcome:?} with {came} bytes, want all of {want}"
                );
                return Err(Failure::new(Exit::Other, what));
            }
            let Some((_, region)) = self.posted.pop_front() else {
                return Ok(());
            };
            let buffer = self.endpoint.deregister(region);
            self.taken_segments += 1;
            self.waiting = Some(Job::Segment {
                buffer: buffer.map_err(|error| of_endpoint(&error))?,
                bytes: usize::try_from(want).unwrap_or(usize::MAX),
            });
        }
    }

    /// Posts receives for the next segments, as far as there are buffers.
    fn post(&mut self) -> Result<(), Failure> {
        while self.posted_segments < self.shape.segments() {
            let Some(region) = self.memory()? else {
                return Ok(());
            };
            // No more than the segment may have: who sends more is refused.
            let bytes = self.shape.bytes_of(self.posted_segments);
            match self.endpoint.post_recv(self.qp, region.slice(0..bytes)) {
                Ok(handle) => self.posted.push_back((handle, region)),
                Err(farwrite::Error::Retry { .. }) => {
                    self.ready = Some(region);
                    return Ok(());
                }
                Err(error) => return Err(of_endpoint(&error)),
            }
            self.posted_segments += 1;
        }
        Ok(())
    }

    /// Registered memory for one more segment, if there is any.
    fn memory(&mut self) -> Result<Option<MemoryRegion>, Failure> {
        if let Some(region) = self.ready.take() {
            return Ok(Some(region));
        }
        let buffer = match self.empties.try_recv() {
            Ok(buffer) => buffer,
            Err(_) if self.made < self.shape.buffers() => {
                self.made += 1;
                let bytes = usize::try_from(self.shape.bytes_of(0)).unwrap_or(usize::MAX);
                Region::owned(vec![0_u8; bytes])
            }
            Err(_) => return Ok(None),
        };
        let region = self.endpoint.register_region(buffer);
        region.map(Some).map_err(|error| of_endpoint(&error))
    }

    fn signs(&self, stats: &QpStats, words: &AtomicU64) -> Signs {
        let useless = stats.duplicate_packets + stats.late_packets + stats.invalid_packets;
        let packets = self.endpoint.counters().received_packets;
        let written = &self.written;
        Signs {
            // A transfer of no bytes needs no packets.
            packets: packets + u64::from(self.shape.stream_bytes == 0),
            words: words.load(Ordering::Relaxed),
            moved: stats.received_packets.saturating_sub(useless)
                + written.bytes()
                + written.files(),
        }
    }

    fn stats(&self) -> Result<QpStats, Failure> {
        self.endpoint
            .qp_stats(self.qp)
            .map_err(|error| of_endpoint(&error))
    }
}

/// The share of packets that were there already.
pub(super) fn twice(stats: &QpStats) -> f64 {
    let useless = stats.duplicate_packets + stats.late_packets;
    real(useless) / real(stats.received_packets.max(1))
}
