//! Parity messages: memory for them.

use std::collections::VecDeque;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Region, Window};
use farwrite_schemes::scheme::Message;
use farwrite_sdr::Place;
use farwrite_wire::control::{SchemeTag, data_of};

use super::Pair;
use super::sending::Send;
use crate::error::Error;
use crate::memory::{MemoryRegion, MrSlice};
use crate::registry::Registry;

/// Memory kept for the next message; the rest is given back.
pub(super) const SPARE_BYTES: u64 = 256 << 20;

/// Memory for the parity of one message. Its lkey is nobody else's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    pub(super) lkey: Lkey,
    bytes: u64,
    /// Ghosts are coded without arithmetic, so their parity needs no memory.
    is_ghost: bool,
}

/// Memory for the parity of a receive, open to the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    pub(super) scratch: Scratch,
    pub(super) window: Window,
}

/// How a message is coded, and where its parity is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parity {
    pub(super) layout: Layout,
    scratch: Scratch,
}

impl Parity {
    /// Where it is.
    pub(super) fn scratch(&self) -> Scratch {
        self.scratch
    }

    /// The parity of a message at its sender, as it is sent.
    pub(super) fn source(&self) -> MrSlice {
        let region = MemoryRegion {
            lkey: self.scratch.lkey,
            length: self.scratch.bytes,
        };
        region.slice(0..self.layout.parity_bytes() as u64)
    }
}

/// Memory for parity between two uses.
#[derive(Default)]
pub(super) struct Workshop {
    spare: VecDeque<Scratch>,
    /// Bytes lent to receives; those of sends are their user's doing.
    lent_bytes: u64,
}

impl Workshop {
    /// Memory of at least `bytes` bytes, at most `most_bytes`; a ghost for the parity of a ghost.
    fn take<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        bytes: u64,
        most_bytes: u64,
        is_ghost: bool,
    ) -> Result<Scratch, FabricError> {
        // A message must not hold many times the memory that it needs.
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
            let length = length.map_err(|_| FabricError::OutOfResources("parity memory"))?;
            Region::owned(vec![0_u8; length])
        };
        Ok(Scratch {
            lkey: fabric.register(region)?,
            bytes,
            is_ghost,
        })
    }

    /// Takes memory back that a receive had; its window is closed.
    pub(super) fn give_lent(&mut self, scratch: Scratch) {
        self.lent_bytes -= scratch.bytes;
        self.give(scratch);
    }

    /// Takes memory back; nothing may name it any more.
    pub(super) fn give(&mut self, scratch: Scratch) {
        self.spare.push_back(scratch);
    }

    /// Gives the fabric what is more than may be kept, the oldest first.
    pub(super) fn trim<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        keep_bytes: u64,
    ) -> Result<(), FabricError> {
        let mut bytes: u64 = self.spare.iter().map(|scratch| scratch.bytes).sum();
        while bytes > keep_bytes
            && let Some(scratch) = self.spare.pop_front()
        {
            bytes -= scratch.bytes;
            fabric.deregister(scratch.lkey)?;
        }
        Ok(())
    }
}

impl Pair {
    /// How a message of `bytes` bytes is coded by the scheme, if it is.
    pub(super) fn layout(&self, known: &Registry, tag: SchemeTag, bytes: u64) -> Option<Layout> {
        let message = Message {
            number: 0,
            bytes,
            chunks: self.geometry().chunks(bytes, false),
            chunk_bytes: self.geometry().chunk_bytes(),
        };
        known.find(tag)?.layout(&message)
    }

    /// Posts memory for the parity of an open receive, unless it has some: that is kept, even if it
    /// is too little. What is there without parity is repaired by asking. Answers whether there is
    /// enough.
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
        let Some(recv) = self.recvs.get_mut(&message) else {
            return Ok(false);
        };
        if let Some(lent) = &recv.lent {
            return Ok(room_bytes(&lent.scratch) >= bytes);
        }
        let limit_bytes = self.options.max_parity_bytes;
        let most_bytes = limit_bytes.saturating_sub(self.workshop.lent_bytes);
        if bytes > most_bytes {
            return Ok(false);
        }
        let is_ghost = fabric.region(recv.target().region.lkey)?.is_ghost();
        let taken = self.workshop.take(fabric, bytes, most_bytes, is_ghost);
        let scratch = match taken {
            // The message can do without.
            Err(FabricError::OutOfResources(_)) => return Ok(false),
            taken => taken?,
        };
        let set = self.holdings.windows(place.generation);
        let length = room_bytes(&scratch);
        let opened = fabric.open_window(set, place.slot, scratch.lkey, 0, length);
        let (window, remote) = opened?;
        self.workshop.lent_bytes += scratch.bytes;
        recv.lent = Some(Lent { scratch, window });
        let target = Place {
            rkey: remote.rkey.0,
            base: remote.addr,
            length,
        };
        self.sdr.post_parity(message, target)?;
        Ok(true)
    }

    /// A send is cleared: takes memory for its parity, if its scheme codes. Where the fabric has no
    /// room for that, the message goes without parity: the receiver asks for what it misses.
    pub(super) fn begin_coding<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
    ) -> Result<(), FabricError> {
        if let Some(send) = self.sends.get_mut(&message)
            && let Some(layout) = send.layout
        {
            let bytes = layout.parity_bytes() as u64;
            let region = send
                .source()
                .map(|source| fabric.region(source.region.lkey));
            let is_ghost = region.transpose()?.is_some_and(|region| region.is_ghost());
            send.parity = match self.workshop.take(fabric, bytes, u64::MAX, is_ghost) {
                Err(FabricError::OutOfResources(_)) => None,
                taken => Some(Parity {
                    layout,
                    scratch: taken?,
                }),
            };
        }
        Ok(())
    }

    /// Gives all memory for parity back; that of receives was taken back before.
    pub(super) fn give_parity_back<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
    ) -> Result<(), FabricError> {
        let leaving = self.leaving.values().map(|(send, _)| send);
        let sends = self.sends.values().chain(leaving).filter_map(Send::parity);
        let sends = sends.map(|parity| parity.scratch);
        for scratch in sends {
            self.workshop.give(scratch);
        }
        self.workshop.trim(fabric, 0)
    }

    /// The receiver has memory for the parity of a send.
    pub(super) fn parity_clear(&mut self, now_ns: u64, parity: u64) {
        let path = self.path(now_ns);
        let message = data_of(parity);
        if let Some(send) = self.sends.get(&message)
            && send.parity().is_some()
            && let Some(sender) = self.halves.existing_sender(send.scheme())
        {
            sender.handle_parity_clear(&path, message);
        }
    }
}
