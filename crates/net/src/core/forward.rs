//! Forwarding in switches: choice of the egress port, admission to the shared buffer, trimming and
//! PFC.

use super::Core;
use crate::arena::FrameId;
use crate::counters::FrameDrop;
use crate::event_hash::EventKind;
use crate::ids::{PortId, next_id};
use crate::switch::MarkAt;
use crate::topology::Role;

impl Core {
    /// Chooses the egress port of a frame. Puts the frame into the egress queue if the buffer has
    /// room, trims or drops it otherwise.
    pub(crate) fn forward(&mut self, ingress: PortId, id: FrameId) {
        let Some(switch) = self.ports[ingress.index()].switch() else {
            return;
        };
        let Some(egress) = self.route(ingress, switch, id) else {
            self.drop_frame(ingress, id, FrameDrop::NoRoute);
            return;
        };
        let mut admitted = self.admit(ingress, egress, switch, id);
        if admitted == Err(FrameDrop::Buffer) && self.trim(egress, switch, id) {
            admitted = self.admit(ingress, egress, switch, id);
            self.ports[egress.index()].counters.trimmed += u64::from(admitted.is_ok());
        }
        if let Err(reason) = admitted {
            self.drop_frame(egress, id, reason);
            return;
        }
        let priority = self.arena[id].priority.min(7);
        let queue_bytes = self.ports[egress.index()].queue_bytes(priority);
        self.mark(egress, switch, id, MarkAt::Arrival, queue_bytes);
        self.review_pause(ingress, switch, priority);
        self.enqueue(egress, id, ingress);
    }

    /// The egress port toward the frame's destination; `None` if no path leads there.
    fn route(&mut self, ingress: PortId, switch: usize, id: FrameId) -> Option<PortId> {
        let flow = self.arena[id].flow;
        let host = self.nodes.get(flow.dst.index())?;
        if host.role != Role::Host {
            return None;
        }
        let node = &self.nodes[self.ports[ingress.index()].node.index()];
        let (first, ports) = (node.ports().start, &self.ports);
        let queued_bytes = |number: u16| ports[first + usize::from(number)].queued_bytes();
        let router = &mut self.switches[switch].router;
        let choice = router.choose(flow, host.number, self.now_ns, queued_bytes)?;
        let index = first + usize::from(choice.port);
        self.ports[index].counters.path_changes += u64::from(choice.is_change);
        Some(PortId(next_id(index)))
    }

    /// Charges a frame to the shared buffer, or says why it does not fit.
    fn admit(
        &mut self,
        ingress: PortId,
        egress: PortId,
        switch: usize,
        id: FrameId,
    ) -> Result<(), FrameDrop> {
        let slot = &self.arena[id];
        let (bytes, priority) = (u64::from(slot.bytes), slot.priority.min(7));
        let queue_bytes = self.ports[egress.index()].queue_bytes(priority);
        let switch = &mut self.switches[switch];
        // A frame without payload cannot be trimmed, so the trim limit of the queue does not apply.
        let has_payload = || self.arena.payload(id).carried_bytes() > 0;
        let trim = switch.config.trim.filter(|_| has_payload());
        let trims = trim.filter(|trim| trim.priority != priority);
        if trims.is_some_and(|trim| queue_bytes + bytes > trim.queue_bytes)
            && !switch.buffer.is_lossless(priority)
        {
            return Err(FrameDrop::Buffer);
        }
        let ingress = usize::from(self.ports[ingress.index()].number);
        switch.buffer.admit(ingress, priority, bytes, queue_bytes)
    }

    /// Cuts the payload off a frame. Returns `false` if the switch does not trim or the frame has
    /// no payload.
    fn trim(&mut self, egress: PortId, switch: usize, id: FrameId) -> bool {
        let Some(trim) = self.switches[switch].config.trim else {
            return false;
        };
        if self.arena.payload(id).carried_bytes() == 0 {
            return false;
        }
        self.arena.trim(id, trim.priority, self.framing_bytes);
        let serial = self.arena[id].serial;
        self.trace
            .note(self.now_ns, EventKind::Trimmed, egress, serial);
        true
    }

    /// Sends a PFC request to stop or resume a priority if the buffer occupancy of the port
    /// requires a change.
    pub(super) fn review_pause(&mut self, ingress: PortId, switch: usize, priority: u8) {
        let port = &self.ports[ingress.index()];
        let buffer = &self.switches[switch].buffer;
        if !buffer.is_lossless(priority) {
            return;
        }
        let stopped = port.requested_stops & 1 << priority != 0;
        let stops = buffer.stops(usize::from(port.number), priority, stopped);
        if stops != stopped {
            self.request_stop(ingress, priority, stops);
        }
    }
}
