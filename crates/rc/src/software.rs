//! Host software that handles packets of a queue pair in place of the NIC.

use alloc::collections::VecDeque;

use crate::Packet;
use crate::echo::PathNote;
use crate::opcode::Operation;

/// What host software does for a queue pair, and how long it takes. Software handles packets one
/// after the other, in the order of their arrival. Each queue pair has a core of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// Which packets software handles.
    pub scope: SoftwareScope,
    /// Time from the arrival of a packet until idle software has handled it, in nanoseconds: the
    /// way to the host, the work, and the way back to the NIC.
    pub delay_ns: u64,
    /// Time for which one packet occupies the core, in nanoseconds. It limits the packets per
    /// second, and is part of neither the delay nor the rate of an idle core.
    pub packet_ns: u64,
}

/// Which packets software handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftwareScope {
    /// Packets that concern a loss: sequence NAKs, and request packets from the first one after a
    /// gap until the gap is closed. The NIC handles everything else.
    Repairs,
    /// All packets except congestion notifications.
    All,
}

/// The packets that wait for software.
#[derive(Debug, Default)]
pub(crate) struct SlowPath {
    /// Time at which the packet is handled, the packet, and what it brought.
    queue: VecDeque<(u64, Operation, Packet, PathNote)>,
    /// Request packets in the queue.
    requests: usize,
    /// Time until which the core is busy.
    busy_ns: u64,
}

impl SlowPath {
    /// Queues a packet. Drops it if `limit` packets wait already, like a full receive ring.
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        operation: Operation,
        packet: (&Packet, PathNote),
        software: Software,
        limit: usize,
    ) {
        if self.queue.len() >= limit {
            return;
        }
        let begins_ns = self.busy_ns.max(now_ns);
        self.busy_ns = begins_ns.saturating_add(software.packet_ns);
        let due_ns = begins_ns.saturating_add(software.delay_ns);
        self.requests += usize::from(is_request(operation));
        let (packet, note) = packet;
        self.queue
            .push_back((due_ns, operation, packet.clone(), note));
    }

    /// The next packet that is handled by `now_ns`.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(Packet, PathNote)> {
        self.next_ns().filter(|due_ns| *due_ns <= now_ns)?;
        let (_, operation, packet, note) = self.queue.pop_front()?;
        self.requests -= usize::from(is_request(operation));
        Some((packet, note))
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.front().map(|(due_ns, ..)| *due_ns)
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.requests > 0
    }

    pub(crate) fn clear(&mut self) {
        (self.queue, self.requests) = (VecDeque::new(), 0);
    }
}

pub(crate) fn is_request(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Send | Operation::Write | Operation::ReadRequest
    )
}
