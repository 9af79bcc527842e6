//! Sends buffers as messages: the thread that polls the sender's endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

use farwrite::{
    MemoryRegion, Outcome, PeerStats, QpStats, RealTime, Region, SchemeName, SendHandle,
    SendOptions,
};
use farwrite_files::{Manifest, Source};

use super::auto::Auto;
use super::channel_reader::ChannelEvent;
use super::cutover::CutoverState;
use super::disk_reader::{DiskReader, Filled};
use super::{Negotiated, SendSettings};
use crate::bottleneck::{Bottleneck, Bottlenecks, StreamState};
use crate::channel_writer::Outbox;
use crate::choices::Choices;
use crate::liveness::{LifeSigns, Liveness, least_steps};
use crate::progress_counts::{OwnCounts, PeerCounts};
use crate::progress_meter::{ProgressMeter, Status};
use crate::results::{FileResults, SharedResults};
use crate::route::RoutedEndpoint;
use crate::shape::Shape;
use crate::stream_qp::StreamQp;
use crate::waking::{HOUSEKEEPING, Waking};
use crate::{Error, ErrorKind, SchemeSetting, TransferHooks};
use farwrite_units::show::{Percent, Time};

/// Filled buffers that wait to be posted.
const READ_AHEAD: usize = 2;

/// A segment that was posted, and whose memory is still in use.
pub(super) struct InFlight {
    pub(super) state: SegmentState,
    ready: Ready,
}

/// The state of a segment.
pub(super) enum SegmentState {
    /// Its queue pair has ended, and the segment must be posted again.
    Cut,
    Posted(SendHandle),
    Arrived,
}

pub(super) struct Sent {
    pub(super) results: FileResults,
    pub(super) stats: QpStats,
    pub(super) peer: PeerStats,
    pub(super) bottlenecks: Bottlenecks,
    /// The shape at the end.
    pub(super) shape: Shape,
    /// Whether the path loses larger packets.
    pub(super) is_narrow: bool,
    /// The choices of the planner, if it chose.
    pub(super) choices: Option<Choices>,
}

pub(super) enum SchemePicker {
    Named(SchemeName),
    Auto(Box<Auto>),
}

/// Memory with the next bytes of the stream.
#[derive(Clone, Copy)]
struct Ready {
    region: MemoryRegion,
    bytes: u64,
    /// As [`Filled::reports`].
    reports: u32,
}

/// Sends the stream.
pub(super) struct Stream {
    pub(super) routed: RoutedEndpoint,
    pub(super) stream_qp: StreamQp,
    pub(super) shape: Shape,
    /// Whether the path loses larger packets than those of the shape.
    pub(super) is_narrow: bool,
    pub(super) picker: SchemePicker,
    pub(super) cutover: CutoverState,
    liveness: Liveness,
    /// Segments in flight, in the order of the stream.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Segments before those in flight.
    pub(super) settled_segments: u64,
    /// Memory that was read but that the endpoint has not accepted yet.
    ready: Option<Ready>,
    /// Whether the disk reader has handed over everything.
    is_read: bool,
    bottlenecks: Bottlenecks,
    arrived_bytes: u64,
    /// Bytes that the receiver has already, as far as known at the start.
    unsent_bytes: u64,
    has_present: bool,
    shared_results: SharedResults,
    empties: Sender<Region>,
    filled: Receiver<Filled>,
    pub(super) outbox: Outbox,
    heartbeat: Arc<OwnCounts>,
    peer: Arc<PeerCounts>,
}

