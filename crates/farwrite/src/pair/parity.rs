//! Memory for the parity of messages.

use std::collections::VecDeque;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Region, Table, Window};
use farwrite_schemes::scheme::{CriticalChunks, Message};
use farwrite_sdr::Place;
use farwrite_wire::control::SchemeTag;

use super::Pair;
use crate::error::Error;
use crate::memory::{MemoryRegion, MrSlice};
use crate::registry::Registry;

/// Maximum memory kept for later messages, in bytes. The rest is returned to the fabric.
pub(super) const SPARE_BYTES: u64 = 256 << 20;

/// Memory for the parity of one message. Its lkey has no other use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    pub(super) lkey: Lkey,
    bytes: u64,
    /// Ghosts are coded without arithmetic, so their parity needs no memory.
    is_ghost: bool,
}

/// Memory for the parity of a receive. The peer can write to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParityRegion {
    pub(super) scratch: Scratch,
    pub(super) window: Window,
}

/// How a message is coded, and where its parity is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parity {
    pub(super) layout: Layout,
    pub(super) scratch: Scratch,
}

impl Parity {
    /// Returns the parity of a message as a source for sending.
    pub(super) fn source(&self) -> MrSlice {
        let region = MemoryRegion {
            lkey: self.scratch.lkey,
            length: self.scratch.bytes,
        };
        region.slice(0..self.layout.parity_bytes() as u64)
    }
}

/// Manages parity memory between uses.
#[derive(Default)]
pub(super) struct ParityMemory {
    spare: VecDeque<Scratch>,
    /// Bytes lent to receives. Bytes for sends are not counted, because the user decides how much
    /// to send.
    lent_bytes: u64,
}

impl ParityMemory {
    /// Takes memory of at least `bytes` and at most `most_bytes` bytes. The parity of a ghost gets
    /// a ghost.
    fn take<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        bytes: u64,
        most_bytes: u64,
        is_ghost: bool,
    ) -> Result<Scratch, FabricError> {
        // A message must not hold much more memory than it needs.
        let most_bytes = most_bytes.min(bytes.saturating_mul(4));
        let fits = |s: &Scratch| s.is_ghost == is_ghost && (bytes..=most_bytes).contains(&s.bytes);
        if let Some(index) = self.spare.iter().position(fits)
            && let Some(scratch) = self.spare.remove(index)
        {
            return Ok(scratch);
        }
        let region = if is_ghost {
            Region::ghost(bytes)
        } else {
            let length = usize::try_from(bytes);
            let length = length.map_err(|_| FabricError::OutOfResources(Table::MemoryRegion))?;
            Region::owned(vec![0_u8; length])
        };
        Ok(Scratch {
            lkey: fabric.register(region)?,
            bytes,
            is_ghost,
        })
    }

    /// Takes back the memory of a receive. Its window is closed.
    pub(super) fn give_lent(&mut self, scratch: Scratch) {
        self.lent_bytes -= scratch.bytes;
        self.give(scratch);
    }

    /// Takes back memory that nothing uses any more.
    pub(super) fn give(&mut self, scratch: Scratch) {
        self.spare.push_back(scratch);
    }

    /// Returns memory beyond the limit to the fabric, the oldest first. Memory that is still being
    /// coded stays.
    pub(super) fn trim<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        keep_bytes: u64,
    ) -> Result<(), FabricError> {
        let mut bytes: u64 = self.spare.iter().map(|scratch| scratch.bytes).sum();
        while bytes > keep_bytes
            && let Some(scratch) = self.spare.pop_front()
        {
            match fabric.deregister(scratch.lkey) {
                Err(FabricError::InUse(_)) => {
                    self.spare.push_back(scratch);
                    break;
                }
                deregistered => drop(deregistered?),
            }
            bytes -= scratch.bytes;
        }
        Ok(())
    }
}

impl Pair {
    /// Returns `None` if the scheme does not code a message of `bytes` bytes.
    pub(super) fn layout(&self, known: &Registry, tag: SchemeTag, bytes: u64) -> Option<Layout> {
        let message = Message {
            number: 0,
            bytes,
            chunks: self.geometry().chunks(bytes, false),
            chunk_bytes: self.geometry().chunk_bytes(),
            critical: CriticalChunks::NONE,
        };
        known.find(tag)?.layout(&message)
    }

