//! How ports send.

use farwrite_link::Passage;

use super::Core;
use crate::Ecn;
use crate::arena::FrameId;
use crate::counters::DropReason;
use crate::events::Event;
use crate::ids::PortId;
use crate::switch::{MarkAt, PFC_FRAME_BYTES};
use crate::topology::Role;
use crate::trace::Step;

impl Core {
    /// Puts a frame into its queue at a port.
    pub(super) fn enqueue(&mut self, at: PortId, id: FrameId) {
        let serial = self.arena[id].serial;
        self.trace.note(self.now_ns, Step::Queued, at, serial);
        self.ports[at.index()].enqueue(&mut self.arena, id);
        self.start(at);
    }

    /// Sets or clears a priority among those that a port asks its peer to stop.
    pub(super) fn set_asks(&mut self, at: PortId, priority: u8, stop: bool) {
        let port = &mut self.ports[at.index()];
        let asks = port.asks & !(1 << priority) | u8::from(stop) << priority;
        if asks != port.asks {
            port.asks = asks;
            port.asks_changed = true;
            self.start(at);
        }
    }

    /// Handles a PFC frame: the priorities in `stopped` stop, all others resume. Returns `false` if
    /// the cable went down meanwhile: the PFC frame is lost.
    pub(crate) fn pause(&mut self, at: PortId, stopped: u8, epoch: u32) -> bool {
        let port = &mut self.ports[at.index()];
        if epoch != port.epoch {
            return false;
        }
        port.counters.pauses_received += 1;
        port.set_stopped(self.now_ns, stopped);
        self.start(at);
        true
    }

    /// Handles the end of a transmission.
    pub(crate) fn free(&mut self, at: PortId) {
        self.ports[at.index()].free_is_due = false;
        self.start(at);
    }

    /// Sends frames while the port is free, and schedules a look at the port when it is free again. A
    /// fast cable takes several short frames within a nanosecond.
    ///
    /// A switch's port with nothing to send then needs no event. A device's port always does,
    /// because the device may have more to send.
    pub(super) fn start(&mut self, at: PortId) {
        if self.ports[at.index()].free_is_due {
            return;
        }
        while self.ports[at.index()].can_send(self.now_ns) {
            self.send_next(at);
        }
        let is_device = self.role_at(at) != Role::Switch;
        let port = &mut self.ports[at.index()];
        let free_ns = port.free_ns();
        if free_ns > self.now_ns && (port.has_work() || is_device) && !port.free_is_due {
            port.free_is_due = true;
            self.events.add(free_ns, Event::Free(at));
        }
    }

    /// Sends a PFC frame if one is due, and else the frame whose turn it is.
    fn send_next(&mut self, at: PortId) {
        let port = &mut self.ports[at.index()];
        if port.asks_changed {
            port.asks_changed = false;
            port.counters.pauses_sent += 1;
            let (peer, stopped) = (port.peer, port.asks);
            let end_ns = port.serialise(self.now_ns, PFC_FRAME_BYTES);
            // The loss model does not apply: a real port repeats PFC frames, so a loss costs
            // little.
            if !port.down {
                let at_ns = end_ns.saturating_add(port.delay_ns());
                let epoch = port.epoch;
                self.events.add(
                    at_ns,
                    Event::Pause {
                        port: peer,
                        stopped,
                        epoch,
                    },
                );
            }
            return;
        }
        let Some(id) = port.dequeue(&self.arena) else {
            return;
        };
        let bytes = u64::from(self.arena[id].bytes);
        port.counters.transmitted += 1;
        port.counters.transmitted_bytes += bytes;
        let end_ns = port.serialise(self.now_ns, bytes);
        let slot = &self.arena[id];
        let (ingress, priority) = (slot.ingress, slot.frame.priority.min(7));
        self.trace.note(self.now_ns, Step::Sent, at, slot.serial);
        let is_switch = self.role_at(at) == Role::Switch;
        if is_switch {
            self.leave_switch(at, id);
        }
        self.onto_cable(at, id, end_ns);
        if is_switch {
            self.review_pause(ingress, priority);
        }
    }

    /// Frees the frame's share of the buffer, and marks the frame if marks are made on departure.
    fn leave_switch(&mut self, at: PortId, id: FrameId) {
        let slot = &self.arena[id];
        let (priority, ingress) = (slot.frame.priority.min(7), slot.ingress);
        let bytes = u64::from(slot.bytes);
        let port = &self.ports[at.index()];
        let queue_bytes = port.queue_bytes(priority);
        let switch = self.nodes[port.node.index()].number;
        let number = usize::from(self.ports[ingress.index()].number);
        self.switches[switch]
            .buffer
            .release(number, priority, bytes);
        self.mark(at, id, MarkAt::Departure, queue_bytes);
    }

    /// Marks a frame with the probability for the length of its queue.
    pub(super) fn mark(&mut self, at: PortId, id: FrameId, when: MarkAt, queue_bytes: u64) {
        let switch = self.nodes[self.ports[at.index()].node.index()].number;
        let slot = &mut self.arena[id];
        let capable = matches!(slot.frame.ecn, Ecn::Capable0 | Ecn::Capable1);
        if capable && self.switches[switch].marks(when, queue_bytes) {
            slot.frame.ecn = Ecn::Experienced;
            self.ports[at.index()].counters.marked += 1;
            self.trace.note(self.now_ns, Step::Marked, at, slot.serial);
        }
    }

    /// Puts a frame onto the cable, which may lose it.
    fn onto_cable(&mut self, at: PortId, id: FrameId, end_ns: u64) {
        let port = &mut self.ports[at.index()];
        if port.down {
            self.drop_frame(at, id, DropReason::CableDown);
            return;
        }
        // A cable configuration has no copies and no flipped bits, so the payload size is not
        // needed.
        let (Passage::Once(journey) | Passage::Twice(journey, _)) = port.wire.carry(0) else {
            self.drop_frame(at, id, DropReason::Cable);
            return;
        };
        let (peer, epoch) = (port.peer, port.epoch);
        self.arena[id].epoch = epoch;
        let latency_ns = self.nodes[self.ports[peer.index()].node.index()].latency_ns;
        let at_ns = end_ns
            .saturating_add(journey.delay_ns)
            .saturating_add(latency_ns);
        self.events.add(
            at_ns,
            Event::Arrive {
                port: peer,
                frame: id,
            },
        );
    }
}
