//! Receives messages as segments: the thread that polls the receiver's endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::Instant;

use farwrite::{MemoryRegion, Outcome, QpStats, QueuePair, RealTime, RecvHandle, Region};
use farwrite_files::{Manifest, PrefixReader, TransferPlan, Wanted};
use farwrite_units::show::Percent;

use super::buffer_demand::BufferDemand;
use super::disk_writer::{Job, Segment};
use super::prefix;
use super::{Event, Reception};
use crate::channel::LAST_MESSAGE;
use crate::liveness::{LifeSigns, Liveness, least_steps};
use crate::memory_pool::MemoryShare;
use crate::progress_counts::PeerCounts;
use crate::progress_meter::{ProgressMeter, Status};
use crate::report::duplicate_share;
use crate::results::FileResults;
use crate::route::RoutedEndpoint;
use crate::setup::send_qp_info;
use crate::shape::Shape;
use crate::stream_qp::StreamQp;
use crate::threads::wait_until;
use crate::waking::HOUSEKEEPING;
use crate::{Error, ErrorKind, SchemeSetting};

/// What the endpoint's thread checks besides its endpoint.
pub(super) struct StreamContext<'a> {
    pub(super) reception: &'a Reception<'a>,
    /// Reads what this end has of interrupted files.
    pub(super) prefix_reader: Option<PrefixReader>,
    /// Bytes of the stream that this end has already, as far as known at the start.
    pub(super) unsent_bytes: u64,
    pub(super) has_present: bool,
    /// Answers later transfers that want files of this one.
    pub(super) wanted: Wanted,
    pub(super) peer: &'a PeerCounts,
    pub(super) events: &'a Receiver<Event>,
    /// The UDP ports of both ends, for people.
    pub(super) ports: String,
}

pub(super) struct Received {
    pub(super) results: FileResults,
    /// When the disk had finished every file.
    pub(super) ended: Instant,
    pub(super) stats: QpStats,
    /// The shape at the end.
    pub(super) shape: Shape,
}

/// Memory for a segment, and the receive into it.
pub(super) struct Posted {
    /// `None` after the queue pair of an unfinished receive has ended, until it is posted again.
    pub(super) handle: Option<RecvHandle>,
    region: MemoryRegion,
}

impl Posted {
    /// How the receive has ended, if it has.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.handle.as_ref()?.outcome()
    }
}

/// Receives the stream.
pub(super) struct Stream {
    pub(super) routed: RoutedEndpoint,
    pub(super) stream_qp: StreamQp,
    pub(super) shape: Shape,
    pub(super) plan: TransferPlan,
    pub(super) scheme: SchemeSetting,
    /// Receives under way, in the order of the stream.
    pub(super) posted: VecDeque<Posted>,
    /// Segments handed to the disk, or about to be: those before the segments in `posted`.
    pub(super) taken_segments: u64,
    demand: BufferDemand,
    /// Holds the memory of one buffer from the start.
    memory: MemoryShare,
    /// Bytes of a buffer, with the parity of its segment.
    buffer_bytes: u64,
    /// Buffers that exist.
    made: u64,
    /// Memory for which the endpoint had no slot yet.
    ready: Option<MemoryRegion>,
    /// A segment for which the disk had no room yet.
    waiting: Option<Job>,
    jobs: SyncSender<Job>,
    empties: Receiver<Region>,
}

impl Stream {
    pub(super) fn new(
        (routed, qp): (RoutedEndpoint, QueuePair),
        shape: Shape,
        (plan, scheme): (TransferPlan, SchemeSetting),
        (demand, memory): (BufferDemand, MemoryShare),
        (jobs, empties): (SyncSender<Job>, Receiver<Region>),
    ) -> Self {
        Self {
            routed,
            stream_qp: StreamQp::new(qp),
            shape,
            plan,
            scheme,
            posted: VecDeque::new(),
            taken_segments: 0,
            demand,
            memory,
            buffer_bytes: shape.buffer_bytes(),
            made: 0,
            ready: None,
            waiting: None,
            jobs,
            empties,
        }
    }

    /// Receives until the disk has finished every file and the sender knows it.
    pub(super) fn run(
        mut self,
        mut context: StreamContext<'_>,
        manifest: &Arc<Manifest>,
    ) -> Result<Received, Error> {
        let reception = context.reception;
        let (outbox, hooks) = (&reception.outbox, reception.hooks);
        outbox.wake_when_done(self.routed.endpoint.fabric().waker());
        // Post the receives before the sender learns where to send, since it may send at once.
        self.post()?;
        let info = self.stream_qp.info(&self.routed.endpoint)?;
        send_qp_info(outbox, &info, hooks.cancel)?;
        if let Some(reader) = context.prefix_reader.take() {
            prefix::start(reader, outbox.clone(), Arc::clone(&reception.heartbeat))?;
        }
        let total_bytes = manifest.stream_bytes().saturating_sub(context.unsent_bytes);
        let manifest = Arc::clone(manifest);
        let mut meter = ProgressMeter::new(hooks.observer, "receiving", manifest, total_bytes);
        // The steps of the sender are those of its disk, and whole messages that arrived here.
        let timeout = reception.settings.timeout;
        let least = [least_steps(timeout, None), 1];
        let ports = context.ports.clone();
        let mut liveness = Liveness::new(timeout, least, ports, Instant::now());
        let mut result = None;
        loop {
            let stepped = self.step(&context, &mut liveness, &mut meter, &mut result);
            let is_over = !matches!(stepped, Ok(false));
            let Some((results, ended)) = result.take_if(|_| is_over) else {
                stepped?;
                continue;
            };
            if let Err(error) = stepped {
                // The verdicts may be under way.
                wait_until(|| outbox.is_done_there(), LAST_MESSAGE);
                hooks.warn(format!(
                    "every file has its verdict, but the sender may not know it: {error}"
                ));
            }
            return Ok(Received {
                results,
                ended,
                stats: self.stats()?,
                shape: self.shape,
            });
        }
    }

