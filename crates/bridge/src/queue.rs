//! The queue of frames to send.

use std::collections::VecDeque;

use farwrite_trains::VNET_BYTES;

/// Frames that wait to be sent by an interface, in order.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    frames: VecDeque<([u8; VNET_BYTES], Vec<u8>)>,
    bytes: u64,
    sent: u64,
    refused: u64,
}

impl Outgoing {
    /// Adds a frame, with the kernel's header that describes what is unfinished.
    pub(crate) fn push(&mut self, vnet: [u8; VNET_BYTES], frame: Vec<u8>) {
        self.bytes += frame.len() as u64;
        self.frames.push_back((vnet, frame));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes in the queue.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
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
            self.pop();
        }
    }

    /// Removes the first frame, which the kernel refused. It is lost.
    pub(crate) fn refused(&mut self) {
        self.refused += 1;
        self.pop();
    }

    /// Frames sent and refused so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent, self.refused)
    }

    fn pop(&mut self) {
        if let Some((_, frame)) = self.frames.pop_front() {
            self.bytes -= frame.len() as u64;
        }
    }
}
