//! Frames inside the network: an arena, and queues that link its slots.

use std::ops::{Index, IndexMut};

use crate::Frame;
use crate::ids::{PortId, next_id};

/// A frame's place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameId(u32);

/// A frame and what the network notes about it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) frame: Frame,
    /// Its number among all frames that devices sent.
    pub(crate) serial: u64,
    /// Bytes that it takes on a cable and in a buffer.
    pub(crate) bytes: u32,
    /// Where it entered the switch that it is in.
    pub(crate) ingress: PortId,
    /// How often the cable that it is on had gone down when it was sent.
    pub(crate) epoch: u32,
    /// The frame behind it in a queue.
    next: Option<FrameId>,
}

impl Slot {
    pub(crate) fn new(frame: Frame, serial: u64, bytes: u32, ingress: PortId) -> Self {
        Self {
            frame,
            serial,
            bytes,
            ingress,
            epoch: 0,
            next: None,
        }
    }
}

/// All frames that the network holds. Slots are used again: a frame that crosses the network
/// allocates nothing on its way.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<Option<Slot>>,
    free: Vec<FrameId>,
}

impl Arena {
    pub(crate) fn insert(&mut self, slot: Slot) -> FrameId {
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = Some(slot);
            return id;
        }
        let id = FrameId(next_id(self.slots.len()));
        self.slots.push(Some(slot));
        id
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> Slot {
        self.free.push(id);
        self.slots[id.0 as usize].take().expect(IN_USE)
    }

    /// Frames in the arena.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

const IN_USE: &str = "an id is dropped when its frame is removed";

impl Index<FrameId> for Arena {
    type Output = Slot;

    fn index(&self, id: FrameId) -> &Slot {
        self.slots[id.0 as usize].as_ref().expect(IN_USE)
    }
}

impl IndexMut<FrameId> for Arena {
    fn index_mut(&mut self, id: FrameId) -> &mut Slot {
        self.slots[id.0 as usize].as_mut().expect(IN_USE)
    }
}

/// Frames that wait, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    ends: Option<(FrameId, FrameId)>,
    bytes: u64,
}

impl Fifo {
    pub(crate) fn push(&mut self, arena: &mut Arena, id: FrameId) {
        let slot = &mut arena[id];
        slot.next = None;
        self.bytes += u64::from(slot.bytes);
        self.ends = match self.ends {
            None => Some((id, id)),
            Some((first, last)) => {
                arena[last].next = Some(id);
                Some((first, id))
            }
        };
    }

    pub(crate) fn pop(&mut self, arena: &Arena) -> Option<FrameId> {
        let (first, last) = self.ends?;
        let slot = &arena[first];
        self.bytes -= u64::from(slot.bytes);
        self.ends = slot.next.map(|next| (next, last));
        Some(first)
    }

    /// Bytes of the first frame.
    pub(crate) fn head_bytes(&self, arena: &Arena) -> Option<u32> {
        self.ends.map(|(first, _)| arena[first].bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use crate::{Ecn, NodeId, Payload};

    fn slot(serial: u64) -> Slot {
        let frame = Frame {
            src: NodeId(0),
            dst: NodeId(1),
            src_port: 0,
            dst_port: crate::ROCE_PORT,
            ipv4_id: 0,
            priority: 0,
            ecn: Ecn::NotCapable,
            header: Header::Other([].into()),
            payload: Payload::Ghost(0),
        };
        Slot::new(frame, serial, 10, PortId(0))
    }

    #[test]
    fn queues_keep_their_order_and_slots_are_used_again() {
        let mut arena = Arena::default();
        let mut fifo = Fifo::default();
        for round in 0..10 {
            for serial in 0..4 {
                let id = arena.insert(slot(round * 4 + serial));
                fifo.push(&mut arena, id);
            }
            assert_eq!((fifo.bytes(), fifo.head_bytes(&arena)), (40, Some(10)));
            for serial in 0..4 {
                let id = fifo.pop(&arena).unwrap();
                assert_eq!(arena.remove(id).serial, round * 4 + serial);
            }
            assert!(fifo.is_empty() && fifo.bytes() == 0 && fifo.pop(&arena).is_none());
        }
        assert_eq!((arena.slots.len(), arena.len()), (4, 0));
    }
}
