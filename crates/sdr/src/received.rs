//! Messages that are being received, as the owner of the queue pair sees them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use farwrite_wire::control::MessageId;

use crate::memory::{Extent, SlotMemory};
use crate::sparse::Sparse;
use crate::table::{SlotTable, Unpublished};

/// What has arrived of the messages of a queue pair.
///
/// It contains data and parity messages from posting until
/// [`SdrQp::release_recv`](crate::SdrQp::release_recv). For all other messages it shows that
/// nothing has arrived.
pub struct Received {
    table: Arc<SlotTable>,
    messages: Sparse<MessageId, Entry>,
    /// Cleared memory of ended messages, for later ones ([`Received::reuse`]).
    spare: Vec<Arc<SlotMemory>>,
}

struct Entry {
    memory: Arc<SlotMemory>,
    /// The memory of a completed message, which workers may still be using.
    unpublished: Option<Unpublished>,
}

impl Received {
    pub(crate) fn new(table: Arc<SlotTable>) -> Self {
        Self {
            table,
            messages: Sparse::new(),
            spare: Vec::new(),
        }
    }

    /// Calls `each` with every open message or parity message of which packets have arrived since
    /// the last call. Duplicates count too.
    pub fn drain_arrivals(&self, mut each: impl FnMut(MessageId)) {
        let slots = self.table.geometry().slots();
        self.table.drain_dirty(|slot| {
            let Some(newest) = self.table.newest(slot) else {
                return;
            };
            let data = MessageId::new(newest);
            let message = if slot < slots { data } else { data.parity() };
            // A worker may mark the slot for its previous message after this one is already posted.
            if self.open(message).is_some_and(|memory| memory.seen() > 0) {
                each(message);
            }
        });
    }

    /// 64 chunk bits of a message from chunk `64 * word` on. The first chunk is the least
    /// significant bit. A set bit means that the chunk has arrived completely. Returns 0 if `word`
    /// is past the end.
    #[must_use]
    pub fn word(&self, message: impl Into<MessageId>, word: u32) -> u64 {
        self.get(message.into())
            .map_or(0, |memory| memory.word(word))
    }

    /// Number of chunks of a message that have arrived completely.
    #[must_use]
    pub fn count(&self, message: impl Into<MessageId>) -> u32 {
        self.get(message.into()).map_or(0, SlotMemory::count)
    }

    /// One past the highest chunk of a message of which a packet has arrived, or 0 if no packet
    /// has.
    #[must_use]
    pub fn seen(&self, message: impl Into<MessageId>) -> u32 {
        self.get(message.into()).map_or(0, SlotMemory::seen)
    }

    /// Number of packets of a message that have arrived, without duplicates.
    #[must_use]
    pub fn packets(&self, message: impl Into<MessageId>) -> u32 {
        self.get(message.into()).map_or(0, SlotMemory::packets)
    }

    /// Number of chunks of a message. Until its length is known, the chunks of the posted buffer.
    #[must_use]
    pub fn chunks(&self, message: impl Into<MessageId>) -> u32 {
        self.get(message.into()).map_or(0, SlotMemory::chunks)
    }

    /// Returns whether a message's length is known and all its chunks have arrived completely.
    #[must_use]
    pub fn is_complete(&self, message: impl Into<MessageId>) -> bool {
        self.get(message.into())
            .is_some_and(SlotMemory::is_complete)
    }

    /// Returns whether a message carries no user immediate, or all of it has arrived. The message's
    /// length must be known.
    #[must_use]
    pub fn immediate_is_whole(&self, message: impl Into<MessageId>) -> bool {
        let memory = self.get(message.into());
        memory.is_some_and(SlotMemory::immediate_is_whole)
    }

    /// Records that a chunk of an open message was computed from others and is in place. From then
    /// on its bytes count as arrived, but it brings no fragments of a user immediate.
    pub fn handle_rebuilt(&self, message: impl Into<MessageId>, chunk: u32) {
        if let Some(memory) = self.open(message.into()) {
            memory.handle_rebuilt(chunk);
        }
    }

    /// Starts to accept packets of a message whose buffer holds `capacity` bytes.
    pub(crate) fn post(&mut self, message: MessageId, capacity: u64) -> Arc<SlotMemory> {
        let geometry = *self.table.geometry();
        let memory = self.take_spare(message, capacity).unwrap_or_else(|| {
            let mut memory = SlotMemory::new(geometry, message, self.room(capacity));
            memory.renew(geometry, message, capacity);
            Arc::new(memory)
        });
        let entry = Entry {
            memory: memory.clone(),
            unpublished: None,
        };
        self.messages.insert(message, entry);
        self.table.publish(memory.clone());
        memory
    }

    /// Clears the memory of an ended message and keeps it for a later one. Returns whether that was
    /// possible: nothing else may use the memory.
    pub(crate) fn reuse(&mut self, mut memory: Arc<SlotMemory>) -> bool {
        let Some(only) = Arc::get_mut(&mut memory) else {
            return false;
        };
        only.clear();
        self.spare.push(memory);
        true
    }

    /// The bytes that new bitmaps have room for. They are a power of two if memory is kept, so that few
    /// sizes of it exist.
    fn room(&self, capacity: u64) -> u64 {
        let most = self.table.geometry().config().max_message_bytes;
        match self.spare.is_empty() {
            true => capacity,
            false => capacity.next_power_of_two().min(most).max(capacity),
        }
    }

    /// Takes memory that was kept, if some of it is large enough.
    fn take_spare(&mut self, message: MessageId, capacity: u64) -> Option<Arc<SlotMemory>> {
        let geometry = *self.table.geometry();
        let renew = |memory: &mut Arc<SlotMemory>| {
            Arc::get_mut(memory).is_some_and(|only| only.renew(geometry, message, capacity))
        };
        let fitting = self.spare.iter_mut().position(renew)?;
        Some(self.spare.swap_remove(fitting))
    }

    /// Stops accepting packets of an open message.
    pub(crate) fn close(&mut self, message: MessageId) {
        let entry = self.messages.get_mut(message);
        if let Some(entry) = entry.filter(|entry| entry.unpublished.is_none()) {
            entry.unpublished = self.table.unpublish(message);
        }
    }

    /// Forgets a closed message, and returns the memory that workers may still be using.
    pub(crate) fn take_closed(&mut self, message: MessageId) -> Option<Unpublished> {
        let entry = self.messages.get_mut(message)?;
        let unpublished = entry.unpublished.take()?;
        self.messages.remove(message);
        Some(unpublished)
    }

    /// Sets the length of an open message.
    ///
    /// # Errors
    /// If a packet past the end of the message has arrived: the number of packets up to the highest
    /// that arrived. The length then stays unknown.
    pub(crate) fn set_extent(&self, message: MessageId, extent: Extent) -> Result<(), u32> {
        if let Some(memory) = self.open(message)
            && memory.set_extent(extent)?
        {
            self.table.mark_dirty(self.table.geometry().slot(message));
        }
        Ok(())
    }

    /// The user immediate of a message, if all its fragments have arrived.
    #[must_use]
    pub fn immediate(&self, message: impl Into<MessageId>) -> Option<u32> {
        self.get(message.into())?.immediate()
    }

    fn get(&self, message: MessageId) -> Option<&SlotMemory> {
        self.messages.get(message).map(|entry| &*entry.memory)
    }

    fn open(&self, message: MessageId) -> Option<&SlotMemory> {
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
