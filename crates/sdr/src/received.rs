//! Messages that are being received, as the owner of the queue pair sees them.

use alloc::sync::Arc;

use farwrite_wire::control::parity_of;

use crate::memory::{Extent, SlotMemory};
use crate::sparse::Sparse;
use crate::table::{SlotTable, Unpublished};

/// What has arrived of the messages of a queue pair.
///
/// Messages and parity messages are named by number. They are here from posting until
/// [`SdrQp::release_recv`](crate::SdrQp::release_recv); of all others nothing has arrived.
pub struct Received {
    table: Arc<SlotTable>,
    messages: Sparse<u64, Entry>,
}

struct Entry {
    memory: Arc<SlotMemory>,
    /// What workers may still be using of a message that is over.
    unpublished: Option<Unpublished>,
}

impl Received {
    pub(crate) fn new(table: Arc<SlotTable>) -> Self {
        Self {
            table,
            messages: Sparse::new(),
        }
    }

    /// Calls `each` with every open message or parity message of which packets have arrived,
    /// duplicates included, since the last call.
    pub fn drain_arrivals(&self, mut each: impl FnMut(u64)) {
        let slots = self.table.geometry().slots();
        self.table.drain_dirty(|slot| {
            let Some(newest) = self.table.newest(slot) else {
                return;
            };
            let message = if slot < slots {
                newest
            } else {
                parity_of(newest)
            };
            // A worker may mark the slot for its last message when this one is posted already.
            if self.open(message).is_some_and(|memory| memory.seen() > 0) {
                each(message);
            }
        });
    }

    /// 64 chunks of a message from `64 * word` on, the first in the least significant bit; set:
    /// arrived whole. 0 where `word` is past the end.
    #[must_use]
    pub fn word(&self, message: u64, word: u32) -> u64 {
        self.get(message).map_or(0, |memory| memory.word(word))
    }

    /// How many chunks of a message have arrived whole.
    #[must_use]
    pub fn count(&self, message: u64) -> u32 {
        self.get(message).map_or(0, SlotMemory::count)
    }

    /// One past the highest chunk of a message of which a packet has arrived, 0 if none.
    #[must_use]
    pub fn seen(&self, message: u64) -> u32 {
        self.get(message).map_or(0, SlotMemory::seen)
    }

    /// Packets of a message that have arrived, duplicates left out.
    #[must_use]
    pub fn packets(&self, message: u64) -> u32 {
        self.get(message).map_or(0, SlotMemory::packets)
    }

    /// Chunks that a message has: until its length is known, those of the posted buffer.
    #[must_use]
    pub fn chunks(&self, message: u64) -> u32 {
        self.get(message).map_or(0, SlotMemory::chunks)
    }

    /// Whether a message's length is known, and all its chunks have arrived whole.
    #[must_use]
    pub fn is_complete(&self, message: u64) -> bool {
        self.get(message).is_some_and(SlotMemory::is_complete)
    }

    /// Whether a message, whose length must be known, carries no user immediate or has all of it.
    #[must_use]
    pub fn immediate_is_whole(&self, message: u64) -> bool {
        let memory = self.get(message);
        memory.is_some_and(SlotMemory::immediate_is_whole)
    }

    /// A chunk of an open message was computed from others, and is in its place: from now on it
    /// counts as arrived, with its bytes, but without fragments of a user immediate.
    pub fn handle_rebuilt(&self, message: u64, chunk: u32) {
        if let Some(memory) = self.open(message) {
            memory.handle_rebuilt(chunk);
        }
    }

    /// Begins to take packets of a message in, whose buffer holds `capacity` bytes.
    pub(crate) fn post(&mut self, message: u64, capacity: u64) -> Arc<SlotMemory> {
        let geometry = *self.table.geometry();
        let memory = Arc::new(SlotMemory::new(geometry, message, capacity));
        let entry = Entry {
            memory: memory.clone(),
            unpublished: None,
        };
        self.messages.insert(message, entry);
        self.table.publish(memory.clone());
        memory
    }

    /// Takes no more packets of an open message.
    pub(crate) fn close(&mut self, message: u64) {
        let entry = self.messages.get_mut(message);
        if let Some(entry) = entry.filter(|entry| entry.unpublished.is_none()) {
            entry.unpublished = self.table.unpublish(message);
        }
    }

    /// Forgets a message that is closed, and answers what workers may still be using of it.
    pub(crate) fn take_closed(&mut self, message: u64) -> Option<Unpublished> {
        let entry = self.messages.get_mut(message)?;
        let unpublished = entry.unpublished.take()?;
        self.messages.remove(message);
        Some(unpublished)
    }

    /// The length of an open message has become known.
    ///
    /// # Errors
    /// The number of packets up to the last that arrived, if the message ends before it. The
    /// length stays unknown then.
    pub(crate) fn set_extent(&self, message: u64, extent: Extent) -> Result<(), u32> {
        if let Some(memory) = self.open(message)
            && memory.set_extent(extent)?
        {
            self.table.mark_dirty(self.table.geometry().slot(message));
        }
        Ok(())
    }

    /// The user immediate of a message, once all its fragments have arrived.
    #[must_use]
    pub fn immediate(&self, message: u64) -> Option<u32> {
        self.get(message)?.immediate()
    }

    fn get(&self, message: u64) -> Option<&SlotMemory> {
        self.messages.get(message).map(|entry| &*entry.memory)
    }

    fn open(&self, message: u64) -> Option<&SlotMemory> {
        let entry = self.messages.get(message)?;
        entry.unpublished.is_none().then_some(&*entry.memory)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let messages = core::mem::replace(&mut self.messages, Sparse::new()).into_values();
        let unpublished = messages.filter_map(|entry| entry.unpublished);
        let unpublished: alloc::vec::Vec<_> = unpublished.collect();
        if !unpublished.is_empty() {
            self.table.leave(unpublished);
        }
    }
}
