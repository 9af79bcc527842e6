//! One end of a cable: the queues and the sender.

use farwrite_link::{Serialiser, Wire};

use crate::arena::{Arena, Fifo, FrameId};
use crate::ids::PortId;
use crate::turns::Turns;
use crate::{CableConfig, CableId, NodeId, PRIORITIES, PortCounters};

/// A port and the direction of its cable that leads away from it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) node: NodeId,
    /// Its number among the ports of its node.
    pub(crate) number: u16,
    /// The port at the other end.
    pub(crate) peer: PortId,
    pub(crate) cable: CableId,
    pub(crate) wire: Wire,
    pub(crate) down: bool,
    /// How often the cable has gone down. A frame with another number was on the cable then.
    pub(crate) epoch: u32,
    /// Whether a [`Free`](crate::events::Event::Free) event is scheduled.
    pub(crate) free_is_due: bool,
    /// Priorities that this port asks its peer to stop.
    pub(crate) asks: u8,
    /// Whether `asks` has changed since the last PFC frame.
    pub(crate) asks_changed: bool,
    /// Priorities that the peer has asked this port to stop.
    stopped: u8,
    /// When the first of these was stopped.
    stopped_since_ns: u64,
    pub(crate) counters: PortCounters,
    rate_bps: u64,
    delay_ns: u64,
    serialiser: Serialiser,
    queues: [Fifo; PRIORITIES],
    /// Priorities whose queues have frames.
    waiting: u8,
    queued_bytes: u64,
    turns: Turns,
}

/// Where a port is and what it is joined to.
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) number: u16,
    pub(crate) peer: PortId,
    pub(crate) cable: CableId,
}

impl Port {
    pub(crate) fn new(
        place: Place,
        cable: &CableConfig,
        wire: Wire,
        weights: [u16; PRIORITIES],
    ) -> Self {
        Self {
            node: place.node,
            number: place.number,
            peer: place.peer,
            cable: place.cable,
            wire,
            down: false,
            epoch: 0,
            free_is_due: false,
            asks: 0,
            asks_changed: false,
            stopped: 0,
            stopped_since_ns: 0,
            counters: PortCounters::default(),
            rate_bps: cable.rate_bps,
            delay_ns: cable.delay_ns(),
            serialiser: Serialiser::new(cable.rate_bps),
            queues: Default::default(),
            waiting: 0,
            queued_bytes: 0,
            turns: Turns::new(weights),
        }
    }

    pub(crate) fn enqueue(&mut self, arena: &mut Arena, id: FrameId) {
        let priority = usize::from(arena[id].frame.priority.min(7));
        self.queues[priority].push(arena, id);
        self.waiting |= 1 << priority;
        self.queued_bytes += u64::from(arena[id].bytes);
        self.counters.queued += 1;
        let peak = &mut self.counters.peak_queued_bytes;
        *peak = self.queued_bytes.max(*peak);
    }

    /// Removes the next frame to send. Skips stopped priorities.
    pub(crate) fn dequeue(&mut self, arena: &Arena) -> Option<FrameId> {
        let (queues, turns) = (&mut self.queues, &mut self.turns);
        let ready = self.waiting & !self.stopped;
        let head_bytes = |queue: usize| queues[queue].head_bytes(arena).unwrap_or(0);
        let queue = turns.next(ready, head_bytes)?;
        let id = queues[queue].pop(arena)?;
        if queues[queue].is_empty() {
            self.waiting &= !(1 << queue);
        }
        self.queued_bytes -= u64::from(arena[id].bytes);
        Some(id)
    }

    /// Starts to send `bytes` now, and returns when the last bit is out. If the port became free
    /// within this nanosecond, the bytes follow without a gap.
    pub(crate) fn serialise(&mut self, now_ns: u64, bytes: u64) -> u64 {
        if now_ns <= self.serialiser.free_ns() {
            self.serialiser.append(bytes)
        } else {
            self.serialiser.accept(now_ns, bytes)
        }
    }

    /// When the port has sent its current frame.
    pub(crate) fn free_ns(&self) -> u64 {
        self.serialiser.free_ns()
    }

    /// Whether a frame or a PFC frame could be sent if the port were free.
    pub(crate) fn has_work(&self) -> bool {
        self.asks_changed || self.waiting & !self.stopped != 0
    }

    /// Whether something can be sent now.
    pub(crate) fn can_send(&self, now_ns: u64) -> bool {
        self.has_work() && now_ns >= self.free_ns()
    }

    /// Whether a frame of a priority that is not stopped would leave at once.
    pub(crate) fn is_ready(&self, now_ns: u64) -> bool {
        now_ns >= self.free_ns() && !self.has_work()
    }

    /// Stops the priorities of a mask and resumes all others.
    pub(crate) fn set_stopped(&mut self, now_ns: u64, stopped: u8) {
        match (self.stopped, stopped) {
            (0, 1..) => self.stopped_since_ns = now_ns,
            (1.., 0) => self.counters.stopped_ns += now_ns - self.stopped_since_ns,
            _ => {}
        }
        self.stopped = stopped;
    }

    /// What the port has done until now.
    pub(crate) fn counters_at(&self, now_ns: u64) -> PortCounters {
        let mut counters = self.counters;
        if self.stopped != 0 {
            counters.stopped_ns += now_ns - self.stopped_since_ns;
        }
        counters
    }

    pub(crate) fn is_paused(&self, priority: u8) -> bool {
        self.stopped & 1 << priority.min(7) != 0
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

    /// The cable's delay, which PFC frames take too.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Replaces the cable's properties, from the next frame on.
    pub(crate) fn set_cable(&mut self, cable: &CableConfig, wire: Wire) {
        let free_ns = self.serialiser.free_ns();
        self.wire = wire;
        self.rate_bps = cable.rate_bps;
        self.delay_ns = cable.delay_ns();
        self.serialiser = Serialiser::new(cable.rate_bps);
        self.serialiser.accept(free_ns, 0);
    }

    /// Cuts or mends the cable. This end forgets all pauses, asked and received.
    pub(crate) fn set_down(&mut self, now_ns: u64, down: bool) {
        self.epoch += u32::from(down && !self.down);
        self.down = down;
        self.asks = 0;
        self.asks_changed = false;
        self.set_stopped(now_ns, 0);
    }
}
