//! Storage for the frames inside the network: an arena, and queues of references into it.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::ids::{PortId, next_id};
use crate::prefetch::prefetch;
use crate::telemetry::Telemetry;
use crate::{Ecn, Frame, NodeId, Payload};

/// Index of a frame in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameId(u32);

/// What switches read of a frame and change in it, in half a cache line. The rest of a frame is read
/// only by devices.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Label {
    /// Sequence number among all frames that devices have sent.
    pub(crate) serial: u64,
    pub(crate) flow: FlowKey,
    /// Bytes of the frame on a cable and in a buffer, framing included.
    pub(crate) bytes: u32,
    /// Same as [`Frame::priority`], but trimming can change it.
    pub(crate) priority: u8,
    /// Same as [`Frame::ecn`], but switches mark it.
    pub(crate) ecn: Ecn,
}

/// The fields of a frame that choose its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowKey {
    pub(crate) src: NodeId,
    pub(crate) dst: NodeId,
    pub(crate) src_port: u16,
}

impl FlowKey {
    pub(crate) fn of(frame: &Frame) -> Self {
        Self {
            src: frame.src,
            dst: frame.dst,
            src_port: frame.src_port,
        }
    }
}

impl Label {
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

/// The place of a frame. It begins with a cache line, so that it has no more lines than necessary and
/// a prefetch covers all of them.
#[derive(Debug)]
#[repr(align(64))]
struct Slot(Option<Frame>);

/// All frames that the network holds. Slots are reused, so a frame that crosses the network causes
/// no allocation. Labels are apart from the rest of the frames, because a network of many hosts has
/// more frames than caches hold, and a switch needs only the labels.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    labels: Vec<Label>,
    frames: Vec<Slot>,
    free: Vec<FrameId>,
}

impl Arena {
    /// Stores a frame. `framing_bytes` come on top of its IP datagram on a cable.
    pub(crate) fn insert(&mut self, frame: Frame, serial: u64, framing_bytes: u32) -> FrameId {
        let label = Label {
            serial,
            flow: FlowKey::of(&frame),
            bytes: frame.ip_bytes().saturating_add(framing_bytes),
            priority: frame.priority,
            ecn: frame.ecn,
        };
        if let Some(id) = self.free.pop() {
            self.labels[id.0 as usize] = label;
            self.frames[id.0 as usize].0 = Some(frame);
            return id;
        }
        let id = FrameId(next_id(self.labels.len()));
        self.labels.push(label);
        self.frames.push(Slot(Some(frame)));
        id
    }

    /// Removes a frame and returns it with the changes to its label.
    pub(crate) fn remove(&mut self, id: FrameId) -> Frame {
        self.free.push(id);
        let mut frame = self.frames[id.0 as usize].0.take().expect(IN_USE);
        let label = &self.labels[id.0 as usize];
        frame.priority = label.priority;
        frame.ecn = label.ecn;
        frame
    }

    /// The payload of a frame.
    pub(crate) fn payload(&self, id: FrameId) -> &Payload {
        &self.frames[id.0 as usize].0.as_ref().expect(IN_USE).payload
    }

    /// The room of a frame for telemetry.
    pub(crate) fn telemetry(&mut self, id: FrameId) -> Option<&mut Telemetry> {
        let frame = self.frames[id.0 as usize].0.as_mut().expect(IN_USE);
        frame.telemetry.as_deref_mut()
    }

    /// Cuts the payload off a frame, and gives it another priority.
    pub(crate) fn trim(&mut self, id: FrameId, priority: u8, framing_bytes: u32) {
        let frame = self.frames[id.0 as usize].0.as_mut().expect(IN_USE);
        frame.trim();
        let label = &mut self.labels[id.0 as usize];
        label.priority = priority;
        label.bytes = frame.ip_bytes().saturating_add(framing_bytes);
    }

    /// Fetches a label into the processor's caches ahead of its use, and with `whole` the frame too.
    /// Most frames are not in the caches.
    pub(crate) fn prefetch(&self, id: FrameId, whole: bool) {
        const FEW: usize = 1 << 8;
        if self.labels.len() > FEW {
            prefetch(&self.labels[id.0 as usize]);
            if whole {
                prefetch(&self.frames[id.0 as usize]);
            }
        }
    }

    /// Frames in the arena.
    pub(crate) fn len(&self) -> usize {
        self.labels.len() - self.free.len()
    }
}

const IN_USE: &str = "an id is dropped when its frame is removed";

impl Index<FrameId> for Arena {
    type Output = Label;

    fn index(&self, id: FrameId) -> &Label {
        &self.labels[id.0 as usize]
    }
}

impl IndexMut<FrameId> for Arena {
    fn index_mut(&mut self, id: FrameId) -> &mut Label {
        &mut self.labels[id.0 as usize]
    }
}

/// A queue entry: everything that a port needs to send the frame. The port does not read the frame
/// itself, which has usually left the caches during a long wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) id: FrameId,
    /// Same as [`Label::serial`].
    pub(crate) serial: u64,
    /// Same as [`Label::bytes`].
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
        // In a long queue, the next entry has left the caches since it was added.
        if let Some(next) = self.frames.front() {
            prefetch(next);
        }
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

    /// Whether a frame entered the node through a port.
    pub(crate) fn has_from(&self, ingress: PortId) -> bool {
        self.frames.iter().any(|queued| queued.ingress == ingress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;

    fn frame() -> Frame {
        Frame {
            src: NodeId(0),
            dst: NodeId(1),
            src_port: 0,
            dst_port: crate::ROCE_PORT,
            ipv4_id: 0,
            priority: 0,
            ecn: Ecn::NotCapable,
            header: Header::Other([].into()),
            payload: Payload::Ghost(0),
            telemetry: None,
        }
    }

    #[test]
    fn queues_keep_their_order_and_slots_are_used_again() {
        let mut arena = Arena::default();
        let mut fifo = Fifo::default();
        for round in 0..10 {
            for serial in 0..4 {
                let id = arena.insert(frame(), round * 4 + serial, 10);
                fifo.push(arena[id].queued(id, PortId(0)));
            }
            assert_eq!((fifo.bytes(), fifo.head_bytes()), (4 * 38, Some(38)));
            for serial in 0..4 {
                let queued = fifo.pop().unwrap();
                assert_eq!(queued.serial, round * 4 + serial);
                assert_eq!(arena[queued.id].serial, queued.serial);
                assert_eq!(arena.remove(queued.id), frame());
            }
            assert!(fifo.is_empty() && fifo.bytes() == 0 && fifo.pop().is_none());
        }
        assert_eq!((arena.labels.len(), arena.len()), (4, 0));
    }
}
