//! From buffers to messages: the thread that polls the sender's endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Instant;

use farwrite::{
    Endpoint, MemoryRegion, Outcome, QpStats, QueuePair, Region, SchemeName, SendHandle,
    SendOptions, UdpFabric,
};
use farwrite_session::files::Manifest;

use super::auto::{Auto, Choices};
use super::feed::{Feeder, Filled};
use super::listen::{Heard, Verdicts, Words};
use super::{Joined, Wishes};
use crate::choice::Choice;
use crate::exit::{Exit, Failure};
use crate::transfer::failure::of_endpoint;
use crate::transfer::meter::Meter;
use crate::transfer::shape::Shape;
use crate::transfer::talk::Voice;
use crate::transfer::watch::{Signs, Watch};
use crate::transfer::{Around, HOUSEKEEPING, MAX_WAIT};
use crate::units::real;

/// Buffers read ahead of those in flight.
const READ_AHEAD: usize = 2;

/// A message in flight.
struct InFlight {
    handle: SendHandle,
    region: MemoryRegion,
    bytes: u64,
}

/// What came of the sending.
pub(super) struct Sent {
    pub(super) verdicts: Verdicts,
    pub(super) stats: QpStats,
    /// Where the planner chose.
    pub(super) choices: Option<Choices>,
}

/// By which scheme messages go.
enum Picker {
    Named(SchemeName),
    Auto(Box<Auto>),
}

/// Sends the stream.
pub(super) struct Stream {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    shape: Shape,
    picker: Picker,
    watch: Watch,
    /// In the order of the stream.
    in_flight: VecDeque<InFlight>,
    /// Read, but not taken by the endpoint yet.
    ready: Option<(MemoryRegion, u64)>,
    arrived_bytes: u64,
    empties: Sender<Region>,
    filled: Receiver<Filled>,
    failures: Receiver<Failure>,
}

impl Stream {
    /// The sending end of the stream, and who reads the files for it.
    pub(super) fn new(joined: Joined, wishes: &Wishes, voice: Voice) -> (Self, Feeder) {
        let shape = joined.shape;
        let (empties, used) = channel();
        let (fill, filled) = sync_channel(READ_AHEAD);
        let (fail, failures) = channel();
        let feeder = Feeder {
            voice,
            segment_bytes: usize::try_from(shape.segment_bytes).expect("chosen within memory"),
            budget: u64::from(shape.slots) + READ_AHEAD as u64,
            empties: used,
            filled: fill,
            failures: fail,
        };
        let stream = Self {
            endpoint: joined.endpoint,
            qp: joined.qp,
            shape,
            picker: match joined.scheme {
                Choice::Named(scheme) => Picker::Named(scheme),
                Choice::Auto => {
                    let auto = Auto::new(shape, joined.rtt, wishes.rate_bps);
                    Picker::Auto(Box::new(auto))
                }
            },
            watch: Watch::new(wishes.timeout, joined.ports, Instant::now()),
            in_flight: VecDeque::new(),
            ready: None,
            arrived_bytes: 0,
            empties,
            filled,
            failures,
        };
        (stream, feeder)
    }

    /// Sends until the receiver has spoken of every file.
    pub(super) fn run(
        mut self,
        words: &Words,
        events: &Receiver<Heard>,
        manifest: &Arc<Manifest>,
        around: &Around<'_>,
    ) -> Result<Sent, Failure> {
        let mut meter = Meter::new(around.console, "sending", Arc::clone(manifest));
        let mut kept = Instant::now();
        loop {
            self.endpoint
                .poll_and_wait(MAX_WAIT)
                .map_err(|error| of_endpoint(&error))?;
            self.settle()?;
            self.post()?;
            if let Ok(heard) = events.try_recv() {
                let verdicts = heard?;
                meter.finish(self.shape.stream_bytes, "done");
                return Ok(Sent {
                    verdicts,
                    stats: self.stats()?,
                    choices: match &self.picker {
                        Picker::Named(_) => None,
                        Picker::Auto(auto) => Some(auto.choices().clone()),
                    },
                });
            }
            let now = Instant::now();
            if now - kept >= HOUSEKEEPING {
                kept = now;
                around.interrupt.check()?;
                if let Ok(failure) = self.failures.try_recv() {
                    return Err(failure);
                }
                self.look(now, words)?;
                let stats = self.stats()?;
                meter.show(now, self.arrived_bytes, again(&stats), &self.what());
            }
        }
    }