impl Stream {
    /// Makes the sending end of the stream, and the disk reader that reads the files for it.
    pub(super) fn new(
        negotiated: Negotiated,
        settings: &SendSettings,
        outbox: Outbox,
        (heartbeat, peer): (Arc<OwnCounts>, Arc<PeerCounts>),
        (shared_results, source): (SharedResults, &Source),
    ) -> (Self, DiskReader) {
        let shape = negotiated.shape;
        let least = least_steps(settings.timeout, settings.rate_control.max_rate_bps());
        let (empties, used) = channel();
        let (fill, filled) = sync_channel(READ_AHEAD);
        let disk_reader = DiskReader {
            outbox: outbox.clone(),
            heartbeat: Arc::clone(&heartbeat),
            segment_bytes: usize::try_from(shape.segment_bytes).expect("chosen within memory"),
            // Data read ahead takes the memory of a message in flight, so `--memory` covers
            // everything.
            budget: u64::from(shape.slots),
            empties: used,
            filled: Waking::new(fill, &negotiated.routed.endpoint.fabric().waker()),
            shared_results: shared_results.clone(),
        };
        let stream = Self {
            routed: negotiated.routed,
            stream_qp: StreamQp::new(negotiated.qp),
            shape,
            is_narrow: negotiated.is_narrow,
            cutover: CutoverState {
                scheme: negotiated.scheme,
                rate_control: negotiated.rate_control,
                sealing: settings.sealing,
                times: 0,
            },
            picker: match negotiated.scheme {
                SchemeSetting::Named(scheme) => SchemePicker::Named(scheme),
                SchemeSetting::Auto => {
                    let likely_bps = settings.speed().likely_bps;
                    let loss = settings.expected_loss;
                    let auto = Auto::new(shape, negotiated.rtt, likely_bps, loss);
                    SchemePicker::Auto(Box::new(auto))
                }
            },
            liveness: Liveness::new(
                settings.timeout,
                [least; 2],
                negotiated.ports,
                Instant::now(),
            ),
            in_flight: VecDeque::new(),
            settled_segments: 0,
            ready: None,
            is_read: false,
            bottlenecks: Bottlenecks::default(),
            arrived_bytes: 0,
            unsent_bytes: source.unsent_bytes(),
            has_present: source.has_present(),
            shared_results: shared_results.clone(),
            empties,
            filled,
            outbox,
            heartbeat,
            peer,
        };
        (stream, disk_reader)
    }

    /// Sends until the receiver has given a verdict on every file.
    pub(super) fn run(
        mut self,
        heard: &Receiver<ChannelEvent>,
        manifest: &Arc<Manifest>,
        hooks: &TransferHooks<'_>,
    ) -> Result<Sent, Error> {
        let total_bytes = manifest.stream_bytes().saturating_sub(self.unsent_bytes);
        let manifest = Arc::clone(manifest);
        let mut meter = ProgressMeter::new(hooks.observer, "sending", manifest, total_bytes);
        let mut kept = Instant::now();
        loop {
            let next_ns = self.routed.poll()?;
            let mut has_moved = self.settle()? | self.post()?;
            match heard.try_recv() {
                Ok(ChannelEvent::Over(results)) => {
                    let results = results?;
                    meter.finish(results.sent_bytes());
                    hooks.tell_files(&results.ended_files);
                    let counters = self.stream_qp.counters(&self.routed.endpoint)?;
                    hooks.observer.observe(counters);
                    return self.finish(results);
                }
                Ok(ChannelEvent::CutoverAccepted(accepted)) => {
                    self.finish_cutover(&accepted)?;
                    has_moved = true;
                }
                Err(_) => {}
            }
            let now = Instant::now();
            if now - kept >= HOUSEKEEPING {
                kept = now;
                self.keep_house(now, &mut meter, hooks)?;
            }
            if !has_moved {
                self.routed.wait(next_ns)?;
            }
        }
    }

    fn finish(self, results: FileResults) -> Result<Sent, Error> {
        Ok(Sent {
            results,
            stats: self.stats()?,
            peer: self.peer_stats()?,
            bottlenecks: self.bottlenecks,
            shape: self.shape,
            is_narrow: self.is_narrow,
            choices: match self.picker {
                SchemePicker::Named(_) => None,
                SchemePicker::Auto(auto) => Some(auto.choices),
            },
        })
    }

