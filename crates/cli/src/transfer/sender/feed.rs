//! From files to buffers, in a thread of its own.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};

use farwrite::Region;
use farwrite_session::files::Source;
use farwrite_session::{Error, Message};

use crate::exit::Failure;
use crate::transfer::failure::sort;
use crate::transfer::talk::Voice;

/// A buffer with the next bytes of the stream.
pub(super) struct Filled {
    pub(super) buffer: Region,
    pub(super) bytes: u64,
}

/// Reads files into buffers, and tells the receiver their hashes.
pub(super) struct Feeder {
    pub(super) voice: Voice,
    /// Bytes of a buffer.
    pub(super) segment_bytes: usize,
    /// Buffers that may still be made.
    pub(super) budget: u64,
    /// Buffers whose message is over.
    pub(super) empties: Receiver<Region>,
    pub(super) filled: SyncSender<Filled>,
    pub(super) failures: Sender<Failure>,
}

impl Feeder {
    /// Reads to the end of the stream, or until nobody wants more. Returns the numbers of the files
    /// that could not be read, ascending.
    pub(super) fn run(mut self, mut source: Source) -> Vec<u32> {
        let mut abandoned = Vec::new();
        while let Some(mut buffer) = self.buffer() {
            let out = &mut *buffer;
            let read_bytes = source.read(out);
            let bytes = u64::try_from(read_bytes).unwrap_or(u64::MAX);
            while let Some(read) = source.poll_file() {
                if read.result.is_err() {
                    abandoned.push(read.index);
                }
                if !self.say(&read.message()) {
                    return abandoned;
                }
            }
            if read_bytes == 0 {
                self.say(&Message::Done);
                return abandoned;
            }
            if self.filled.send(Filled { buffer, bytes }).is_err() {
                return abandoned;
            }
        }
        abandoned
    }

    /// A used buffer, or a new one while there may be more; `None` when the transfer is over.
    fn buffer(&mut self) -> Option<Region> {
        match self.empties.try_recv() {
            Ok(buffer) => Some(buffer),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) if self.budget > 0 => {
                self.budget -= 1;
                Some(Region::owned(vec![0_u8; self.segment_bytes]))
            }
            Err(TryRecvError::Empty) => self.empties.recv().ok(),
        }
    }

    fn say(&self, message: &Message) -> bool {
        match self.voice.say(message) {
            Ok(()) => true,
            // The listener hears why the channel ended; only this thread knows that it is stuck.
            Err(error @ Error::Timeout { .. }) => {
                let _ = self.failures.send(sort("sending", &error));
                false
            }
            Err(_) => false,
        }
    }
}
