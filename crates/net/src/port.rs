//! One end of a cable: egress queues and the transmitter.

use farwrite_link::{Passage, Serialiser, Wire};

use crate::arena::{Fifo, QueuedFrame};
use crate::egress_scheduler::EgressScheduler;
use crate::ids::PortId;
use crate::{CableConfig, CableId, NodeId, PRIORITIES, PortCounters};

/// A port and the outgoing direction of its cable. What each frame needs comes first, so that it is
/// together in few cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    pub(crate) node: NodeId,
    /// Same as [`switch`](Self::switch).
    pub(crate) switch: Option<u32>,
    /// The port at the other end.
    pub(crate) peer: PortId,
    /// Number of failures of the cable so far. A frame that carries another number was on the cable
    /// during a failure and is lost.
    pub(crate) epoch: u32,
    /// Index among the ports of the node.
    pub(crate) number: u16,
    pub(crate) down: bool,
    /// Whether a [`Free`](crate::events::Event::Free) event is scheduled.
    pub(crate) free_is_due: bool,
    /// Priorities that this port asks its peer to stop, one bit each.
    pub(crate) requested_stops: u8,
    /// Whether `requested_stops` has changed since the last PFC frame was sent.
    pub(crate) stops_changed: bool,
    /// Priorities that the peer has stopped at this port, one bit each.
    stopped: u8,
    /// Priorities whose queues have frames, one bit each.
    waiting: u8,
    delay_ns: u64,
    /// Time from the arrival of a frame at the peer until the peer's node handles it.
    peer_latency_ns: u64,
    /// What the cable does to frames; `None` if it loses nothing and has a constant delay.
    pub(crate) wire: Option<Box<Wire>>,
    serialiser: Serialiser,
    queued_bytes: u64,
    scheduler: EgressScheduler,
    pub(crate) counters: PortCounters,
    queues: [Fifo; PRIORITIES],
    /// Time at which the first of the stopped priorities was stopped.
    stopped_since_ns: u64,
    /// Arrival of the latest PFC frame that this port sent.
    pause_arrives_ns: u64,
    rate_bps: u64,
    pub(crate) cable: CableId,
}

/// The identity of a port, and what it is connected to.
pub(crate) struct PortIdentity {
    pub(crate) node: NodeId,
    pub(crate) switch: Option<u32>,
    pub(crate) number: u16,
    pub(crate) peer: PortId,
    pub(crate) peer_latency_ns: u64,
    pub(crate) cable: CableId,
}

impl Port {
    pub(crate) fn new(
        identity: PortIdentity,
        cable: &CableConfig,
        wire: Option<Box<Wire>>,
        weights: [u16; PRIORITIES],
    ) -> Self {
        Self {
            node: identity.node,
            switch: identity.switch,
            number: identity.number,
            peer: identity.peer,
            cable: identity.cable,
            wire,
            down: false,
            epoch: 0,
            free_is_due: false,
            requested_stops: 0,
            stops_changed: false,
            stopped: 0,
            stopped_since_ns: 0,
            pause_arrives_ns: 0,
            counters: PortCounters::default(),
            rate_bps: cable.rate_bps,
            delay_ns: cable.delay_ns(),
            peer_latency_ns: identity.peer_latency_ns,
            serialiser: Serialiser::new(cable.rate_bps),
            queues: Default::default(),
            waiting: 0,
            queued_bytes: 0,
            scheduler: EgressScheduler::new(weights),
        }
    }

    pub(crate) fn enqueue(&mut self, priority: u8, queued: QueuedFrame) {
        let priority = usize::from(priority.min(7));
        self.queues[priority].push(queued);
        self.waiting |= 1 << priority;
        self.queued_bytes += u64::from(queued.bytes);
        self.counters.queued += 1;
        let peak = &mut self.counters.peak_queued_bytes;
        *peak = self.queued_bytes.max(*peak);
    }

    /// Removes the next frame to send, and returns it with its priority. Skips stopped priorities.
    pub(crate) fn dequeue(&mut self) -> Option<(QueuedFrame, u8)> {
        let (queues, scheduler) = (&mut self.queues, &mut self.scheduler);
        let ready = self.waiting & !self.stopped;
        let head_bytes = |queue: usize| queues[queue].head_bytes().unwrap_or(0);
        let queue = scheduler.next(ready, head_bytes)?;
        let queued = queues[queue].pop()?;
        if queues[queue].is_empty() {
            self.waiting &= !(1 << queue);
        }
        self.queued_bytes -= u64::from(queued.bytes);
        debug_assert!(self.waiting != 0 || self.queued_bytes == 0);
        // There are eight queues.
        Some((queued, u8::try_from(queue).unwrap_or(7)))
    }