    /// Does what is not urgent: cancellation, liveness, progress.
    fn keep_house(
        &mut self,
        now: Instant,
        meter: &mut ProgressMeter<'_>,
        hooks: &TransferHooks<'_>,
    ) -> Result<(), Error> {
        hooks.cancel.check()?;
        let counters = self.stream_qp.counters(&self.routed.endpoint)?;
        hooks.observer.observe(counters);
        if let Some(max_rate) = hooks.max_rate {
            self.limit_rate(max_rate.bps())?;
        }
        self.heartbeat.received.set(self.arrived_bytes);
        self.heartbeat.rate_bps.set(self.peer_stats()?.pace_bps);
        let mut packets = self.routed.heard_packets();
        if packets[0] > 0 && self.arrived_so_far() > 0 {
            self.shared_results.lock().has_met = true;
        }
        // A transfer of no bytes needs no packets.
        packets[0] += u64::from(self.shape.stream_bytes == 0 || self.has_present);
        let heard = (packets, self.routed.answered_ns());
        let signs = LifeSigns::read(now, heard, &self.heartbeat, &self.peer);
        self.watch_size(&signs, hooks)?;
        let silence = self.liveness.silence(now);
        if silence.is_some() {
            self.routed.check_address()?;
            self.routed.ask();
        }
        if let Some(warning) = self.liveness.look(now, signs)? {
            hooks.warn(warning);
        }
        self.routed.watch_passage(now, &mut self.liveness, hooks)?;
        let bottleneck = self.bottleneck(silence.is_some())?;
        self.bottlenecks.add(bottleneck);
        let status = Status {
            path: &self.path_note(bottleneck)?,
            limited_by: bottleneck.map(Bottleneck::key),
            ended_files: self.shared_results.count(),
            slow_disk: signs.slow_disk(),
            silence,
        };
        meter.show(now, self.arrived_so_far(), &status);
        hooks.tell_files(&self.shared_results.take_ended());
        Ok(())
    }

    /// Changes the maximum rate, if it is another one.
    fn limit_rate(&mut self, bps: u64) -> Result<(), Error> {
        let rate_control = &mut self.cutover.rate_control;
        if rate_control.max_rate_bps() != Some(bps)
            && let Some(qp) = self.stream_qp.open()
        {
            *rate_control = rate_control.at_most(bps);
            self.routed.endpoint.set_max_rate(qp, bps)?;
        }
        Ok(())
    }

    /// Bytes of the stream that have arrived: whole messages, as this end knows, and the parts of messages
    /// that the receiver reports on the channel.
    fn arrived_so_far(&self) -> u64 {
        let reported = self.peer.progress().stream_bytes;
        let handed_over: u64 = self.in_flight.iter().map(|one| one.ready.bytes).sum();
        let most = self.arrived_bytes + handed_over;
        reported.clamp(self.arrived_bytes, most)
    }

    /// Returns what limits the speed of the stream now. `is_silent`: nothing is heard of the receiver.
    fn bottleneck(&self, is_silent: bool) -> Result<Option<Bottleneck>, Error> {
        let peer = self.peer_stats()?;
        let state = StreamState {
            bound: peer.limit,
            in_flight_bytes: peer.in_flight_bytes,
            in_flight: self.in_flight.len(),
            window: self.window()?,
            is_read: self.is_read && self.ready.is_none(),
            has_max_rate: self.cutover.rate_control.max_rate_bps().is_some(),
            is_silent,
        };
        Ok(Bottleneck::of(&self.shape, state))
    }

    /// Reclaims the memory of segments that have arrived. Returns whether there were any.
    fn settle(&mut self) -> Result<bool, Error> {
        let before = self.settled_segments;
        while let Some(first) = self.in_flight.front() {
            let outcome = match &first.state {
                SegmentState::Cut => break,
                SegmentState::Posted(handle) => handle.outcome(),
                SegmentState::Arrived => Some(Outcome::Whole),
            };
            match outcome {
                None => break,
                Some(Outcome::Whole) => {}
                Some(outcome) => {
                    // If the queue pair is broken, this returns the reason.
                    self.stats()?;
                    let segment = self.settled_segments;
                    let what = format!("the receiver closed segment {segment} as {outcome:?}");
                    return Err(Error::new(ErrorKind::Other, what));
                }
            }
            self.arrived_bytes += first.ready.bytes;
            let buffer = self.routed.endpoint.deregister(first.ready.region)?;
            self.in_flight.pop_front();
            self.settled_segments += 1;
            // The disk reader no longer exists when everything has been read.
            let _ = self.empties.send(buffer);
        }
        Ok(self.settled_segments > before)
    }

