//! From buffers to messages: the thread that polls the sender's endpoint.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::time::Instant;

use farwrite::{
    Endpoint, MemoryRegion, Outcome, PathStats, QpStats, QueuePair, Region, SchemeName, SendHandle,
    SendOptions, UdpFabric,
};
use farwrite_session::files::Manifest;

use super::auto::{Auto, Choices};
use super::feed::{Feeder, Filled};
use super::limits::{Limit, Limits, Standing};
use super::listen::Heard;
use super::{Joined, SendSettings};
use crate::meter::{Meter, Status};
use crate::pulse::{PeerPulse, Pulse};
use crate::report::Tally;
use crate::shape::Shape;
use crate::speaker::Outbox;
use crate::watch::{Signs, Watch};
use crate::{Error, ErrorKind, HOUSEKEEPING, Host, MAX_WAIT, SchemeChoice};
use farwrite_units::show::real;

/// Filled buffers that wait to be posted.
const READ_AHEAD: usize = 2;

/// A message in flight.
struct InFlight {
    handle: SendHandle,
    region: MemoryRegion,
    bytes: u64,
}

/// What came of the sending.
pub(super) struct Sent {
    pub(super) tally: Tally,
    pub(super) stats: QpStats,
    pub(super) path: PathStats,
    pub(super) limits: Limits,
    /// Where the planner chose.
    pub(super) choices: Option<Choices>,
}

/// By which scheme messages go.
enum Picker {
    Named(SchemeName),
    Auto(Box<Auto>),
}

/// Memory with the next bytes of the stream.
struct Ready {
    region: MemoryRegion,
    bytes: u64,
    /// As [`Filled::abandoned`].
    abandoned: u32,
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
    ready: Option<Ready>,
    /// The feeder has handed over all there is.
    is_read: bool,
    limits: Limits,
    arrived_bytes: u64,
    empties: Sender<Region>,
    filled: Receiver<Filled>,
    outbox: Outbox,
    pulse: Arc<Pulse>,
    peer: Arc<PeerPulse>,
}

impl Stream {
    /// The sending end of the stream, and what reads the files for it.
    pub(super) fn new(
        joined: Joined,
        settings: &SendSettings,
        outbox: Outbox,
        pulse: Arc<Pulse>,
        peer: Arc<PeerPulse>,
    ) -> (Self, Feeder) {
        let shape = joined.shape;
        let (empties, used) = channel();
        let (fill, filled) = sync_channel(READ_AHEAD);
        let feeder = Feeder {
            outbox: outbox.clone(),
            pulse: Arc::clone(&pulse),
            segment_bytes: usize::try_from(shape.segment_bytes).expect("chosen within memory"),
            // What is read ahead takes the memory of a message in flight: `--memory` covers all.
            budget: u64::from(shape.slots),
            empties: used,
            filled: fill,
        };
        let stream = Self {
            endpoint: joined.endpoint,
            qp: joined.qp,
            shape,
            picker: match joined.scheme {
                SchemeChoice::Named(scheme) => Picker::Named(scheme),
                SchemeChoice::Auto => {
                    let likely_bps = settings.speed().likely_bps;
                    let loss = settings.expected_loss;
                    let auto = Auto::new(shape, joined.rtt, likely_bps, loss);
                    Picker::Auto(Box::new(auto))
                }
            },
            watch: Watch::new(settings.timeout, joined.ports, Instant::now()),
            in_flight: VecDeque::new(),
            ready: None,
            is_read: false,
            limits: Limits::default(),
            arrived_bytes: 0,
            empties,
            filled,
            outbox,
            pulse,
            peer,
        };
        (stream, feeder)
    }

    /// Sends until the receiver has given a verdict on every file.
    pub(super) fn run(
        mut self,
        heard: &Receiver<Heard>,
        manifest: &Arc<Manifest>,
        host: &Host<'_>,
    ) -> Result<Sent, Error> {
        let mut meter = Meter::new(host.observer, "sending", Arc::clone(manifest));
        let mut kept = Instant::now();
        loop {
            self.endpoint
                .poll_and_wait(MAX_WAIT)
                .map_err(|error| Error::of_endpoint(&error))?;
            self.settle()?;
            self.post()?;
            if let Ok(heard) = heard.try_recv() {
                let tally = heard?;
                meter.finish(tally.verified_bytes);
                return Ok(Sent {
                    tally,
                    stats: self.stats()?,
                    path: self.path()?,
                    limits: self.limits,
                    choices: match &self.picker {
                        Picker::Named(_) => None,
                        Picker::Auto(auto) => Some(auto.choices().clone()),
                    },
                });
            }
            let now = Instant::now();
            if now - kept >= HOUSEKEEPING {
                kept = now;
                self.keep_house(now, &mut meter, host)?;
            }
        }
    }