    /// Works until the next housekeeping. `result` gets what the disk reports when it has finished. Then
    /// this end goes on, since the last acknowledgement and the last message may have been lost, and
    /// answers until the sender has that message, or has closed the channel. Returns whether it has.
    fn step(
        &mut self,
        context: &StreamContext<'_>,
        liveness: &mut Liveness,
        meter: &mut ProgressMeter<'_>,
        result: &mut Option<(FileResults, Instant)>,
    ) -> Result<bool, Error> {
        let (outbox, hooks) = (&context.reception.outbox, context.reception.hooks);
        let start = Instant::now();
        while start.elapsed() < HOUSEKEEPING {
            let next_ns = self.routed.poll()?;
            let mut has_moved = self.take()? | self.post()?;
            match context.events.try_recv() {
                Ok(Event::Disk(results)) => {
                    let (results, _) = result.insert((results?, Instant::now()));
                    meter.finish(results.sent_bytes());
                    hooks.tell_files(&results.ended_files);
                    let counters = self.stream_qp.counters(&self.routed.endpoint)?;
                    hooks.observer.observe(counters);
                    has_moved = true;
                }
                Ok(Event::Cutover(cutover)) => {
                    self.cut_over(&cutover, context.reception)?;
                    has_moved = true;
                }
                Ok(Event::Ended { is_closed, .. }) if is_closed && result.is_some() => {
                    return Ok(true);
                }
                Ok(Event::Ended { error, .. }) => return Err(error),
                Err(_) => {}
            }
            if result.is_some() && outbox.is_done_there() {
                return Ok(true);
            }
            if !has_moved {
                self.routed.wait(next_ns)?;
            }
        }
        let meter = result.is_none().then_some(meter);
        self.keep_house(Instant::now(), context, liveness, meter)?;
        Ok(false)
    }

    /// Does what is not urgent: cancellation, liveness, progress.
    fn keep_house(
        &mut self,
        now: Instant,
        context: &StreamContext<'_>,
        liveness: &mut Liveness,
        meter: Option<&mut ProgressMeter<'_>>,
    ) -> Result<(), Error> {
        let reception = context.reception;
        let (hooks, heartbeat) = (reception.hooks, &reception.heartbeat);
        hooks.cancel.check()?;
        let counters = self.stream_qp.counters(&self.routed.endpoint)?;
        hooks.observer.observe(counters);
        let stats = self.stats()?;
        heartbeat.received.set(stats.new_bytes);
        let mut packets = self.routed.heard_packets();
        // A transfer of no bytes needs no packets.
        packets[0] += u64::from(self.shape.stream_bytes == 0 || context.has_present);
        let heard = (packets, self.routed.answered_ns());
        let signs = LifeSigns::read(now, heard, heartbeat, context.peer);
        let silence = liveness.silence(now);
        if silence.is_some() {
            self.routed.ask();
        }
        if let Some(warning) = liveness.look(now, signs)? {
            hooks.warn(warning);
        }
        self.routed.watch_passage(now, liveness, hooks)?;
        let answered = context.wanted.answer(liveness.heard_at(), now);
        answered.map_err(|error| Error::of_sink(&error))?;
        heartbeat.arrived_bytes.raise(self.arrived_bytes());
        if let Some(meter) = meter {
            let path = Percent(duplicate_share(&stats)).to_string();
            let status = Status {
                path: &format!("{path:>5} came twice"),
                limited_by: None,
                ended_files: reception.shared_results.count(),
                slow_disk: signs.slow_disk(),
                silence,
            };
            meter.show(now, heartbeat.arrived_bytes.get(), &status);
            hooks.tell_files(&reception.shared_results.take_ended());
        }
        Ok(())
    }

    /// Bytes of the stream that have arrived: the segments that were taken, and what the bitmaps of the
    /// others show. If the sender abandoned files, segments can be shorter, and the count is an upper
    /// bound.
    fn arrived_bytes(&self) -> u64 {
        let taken = self.taken_segments.saturating_mul(self.shape.segment_bytes);
        let taken = taken.min(self.shape.stream_bytes);
        let open = self.posted.iter().filter_map(|one| one.handle.as_ref());
        let open: u64 = open.map(|handle| handle.bitmap().bytes()).sum();
        taken.saturating_add(open).min(self.shape.stream_bytes)
    }