    /// Starts to send `bytes` now, and returns the time of the last bit. If the port became free
    /// within this nanosecond, the bytes follow the previous ones without a gap.
    pub(crate) fn serialise(&mut self, now_ns: u64, bytes: u64) -> u64 {
        if now_ns <= self.serialiser.free_ns() {
            self.serialiser.append(bytes)
        } else {
            self.serialiser.accept(now_ns, bytes)
        }
    }

    /// Time at which the transmitter becomes free.
    pub(crate) fn free_ns(&self) -> u64 {
        self.serialiser.free_ns()
    }

    /// Whether a frame or a PFC frame waits that may be sent.
    pub(crate) fn has_work(&self) -> bool {
        self.stops_changed || self.waiting & !self.stopped != 0
    }

    /// Whether the port can start a transmission now.
    pub(crate) fn can_send(&self, now_ns: u64) -> bool {
        self.has_work() && now_ns >= self.free_ns()
    }

    /// Whether a frame of a priority that is not stopped would leave at once.
    pub(crate) fn is_ready(&self, now_ns: u64) -> bool {
        now_ns >= self.free_ns() && !self.has_work()
    }

    /// Stops the priorities in the mask and resumes all others.
    pub(crate) fn set_stopped(&mut self, now_ns: u64, stopped: u8) {
        match (self.stopped, stopped) {
            (0, 1..) => self.stopped_since_ns = now_ns,
            (1.., 0) => self.counters.stopped_ns += now_ns - self.stopped_since_ns,
            _ => {}
        }
        self.stopped = stopped;
    }

    /// The counters up to now.
    pub(crate) fn counters_at(&self, now_ns: u64) -> PortCounters {
        let mut counters = self.counters;
        if self.stopped != 0 {
            counters.stopped_ns += now_ns - self.stopped_since_ns;
        }
        counters
    }

    pub(crate) fn is_paused(&self, priority: u8) -> bool {
        self.running() & 1 << priority.min(7) == 0
    }

    /// Priorities that the peer has not stopped, one bit each.
    pub(crate) fn running(&self) -> u8 {
        !self.stopped
    }

    /// Priorities whose frames wait because the peer has stopped them, one bit each.
    pub(crate) fn waiting_stopped(&self) -> u8 {
        self.waiting & self.stopped
    }

    /// Whether the queue of a priority has a frame that entered the node through `ingress`.
    pub(crate) fn holds(&self, priority: u8, ingress: PortId) -> bool {
        self.queues[usize::from(priority.min(7))].has_from(ingress)
    }

    pub(crate) fn queue_bytes(&self, priority: u8) -> u64 {
        self.queues[usize::from(priority.min(7))].bytes()
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    pub(crate) fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Index of the port's node among the switches; `None` at a device.
    pub(crate) fn switch(&self) -> Option<usize> {
        self.switch.map(|switch| switch as usize)
    }

    /// Arrival at the peer of a PFC frame whose last bit leaves at `end_ns`. It is never before that
    /// of an earlier PFC frame, even if the cable has become shorter: a resume that overtakes its
    /// stop would leave the peer stopped forever.
    pub(crate) fn send_pause(&mut self, end_ns: u64) -> u64 {
        let at_ns = end_ns.saturating_add(self.delay_ns);
        self.pause_arrives_ns = self.pause_arrives_ns.max(at_ns);
        self.pause_arrives_ns
    }

    /// Time from the last bit of a frame sent, at `end_ns`, until the node at the other end handles
    /// the frame. `None` if the cable loses it.
    pub(crate) fn transit_ns(&mut self, end_ns: u64, bytes: u64) -> Option<u64> {
        let delay_ns = match &mut self.wire {
            None => self.delay_ns,
            // A cable neither damages nor doubles frames, so the model does not need the payload.
            Some(wire) => match wire.carry(end_ns, bytes, 0) {
                Passage::Once(journey) | Passage::Twice(journey, _) => journey.delay_ns,
                Passage::Lost | Passage::Policed => return None,
            },
        };
        Some(delay_ns.saturating_add(self.peer_latency_ns))
    }

    /// Replaces the cable's configuration, from the next frame on.
    pub(crate) fn set_cable(&mut self, cable: &CableConfig, wire: Option<Box<Wire>>) {
        let free_ns = self.serialiser.free_ns();
        self.wire = wire;
        self.rate_bps = cable.rate_bps;
        self.delay_ns = cable.delay_ns();
        self.serialiser = Serialiser::new(cable.rate_bps);
        self.serialiser.accept(free_ns, 0);
    }

    /// Cuts or repairs the cable. This end clears all PFC pauses, in both directions.
    pub(crate) fn set_down(&mut self, now_ns: u64, down: bool) {
        self.epoch += u32::from(down && !self.down);
        self.down = down;
        self.requested_stops = 0;
        self.stops_changed = false;
        self.pause_arrives_ns = 0;
        self.set_stopped(now_ns, 0);
    }
}
