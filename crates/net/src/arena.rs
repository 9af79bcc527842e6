//! Storage for the frames inside the network: an arena, and queues of references into it.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::Frame;
use crate::ids::{PortId, next_id};
use crate::prefetch::prefetch;

/// Index of a frame in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameId(u32);

/// A frame and the bookkeeping of the network for it.
#[derive(Debug)]
pub(crate) struct StoredFrame {
    pub(crate) frame: Frame,
    /// Sequence number among all frames that devices have sent.
    pub(crate) serial: u64,
    /// Bytes of the frame on a cable and in a buffer, framing included.
    pub(crate) bytes: u32,
}

impl StoredFrame {
    /// The queue entry of the frame with this id. It entered its node through the port `ingress`.
    pub(crate) fn queued(&self, id: FrameId, ingress: PortId) -> QueuedFrame {
        QueuedFrame {
            id,
            serial: self.serial,
            bytes: self.bytes,
            ingress,
        }
    }
}

/// All frames that the network holds. Slots are reused, so a frame that crosses the network causes
/// no allocation.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<Option<StoredFrame>>,
    free: Vec<FrameId>,
}

impl Arena {
    pub(crate) fn insert(&mut self, slot: StoredFrame) -> FrameId {
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = Some(slot);
            return id;
        }
        let id = FrameId(next_id(self.slots.len()));
        self.slots.push(Some(slot));
        id
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> StoredFrame {
        self.free.push(id);
        self.slots[id.0 as usize].take().expect(IN_USE)
    }

    /// Fetches a frame into the processor's caches ahead of its use. Most frames are not in the
    /// caches.
    pub(crate) fn prefetch(&self, id: FrameId) {
        const FEW: usize = 1 << 10;
        if self.slots.len() > FEW {
            prefetch(&self.slots[id.0 as usize]);
        }
    }

    /// Frames in the arena.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

const IN_USE: &str = "an id is dropped when its frame is removed";

impl Index<FrameId> for Arena {
    type Output = StoredFrame;

    fn index(&self, id: FrameId) -> &StoredFrame {
        self.slots[id.0 as usize].as_ref().expect(IN_USE)
    }
}

impl IndexMut<FrameId> for Arena {
    fn index_mut(&mut self, id: FrameId) -> &mut StoredFrame {
        self.slots[id.0 as usize].as_mut().expect(IN_USE)
    }
}

/// A queue entry: everything that a port needs to send the frame. The port does not read the frame
/// itself, which has usually left the caches during a long wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) id: FrameId,
    /// Same as [`StoredFrame::serial`].
    pub(crate) serial: u64,
    /// Same as [`StoredFrame::bytes`].
    pub(crate) bytes: u32,
    /// Port through which the frame entered the switch; at a device, the sending port itself.
    pub(crate) ingress: PortId,
}

/// A first-in, first-out queue of frames.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    frames: VecDeque<QueuedFrame>,
    bytes: u64,
}

impl Fifo {
    pub(crate) fn push(&mut self, queued: QueuedFrame) {
        self.bytes += u64::from(queued.bytes);
        self.frames.push_back(queued);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedFrame> {
        let first = self.frames.pop_front()?;
        self.bytes -= u64::from(first.bytes);
        Some(first)
    }

    /// Bytes of the first frame.
    pub(crate) fn head_bytes(&self) -> Option<u32> {
        self.frames.front().map(|first| first.bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use crate::{Ecn, NodeId, Payload};

    fn slot(serial: u64) -> StoredFrame {
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
        StoredFrame {
            frame,
            serial,
            bytes: 10,
        }
    }

    #[test]
    fn queues_keep_their_order_and_slots_are_used_again() {
        let mut arena = Arena::default();
        let mut fifo = Fifo::default();
        for round in 0..10 {
            for serial in 0..4 {
                let id = arena.insert(slot(round * 4 + serial));
                fifo.push(arena[id].queued(id, PortId(0)));
            }
            assert_eq!((fifo.bytes(), fifo.head_bytes()), (40, Some(10)));
            for serial in 0..4 {
                let queued = fifo.pop().unwrap();
                assert_eq!(queued.serial, round * 4 + serial);
                assert_eq!(arena.remove(queued.id).serial, queued.serial);
            }
            assert!(fifo.is_empty() && fifo.bytes() == 0 && fifo.pop().is_none());
        }
        assert_eq!((arena.slots.len(), arena.len()), (4, 0));
    }
}
