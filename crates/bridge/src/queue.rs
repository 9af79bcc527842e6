//! The queue of frames to send.

use farwrite_boxes::{Class, PortQueue};
use farwrite_trains::VNET_BYTES;

/// If data of more bytes than this waits at an interface, the bridge stops reading from the other
/// one. Repairs are dropped if they and the data exceed it.
const MAX_WAITING_BYTES: u64 = 4 << 20;

/// Frames that wait to be sent by an interface, in order, after those that are ahead.
#[derive(Debug)]
pub(crate) struct Outgoing {
    frames: PortQueue<([u8; VNET_BYTES], Vec<u8>)>,
    sent: u64,
    refused: u64,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self {
            frames: PortQueue::new(MAX_WAITING_BYTES),
            sent: 0,
            refused: 0,
        }
    }
}

impl Outgoing {
    /// Adds a frame, with the kernel's header that describes what is unfinished. Data is always
    /// added: the caller stops reading when [`is_full`](Self::is_full).
    pub(crate) fn push(&mut self, class: Class, vnet: [u8; VNET_BYTES], frame: Vec<u8>) {
        self.frames.push(class, frame.len() as u64, (vnet, frame));
    }

    /// Adds a finished frame that leaves before all frames that are not ahead.
    pub(crate) fn push_ahead(&mut self, class: Class, frame: Vec<u8>) {
        let waiting = ([0; VNET_BYTES], frame);
        self.frames
            .push_ahead(class, waiting.1.len() as u64, waiting);
    }

    /// Number of frames that are ahead. They are the first ones.
    pub(crate) fn ahead(&self) -> usize {
        self.frames.ahead()
    }

    /// Whether data fills the queue.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.is_full_of_data()
    }

    pub(crate) fn repairs_dropped(&self) -> u64 {
        self.frames.repairs_dropped()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.frames.bytes()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = [&[u8]; 2]> {
        self.frames
            .iter()
            .map(|(vnet, frame)| [&vnet[..], &frame[..]])
    }

    /// Removes the first `count` frames, which were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count as u64;
        for _ in 0..count {
            self.frames.pop();
        }
    }

    /// Removes the first frame, which the kernel refused. It is lost.
    pub(crate) fn refused(&mut self) {
        self.refused += 1;
        self.frames.pop();
    }

    /// Frames sent and refused so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent, self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_give_way_before_the_bridge_stops_reading() {
        let mut queue = Outgoing::default();
        let frame = || vec![0; 1024];
        // Two halves of the queue: data and repairs.
        for _ in 0..2048 {
            queue.push(Class::Data, [0; VNET_BYTES], frame());
            queue.push(Class::Repair, [0; VNET_BYTES], frame());
        }
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (4 << 20, 0));
        queue.push(Class::Repair, [0; VNET_BYTES], frame());
        assert_eq!((queue.is_full(), queue.repairs_dropped()), (false, 1));
        for _ in 0..2048 {
            assert!(!queue.is_full());
            queue.push(Class::Data, [0; VNET_BYTES], frame());
        }
        assert_eq!((queue.is_full(), queue.repairs_dropped()), (true, 2049));
        assert_eq!((queue.bytes(), queue.iter().count()), (4 << 20, 4096));
        queue.sent(4095);
        queue.refused();
        assert_eq!((queue.is_empty(), queue.counts()), (true, (4095, 1)));
    }

    #[test]
    fn frames_that_are_ahead_are_the_first_ones() {
        let mut queue = Outgoing::default();
        queue.push(Class::Data, [0; VNET_BYTES], vec![1]);
        queue.push(Class::Data, [0; VNET_BYTES], vec![2]);
        queue.push_ahead(Class::Repair, vec![3]);
        queue.push_ahead(Class::Data, vec![4]);
        let frames: Vec<_> = queue.iter().map(|[_, frame]| frame[0]).collect();
        assert_eq!((frames, queue.ahead()), (vec![3, 4, 1, 2], 2));
        queue.sent(2);
        assert_eq!((queue.ahead(), queue.iter().count()), (0, 2));
    }
}
