//! How ports send: frames, PFC frames and marks.
//!
//! A port sends while it is free. Each pass sends a due PFC frame first, and otherwise the frame
//! that the scheduler ([`EgressScheduler`](crate::egress_scheduler::EgressScheduler)) selects. A
//! frame is charged to the shared buffer until its transmission begins.

use super::Core;
use crate::Ecn;
use crate::arena::{FrameId, QueuedFrame};
use crate::counters::FrameDrop;
use crate::event_hash::EventKind;
use crate::events::Event;
use crate::ids::PortId;
use crate::switch::{MarkAt, PFC_FRAME_BYTES};
use crate::telemetry::Hop;

impl Core {
    /// Puts a frame into an egress queue. The frame entered the node through the port `ingress`.
    pub(super) fn enqueue(&mut self, at: PortId, id: FrameId, ingress: PortId) {
        let slot = &self.arena[id];
        self.trace
            .note(self.now_ns, EventKind::Queued, at, slot.serial);
        let queued = slot.queued(id, ingress);
        let priority = slot.priority;
        self.ports[at.index()].enqueue(priority, queued);
        self.start(at);
    }

    /// Updates one priority in the set that a port asks its peer to stop.
    pub(super) fn request_stop(&mut self, at: PortId, priority: u8, stop: bool) {
        let port = &mut self.ports[at.index()];
        let requested_stops = port.requested_stops & !(1 << priority) | u8::from(stop) << priority;
        if requested_stops != port.requested_stops {
            port.requested_stops = requested_stops;
            port.stops_changed = true;
            self.start(at);
        }
    }

    /// Handles an arriving PFC frame: the priorities in `stopped` stop, all others resume. Returns
    /// `false` if the cable went down after the PFC frame was sent: the PFC frame is lost.
    pub(crate) fn pause(&mut self, at: PortId, stopped: u8, epoch: u32) -> bool {
        let port = &mut self.ports[at.index()];
        if epoch != port.epoch {
            return false;
        }
        port.counters.pauses_received += 1;
        if let Some(pauses) = &mut self.pauses {
            let changed = stopped ^ !port.running();
            pauses.note(self.now_ns, (port.node, port.number), changed, stopped);
        }
        port.set_stopped(self.now_ns, stopped);
        self.start(at);
        true
    }

    /// Handles the end of a transmission.
    pub(crate) fn free(&mut self, at: PortId) {
        self.ports[at.index()].free_is_due = false;
        self.start(at);
    }

    /// Sends frames while the port is free, then schedules an event for the instant at which the
    /// port is free again. A fast cable carries several short frames within one nanosecond, so this
    /// loop can send more than one.
    ///
    /// A switch port with nothing to send needs no event: the next arrival starts it. A device port
    /// always gets one, because the device may have more to send.
    pub(super) fn start(&mut self, at: PortId) {
        if self.ports[at.index()].free_is_due {
            return;
        }
        while self.ports[at.index()].can_send(self.now_ns) {
            self.send_next(at);
        }
        let port = &mut self.ports[at.index()];
        let is_device = port.switch.is_none();
        let free_ns = port.free_ns();
        if free_ns > self.now_ns && (port.has_work() || is_device) && !port.free_is_due {
            port.free_is_due = true;
            self.events.add(free_ns, Event::PortFree(at));
        }
    }

    /// Sends a PFC frame if one is due, and otherwise the next frame by priority and weight.
    fn send_next(&mut self, at: PortId) {
        let port = &mut self.ports[at.index()];
        if port.stops_changed {
            port.stops_changed = false;
            port.counters.pauses_sent += 1;
            let (peer, stopped) = (port.peer, port.requested_stops);
            let end_ns = port.serialise(self.now_ns, PFC_FRAME_BYTES);
            // The loss model does not apply to PFC frames: real ports repeat them, so the loss of
            // one has little effect.
            if !port.down {
                let at_ns = port.send_pause(end_ns);
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
        let Some((queued, priority)) = port.dequeue() else {
            return;
        };
        let bytes = u64::from(queued.bytes);
        port.counters.transmitted += 1;
        port.counters.transmitted_bytes += bytes;
        let end_ns = port.serialise(self.now_ns, bytes);
        let switch = port.switch();
        self.trace
            .note(self.now_ns, EventKind::Sent, at, queued.serial);
        if let Some(switch) = switch {
            self.leave_switch(at, switch, &queued, priority);
        }
        self.onto_cable(at, &queued, end_ns);
        if let Some(switch) = switch {
            self.review_pause(queued.ingress, switch, priority);
        }
    }

    /// Returns the frame's bytes to the shared buffer, marks the frame if the switch marks on
    /// departure, and writes telemetry into it.
    fn leave_switch(&mut self, at: PortId, switch: usize, queued: &QueuedFrame, priority: u8) {
        let port = &self.ports[at.index()];
        let queue_bytes = port.queue_bytes(priority);
        let number = usize::from(self.ports[queued.ingress.index()].number);
        let bytes = u64::from(queued.bytes);
        let buffer = &mut self.switches[switch].buffer;
        buffer.release(number, priority, bytes);
        self.mark(at, switch, queued.id, MarkAt::Departure, queue_bytes);
        if self.has_telemetry {
            self.record_hop(at, queued);
        }
    }

    /// Writes the state of the port into a frame that leaves by it.
    fn record_hop(&mut self, at: PortId, queued: &QueuedFrame) {
        if let Some(telemetry) = self.arena.telemetry(queued.id) {
            let port = &self.ports[at.index()];
            telemetry.record(Hop {
                port: at.0,
                at_ns: self.now_ns,
                queued_bytes: port.queued_bytes(),
                sent_bytes: port.counters.transmitted_bytes - u64::from(queued.bytes),
                rate_bps: port.rate_bps(),
            });
        }
    }

    /// Marks a frame with the probability that belongs to the length of its egress queue.
    pub(super) fn mark(
        &mut self,
        at: PortId,
        switch: usize,
        id: FrameId,
        when: MarkAt,
        queue_bytes: u64,
    ) {
        let switch = &mut self.switches[switch];
        let port_bps = || self.ports[at.index()].rate_bps();
        let probability = switch.mark_probability(when, queue_bytes, port_bps);
        if probability <= 0.0 {
            return;
        }
        let slot = &mut self.arena[id];
        let capable = matches!(slot.ecn, Ecn::Capable0 | Ecn::Capable1);
        if capable && switch.marks(probability) {
            slot.ecn = Ecn::Experienced;
            self.ports[at.index()].counters.marked += 1;
            self.trace
                .note(self.now_ns, EventKind::Marked, at, slot.serial);
        }
    }

    /// Puts a frame onto the cable, which may lose it.
    fn onto_cable(&mut self, at: PortId, queued: &QueuedFrame, end_ns: u64) {
        let (id, bytes) = (queued.id, u64::from(queued.bytes));
        let port = &mut self.ports[at.index()];
        if port.down {
            self.drop_frame(at, id, FrameDrop::CableDown);
            return;
        }
        let Some(transit_ns) = port.transit_ns(end_ns, bytes) else {
            self.drop_frame(at, id, FrameDrop::Cable);
            return;
        };
        let (peer, epoch) = (port.peer, port.epoch);
        let at_ns = end_ns.saturating_add(transit_ns);
        self.events.add(
            at_ns,
            Event::Arrive {
                port: peer,
                frame: id,
                epoch,
            },
        );
    }
}