    /// What is not urgent: cancellation, liveness, progress.
    fn keep_house(
        &mut self,
        now: Instant,
        meter: &mut Meter<'_>,
        host: &Host<'_>,
    ) -> Result<(), Error> {
        host.cancel.check()?;
        self.outbox.check()?;
        self.pulse.set_received(self.arrived_bytes);
        // A transfer of no bytes needs no packets.
        let packets =
            self.endpoint.counters().received_packets + u64::from(self.shape.stream_bytes == 0);
        let signs = Signs::read(now, packets, &self.pulse, &self.peer);
        if let Some(warning) = self.watch.look(now, signs)? {
            host.warn(warning);
        }
        let limit = self.limit()?;
        self.limits.add(limit);
        let repairs = retransmitted_share(&self.stats()?);
        let status = Status {
            repairs,
            note: &self.repair_note(),
            limit: limit.map(Limit::name),
            slow_disk: signs.slow_disk(),
        };
        meter.show(now, self.arrived_bytes, &status);
        Ok(())
    }

    /// What keeps the stream from being faster now.
    fn limit(&self) -> Result<Option<Limit>, Error> {
        let standing = Standing {
            in_flight: self.in_flight.len(),
            window: self.window()?,
            is_read: self.is_read && self.ready.is_none(),
        };
        Ok(Limit::of(&self.path()?, &self.shape, standing))
    }

    /// Takes back the memory of what has arrived.
    fn settle(&mut self) -> Result<(), Error> {
        while let Some(first) = self.in_flight.front() {
            match first.handle.outcome() {
                None => return Ok(()),
                Some(Outcome::Whole) => {}
                Some(outcome) => {
                    // A queue pair that is broken says why.
                    self.stats()?;
                    let what = format!(
                        "the receiver closed segment {} as {outcome:?}",
                        first.handle.message()
                    );
                    return Err(Error::new(ErrorKind::Other, what));
                }
            }
            self.arrived_bytes += first.bytes;
            let buffer = self.endpoint.deregister(first.region);
            self.in_flight.pop_front();
            // The feeder is gone when everything is read.
            let _ = self
                .empties
                .send(buffer.map_err(|error| Error::of_endpoint(&error))?);
        }
        Ok(())
    }

    /// What the share of repairs is of, and the scheme that makes them.
    fn repair_note(&self) -> String {
        match &self.picker {
            Picker::Auto(auto) => match auto.current() {
                Some(scheme) => format!("sent again, {scheme}"),
                None => "sent again".to_owned(),
            },
            Picker::Named(_) => "sent again".to_owned(),
        }
    }

    /// The scheme for the next message.
    fn pick(&mut self) -> Result<SchemeName, Error> {
        let (stats, path) = (self.stats()?, self.path()?);
        match &mut self.picker {
            Picker::Named(scheme) => Ok(*scheme),
            Picker::Auto(auto) => {
                auto.look(&stats, &path);
                Ok(auto.choose())
            }
        }
    }

    /// Messages that may be in flight.
    fn window(&self) -> Result<usize, Error> {
        Ok(match &self.picker {
            Picker::Named(_) => usize::try_from(self.shape.slots).expect("at most 128"),
            Picker::Auto(auto) => auto.in_flight(self.path()?.window_bytes),
        })
    }

    /// Hands the endpoint what has been read, as far as there are slots.
    fn post(&mut self) -> Result<(), Error> {
        while self.in_flight.len() < self.window()? {
            let Some(ready) = self.take_ready()? else {
                return Ok(());
            };
            let options = SendOptions {
                scheme: self.pick()?.tag(),
                // Without abandoned files, nothing has to be said about them.
                immediate: Some(ready.abandoned).filter(|abandoned| *abandoned > 0),
                deadline_ns: None,
            };
            let (region, bytes) = (ready.region, ready.bytes);
            let slice = region.slice(0..bytes);
            match self.endpoint.post_send(self.qp, slice, options) {
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
                    self.ready = Some(ready);
                    return Ok(());
                }
                Err(error) => return Err(Error::of_endpoint(&error)),
            }
        }
        Ok(())
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
        let region = self.endpoint.register_region(filled.buffer);
        Ok(Some(Ready {
            region: region.map_err(|error| Error::of_endpoint(&error))?,
            bytes: filled.bytes,
            abandoned: filled.abandoned,
        }))
    }

    fn path(&self) -> Result<PathStats, Error> {
        self.endpoint
            .path_stats(self.qp)
            .map_err(|error| Error::of_endpoint(&error))
    }

    fn stats(&self) -> Result<QpStats, Error> {
        self.endpoint
            .qp_stats(self.qp)
            .map_err(|error| Error::of_endpoint(&error))
    }
}

/// The share of chunks that were sent again.
pub(super) fn retransmitted_share(stats: &QpStats) -> f64 {
    real(stats.sender.retransmitted_chunks) / real(stats.sender.sent_chunks.max(1))
}