    /// Posts memory for the parity of an open receive. If the receive already has memory, it keeps
    /// that memory, even if it is too small. A receive without enough memory for parity is repaired
    /// by retransmission. Returns whether there is enough memory.
    pub(super) fn provide_parity<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
        layout: &Layout,
    ) -> Result<bool, Error> {
        let bytes = layout.parity_bytes() as u64;
        let place = match self.sdr.parity_place(message) {
            Ok(place) if self.check_length(bytes).is_ok() => place,
            _ => return Ok(false),
        };
        let longest = self.sdr.geometry().config().max_message_bytes;
        let room_bytes = |scratch: &Scratch| scratch.bytes.min(longest);
        let Some(recv) = self.recv.open.get_mut(&message) else {
            return Ok(false);
        };
        if let Some(region) = &recv.region {
            return Ok(room_bytes(&region.scratch) >= bytes);
        }
        let limit_bytes = self.options.max_parity_bytes;
        let most_bytes = limit_bytes.saturating_sub(self.parity_memory.lent_bytes);
        if bytes > most_bytes {
            return Ok(false);
        }
        let target = fabric.region(recv.target.region.lkey)?;
        let is_ghost = target.is_ghost();
        let taken = self.parity_memory.take(fabric, bytes, most_bytes, is_ghost);
        let scratch = match taken {
            // The message can be repaired without parity.
            Err(FabricError::OutOfResources(_)) => return Ok(false),
            taken => taken?,
        };
        let set = self.resources.windows(place.generation);
        let length = room_bytes(&scratch);
        let opened = fabric.open_window(set, place.slot, scratch.lkey, 0, length);
        let (window, remote) = opened?;
        self.parity_memory.lent_bytes += scratch.bytes;
        recv.region = Some(ParityRegion { scratch, window });
        let target = Place {
            rkey: remote.rkey.0,
            base: remote.addr,
            length,
        };
        self.sdr.post_parity(message, target)?;
        Ok(true)
    }

    /// Takes memory for the parity of a send that was cleared, if its scheme codes. If the fabric
    /// has no room, the message is sent without parity, and the receiver requests what is missing.
    pub(super) fn begin_coding<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
    ) -> Result<(), FabricError> {
        let most_bytes = self.most_parity_bytes();
        if let Some(send) = self.send.open.get_mut(&message)
            && let Some(layout) = send.layout
            && layout.parity_bytes() as u64 <= most_bytes
        {
            let bytes = layout.parity_bytes() as u64;
            let region = send.source.map(|source| fabric.region(source.region.lkey));
            let region = region.transpose()?;
            let is_ghost = region.is_some_and(|region| region.is_ghost());
            send.parity = match self.parity_memory.take(fabric, bytes, most_bytes, is_ghost) {
                Err(FabricError::OutOfResources(_)) => None,
                taken => Some(Parity {
                    layout,
                    scratch: taken?,
                }),
            };
        }
        Ok(())
    }

    /// Returns how much memory the parity of the next send may take. The parity of answers is
    /// limited, because the peer decides how much they send.
    fn most_parity_bytes(&self) -> u64 {
        if !self.answers_reads() {
            return u64::MAX;
        }
        let taken_bytes = self.parity_of_sends().map(|scratch| scratch.bytes).sum();
        self.options.max_parity_bytes.saturating_sub(taken_bytes)
    }

    fn parity_of_sends(&self) -> impl Iterator<Item = Scratch> {
        let leaving = self.send.leaving.values().map(|(send, _)| send);
        let sends = self.send.open.values().chain(leaving);
        sends.filter_map(|send| Some(send.parity?.scratch))
    }

    /// Returns all parity memory to the fabric. The memory of receives was taken back before.
    pub(super) fn give_parity_back<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
    ) -> Result<(), FabricError> {
        let sends: Vec<Scratch> = self.parity_of_sends().collect();
        for scratch in sends {
            self.parity_memory.give(scratch);
        }
        self.parity_memory.trim(fabric, 0)
    }

    /// Records that the receiver has memory for the parity of a send.
    pub(super) fn parity_clear(&mut self, now_ns: u64, message: u64) {
        let view = self.sender_view(now_ns);
        if let Some(send) = self.send.open.get(&message)
            && send.parity.is_some()
            && let Some(sender) = self.halves.senders.get(send.scheme)
        {
            sender.handle_parity_clear(&view, message);
        }
    }
}