    /// Takes back the memory of what has arrived.
    fn settle(&mut self) -> Result<(), Failure> {
        while let Some(first) = self.in_flight.front() {
            match first.handle.outcome() {
                None => return Ok(()),
                Some(Outcome::Whole) => {}
                Some(outcome) => {
                    let what = format!(
                        "the receiver closed segment {} as {outcome:?}",
                        first.handle.message()
                    );
                    return Err(Failure::new(Exit::Other, what));
                }
            }
            self.arrived_bytes += first.bytes;
            let buffer = self.endpoint.deregister(first.region);
            self.in_flight.pop_front();
            // When all is read, nobody wants it any more.
            let _ = self
                .empties
                .send(buffer.map_err(|error| of_endpoint(&error))?);
        }
        Ok(())
    }

    /// What the repairs are a share of, and what makes them.
    fn what(&self) -> String {
        match &self.picker {
            Picker::Auto(auto) => match auto.current() {
                Some(scheme) => format!("sent again, {scheme}"),
                None => "sent again".to_owned(),
            },
            Picker::Named(_) => "sent again".to_owned(),
        }
    }

    /// The scheme for the next message.
    fn pick(&mut self) -> Result<SchemeName, Failure> {
        let stats = self.stats()?;
        match &mut self.picker {
            Picker::Named(scheme) => Ok(*scheme),
            Picker::Auto(auto) => {
                auto.look(&stats);
                Ok(auto.choose())
            }
        }
    }

    /// Messages that may be in flight.
    fn window(&self) -> usize {
        match &self.picker {
            Picker::Named(_) => usize::try_from(self.shape.slots).expect("at most 128"),
            Picker::Auto(auto) => auto.in_flight(),
        }
    }

    /// Hands the endpoint what has been read, as far as there are slots.
    fn post(&mut self) -> Result<(), Failure> {
        while self.in_flight.len() < self.window() {
            let Some((region, bytes)) = self.take_ready()? else {
                return Ok(());
            };
            let options = SendOptions {
                scheme: self.pick()?.tag(),
                immediate: None,
            };
            let posted = self
                .endpoint
                .post_send(self.qp, region.slice(0..bytes), options);
            match posted {
                Ok(handle) => {
                    if let Picker::Auto(auto) = &mut self.picker {
                        auto.handle_sent();
                    }
                    self.in_flight.push_back(InFlight {
                        handle,
                        region,
                        bytes,
                    });
                }
                Err(farwrite::Error::Retry { .. }) => {
                    self.ready = Some((region, bytes));
                    return Ok(());
                }
                Err(error) => return Err(of_endpoint(&error)),
            }
        }
        Ok(())
    }

    fn take_ready(&mut self) -> Result<Option<(MemoryRegion, u64)>, Failure> {
        if let Some(ready) = self.ready.take() {
            return Ok(Some(ready));
        }
        let Ok(Filled { buffer, bytes }) = self.filled.try_recv() else {
            return Ok(None);
        };
        let region = self.endpoint.register_region(buffer);
        region
            .map(|region| Some((region, bytes)))
            .map_err(|error| of_endpoint(&error))
    }

    /// Whether the receiver is there. What moves, and that nothing does, is the receiver's to judge:
    /// a message may take long.
    fn look(&mut self, now: Instant, words: &Words) -> Result<(), Failure> {
        let words = words.load(Ordering::Relaxed);
        let packets = self.endpoint.counters().received_packets;
        // A transfer of no bytes needs no packets.
        let packets = packets + u64::from(self.shape.stream_bytes == 0);
        let moved = packets + words;
        self.watch.look(
            now,
            Signs {
                packets,
                words,
                moved,
            },
        )
    }

    fn stats(&self) -> Result<QpStats, Failure> {
        self.endpoint
            .qp_stats(self.qp)
            .map_err(|error| of_endpoint(&error))
    }
}

/// The share of chunks that were sent again.
pub(super) fn again(stats: &QpStats) -> f64 {
    real(stats.sender.retransmitted_chunks) / real(stats.sender.sent_chunks.max(1))
}