    /// Loss and round trip of the path, what limits the rate, and the scheme if it was chosen
    /// automatically.
    fn path_note(&self, bottleneck: Option<Bottleneck>) -> Result<String, Error> {
        let stats = self.stats()?;
        let loss = stats.send_loss.loss_chunk();
        let loss = loss.map_or("?".to_owned(), |share| Percent(share).to_string());
        let rtt = Time(Duration::from_nanos(stats.rtt_ns));
        let mut note = String::new();
        if let Some(bottleneck) = bottleneck {
            note += &format!("({}) ", bottleneck.name());
        }
        note += &format!("{loss:>5} lost RTT {rtt}");
        if let SchemePicker::Auto(auto) = &self.picker
            && let Some(scheme) = auto.current
        {
            note += &format!(" {scheme}");
        }
        Ok(note)
    }

    fn pick(&mut self) -> Result<SchemeName, Error> {
        let (stats, peer) = (self.stats()?, self.peer_stats()?);
        let cores = self.routed.endpoint.coding_cores();
        match &mut self.picker {
            SchemePicker::Named(scheme) => Ok(*scheme),
            SchemePicker::Auto(auto) => {
                auto.look(&stats, &peer, cores);
                Ok(auto.choose())
            }
        }
    }

    /// Messages that may be in flight.
    fn window(&self) -> Result<usize, Error> {
        Ok(match &self.picker {
            SchemePicker::Named(_) => usize::try_from(self.shape.slots).expect("at most 128"),
            SchemePicker::Auto(auto) => auto.in_flight(self.peer_stats()?.window_bytes),
        })
    }

    /// Hands the endpoint segments that an ended queue pair did not finish, and then new data, as
    /// long as there are slots. Returns whether there was anything to hand over.
    fn post(&mut self) -> Result<bool, Error> {
        let mut has_posted = false;
        if self.stream_qp.open().is_none() {
            return Ok(false);
        }
        let is_cut = |segment: &InFlight| matches!(segment.state, SegmentState::Cut);
        while let Some(place) = self.in_flight.iter().position(is_cut) {
            match self.post_one(self.in_flight[place].ready)? {
                Some(handle) => self.in_flight[place].state = SegmentState::Posted(handle),
                None => return Ok(has_posted),
            }
            has_posted = true;
        }
        while self.in_flight.len() < self.window()? {
            let Some(ready) = self.take_ready()? else {
                break;
            };
            let Some(handle) = self.post_one(ready)? else {
                self.ready = Some(ready);
                break;
            };
            let state = SegmentState::Posted(handle);
            self.in_flight.push_back(InFlight { state, ready });
            has_posted = true;
        }
        Ok(has_posted)
    }

    /// Hands the endpoint a segment; `None` while there is no slot.
    fn post_one(&mut self, ready: Ready) -> Result<Option<SendHandle>, Error> {
        let Some(qp) = self.stream_qp.open() else {
            return Ok(None);
        };
        let options = SendOptions {
            scheme: self.pick()?.tag(),
            // Without such reports, no immediate is necessary.
            immediate: Some(ready.reports).filter(|reports| *reports > 0),
            ..SendOptions::default()
        };
        let slice = ready.region.slice(0..ready.bytes);
        match self.routed.endpoint.post_send(qp, slice, options) {
            Ok(handle) => {
                if let SchemePicker::Auto(auto) = &mut self.picker {
                    auto.handle_sent();
                }
                Ok(Some(handle))
            }
            Err(farwrite::Error::Retry { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn take_ready(&mut self) -> Result<Option<Ready>, Error> {
        if let Some(ready) = self.ready.take() {
            return Ok(Some(ready));
        }
        let filled = match self.filled.try_recv() {
            Ok(filled) => filled,
            Err(ended) => {
                self.is_read = ended == TryRecvError::Disconnected;
                return Ok(None);
            }
        };
        Ok(Some(Ready {
            region: self.routed.endpoint.register_region(filled.buffer)?,
            bytes: filled.bytes,
            reports: filled.reports,
        }))
    }

    pub(super) fn peer_stats(&self) -> Result<PeerStats, Error> {
        self.stream_qp.peer_stats(&self.routed.endpoint)
    }

    fn stats(&self) -> Result<QpStats, Error> {
        self.stream_qp.stats(&self.routed.endpoint)
    }
}