    /// Hands whole messages to the disk, in the order of the stream. While the disk's queue is
    /// full, messages stay where they are and no new receives are posted, so a slow disk slows the
    /// sender down. Returns whether there was anything to hand over.
    fn take(&mut self) -> Result<bool, Error> {
        let before = self.taken_segments;
        while self.take_one()? {}
        Ok(self.taken_segments > before)
    }

    /// Hands the next whole message to the disk. Returns whether there was one.
    fn take_one(&mut self) -> Result<bool, Error> {
        if let Some(job) = self.waiting.take() {
            match self.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.waiting = Some(job);
                    return Ok(false);
                }
                // The disk's thread has ended, and an event reports the reason.
                Err(TrySendError::Disconnected(_)) => return Ok(false),
            }
        }
        let first = self.posted.front();
        let Some(handle) = first.and_then(|first| first.handle.as_ref()) else {
            return Ok(false);
        };
        let Some(outcome) = handle.outcome() else {
            return Ok(false);
        };
        let segment = self.taken_segments;
        // If the sender abandoned files, segments can be shorter. The disk's thread checks the
        // length of the whole stream.
        let want = self.shape.bytes_of(segment);
        let bytes = handle.length().filter(|bytes| *bytes <= want);
        let abandoned = handle.immediate().unwrap_or(0);
        let Some(bytes) = bytes.filter(|_| outcome == Outcome::Whole) else {
            // If the queue pair is broken, this returns the reason.
            self.stats()?;
            let what = format!(
                "segment {segment} ended as {outcome:?} with {:?} bytes, want at most {want}",
                handle.length()
            );
            return Err(Error::new(ErrorKind::Other, what));
        };
        let Some(first) = self.posted.pop_front() else {
            return Ok(false);
        };
        let buffer = self.routed.endpoint.deregister(first.region)?;
        self.taken_segments += 1;
        self.demand.note(Instant::now(), self.taken_segments);
        self.waiting = Some(Job::Segment(Segment {
            buffer,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            abandoned,
        }));
        Ok(true)
    }

    /// Posts receives for segments that an ended queue pair did not finish, and for the next
    /// segments, as long as there are slots and buffers. Returns whether there were any.
    pub(super) fn post(&mut self) -> Result<bool, Error> {
        let mut has_posted = false;
        while let Some(place) = self.posted.iter().position(|one| one.handle.is_none()) {
            let handle = self.post_one(place, self.posted[place].region)?;
            let is_posted = handle.is_some();
            self.posted[place].handle = handle;
            if !is_posted {
                return Ok(has_posted);
            }
            has_posted = true;
        }
        while self.taken_segments + (self.posted.len() as u64) < self.shape.segments() {
            let Some(region) = self.memory()? else {
                return Ok(has_posted);
            };
            let Some(handle) = self.post_one(self.posted.len(), region)? else {
                self.ready = Some(region);
                return Ok(has_posted);
            };
            let handle = Some(handle);
            self.posted.push_back(Posted { handle, region });
            has_posted = true;
        }
        // No segment needs a further buffer. Others may.
        while self.made > 1 && self.empties.try_recv().is_ok() {
            self.give_back();
        }
        Ok(has_posted)
    }

    /// Counts a buffer less. Its memory is free already.
    fn give_back(&mut self) {
        self.made -= 1;
        self.memory.give(self.buffer_bytes);
    }

    /// Posts the receive for a segment, given by its index after those taken. Returns `None` while
    /// there is no slot.
    fn post_one(
        &mut self,
        place: usize,
        region: MemoryRegion,
    ) -> Result<Option<RecvHandle>, Error> {
        let Some(qp) = self.stream_qp.open() else {
            return Ok(None);
        };
        // A segment that is longer than planned does not fit and is refused.
        let bytes = self.shape.bytes_of(self.taken_segments + place as u64);
        match self.routed.endpoint.post_recv(qp, region.slice(0..bytes)) {
            Ok(handle) => Ok(Some(handle)),
            Err(farwrite::Error::Retry { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns registered memory for one more segment, if there is any.
    fn memory(&mut self) -> Result<Option<MemoryRegion>, Error> {
        if let Some(region) = self.ready.take() {
            return Ok(Some(region));
        }
        let buffer = match self.empties.try_recv() {
            // Other transfers have come, and need a part of what this one has.
            Ok(_) if self.made > 1 && self.memory.exceeds() => {
                self.give_back();
                return Ok(None);
            }
            Ok(buffer) => buffer,
            Err(_)
                if self.made < self.demand.wanted
                    && (self.made == 0 || self.memory.take(self.buffer_bytes)) =>
            {
                self.made += 1;
                let bytes = usize::try_from(self.shape.bytes_of(0)).unwrap_or(usize::MAX);
                Region::owned(vec![0_u8; bytes])
            }
            Err(_) => return Ok(None),
        };
        Ok(Some(self.routed.endpoint.register_region(buffer)?))
    }

    pub(super) fn stats(&self) -> Result<QpStats, Error> {
        self.stream_qp.stats(&self.routed.endpoint)
    }
}
