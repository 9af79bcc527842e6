//! Parity messages: memory for them, and the arithmetic that schemes ask for.

use std::collections::VecDeque;

use farwrite_codes::{Code, Codec, Group, Layout, Present};
use farwrite_fabric::contract::{Fabric, FabricError, Lkey};
use farwrite_schemes::scheme::{Job, Message, Work};
use farwrite_sdr::{Place, SlotTable};
use farwrite_wire::control::{SchemeTag, data_of, parity_of};

use super::Pair;
use super::receiving::Recv;
use super::sending::Send;
use crate::error::Error;
use crate::memory::{MemoryRegion, MrSlice};
use crate::registry::{Registry, TableArrivals};

/// Bytes of data encoded in one poll, if a group is not more: about what is sent in one.
const ENCODE_BYTES_A_POLL: usize = 512 * 1024;
/// Memory kept for the next message; the rest is given back.
const SPARE_BYTES: u64 = 256 << 20;

/// Memory for the parity of one message. Its lkey is nobody else's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    lkey: Lkey,
    bytes: u64,
}

/// How a message is coded, and where its parity is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parity {
    layout: Layout,
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

/// The codecs in use, and memory between two uses.
#[derive(Default)]
pub(super) struct Workshop {
    codecs: Vec<Codec>,
    spare: VecDeque<Scratch>,
    /// Bytes lent to receives; those of sends are their user's doing.
    lent_bytes: u64,
}

impl Workshop {
    /// Memory of at least `bytes` bytes, at most `most_bytes`.
    fn take<F: Fabric>(
        &mut self,
        fabric: &mut F,
        bytes: u64,
        most_bytes: u64,
    ) -> Result<Scratch, FabricError> {
        // A message must not hold many times the memory that it needs.
        let most_bytes = most_bytes.min(bytes.saturating_mul(4));
        let fits = |s: &Scratch| (bytes..=most_bytes).contains(&s.bytes);
        if let Some(index) = self.spare.iter().position(fits)
            && let Some(scratch) = self.spare.remove(index)
        {
            return Ok(scratch);
        }
        let length =
            usize::try_from(bytes).map_err(|_| FabricError::OutOfResources("parity memory"))?;
        let lkey = fabric.register(Box::new(vec![0_u8; length]))?;
        Ok(Scratch { lkey, bytes })
    }

    /// Takes memory back; nothing may name it any more.
    pub(super) fn give(&mut self, scratch: Scratch) {
        self.spare.push_back(scratch);
    }

    /// Gives the fabric what is more than may be kept, the oldest first.
    fn trim<F: Fabric>(&mut self, fabric: &mut F, keep_bytes: u64) -> Result<(), FabricError> {
        let mut bytes: u64 = self.spare.iter().map(|scratch| scratch.bytes).sum();
        while bytes > keep_bytes
            && let Some(scratch) = self.spare.pop_front()
        {
            bytes -= scratch.bytes;
            fabric.deregister(scratch.lkey)?;
        }
        Ok(())
    }

    fn codec(&mut self, code: Code) -> &Codec {
        let known = self.codecs.iter().position(|codec| codec.code() == code);
        let index = known.unwrap_or_else(|| {
            self.codecs.push(Codec::new(code));
            self.codecs.len() - 1
        });
        &self.codecs[index]
    }
}

/// What of a group is there.
fn present(table: &SlotTable, message: u64, job: &Job, layout: &Layout, group: &Group) -> Present {
    let code = layout.code();
    let arrived = |message: u64, first: usize, count: usize| {
        let chunk = |i: &usize| {
            let chunk = u32::try_from(first + i).unwrap_or(u32::MAX);
            table.word(message, chunk / 64) >> (chunk % 64) & 1 == 1
        };
        (0..count).filter(chunk).collect()
    };
    let index = job.group as usize;
    Present {
        data: arrived(message, index * code.k(), group.data_chunks),
        parity: arrived(parity_of(message), index * code.m(), group.parity_chunks),
    }
}

/// Bytes `range` of a message that lies in `slice` of a region.
fn within(slice: &MrSlice, range: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let offset = usize::try_from(slice.offset).expect("a region is in memory");
    offset + range.start..offset + range.end
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

    /// Posts memory for the parity of an open receive, unless it has some: that is kept, even if it is
    /// too little. What is there without parity is repaired by asking. Answers whether there is enough.
    pub(super) fn provide_parity<F: Fabric>(
        &mut self,
        fabric: &mut F,
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
        if let Some(scratch) = &recv.scratch {
            return Ok(room_bytes(scratch) >= bytes);
        }
        let limit_bytes = self.options.max_parity_bytes;
        let most_bytes = limit_bytes.saturating_sub(self.workshop.lent_bytes);
        if bytes > most_bytes {
            return Ok(false);
        }
        let scratch = match self.workshop.take(fabric, bytes, most_bytes) {
            // The message can do without.
            Err(FabricError::OutOfResources(_)) => return Ok(false),
            taken => taken?,
        };
        let root = self.holdings.root(place.generation);
        fabric.bind(root, place.slot, scratch.lkey, 0, room_bytes(&scratch))?;
        self.workshop.lent_bytes += scratch.bytes;
        recv.scratch = Some(scratch);
        let target = Place {
            rkey: root.0,
            base: self.sdr.geometry().slot_base(place.slot),
            length: room_bytes(&scratch),
        };
        self.sdr.post_parity(message, target)?;
        Ok(true)
    }

    /// Takes the memory for the parity of a receive out of the peer's reach.
    pub(super) fn release_parity<F: Fabric>(
        &mut self,
        fabric: &mut F,
        message: u64,
        recv: &Recv,
    ) -> Result<(), Error> {
        if let Some(scratch) = recv.scratch {
            let place = self.sdr.parity_place(message)?;
            fabric.unbind(self.holdings.root(place.generation), place.slot)?;
            self.workshop.lent_bytes -= scratch.bytes;
            self.workshop.give(scratch);
        }
        Ok(())
    }

    /// A send is cleared: takes memory for its parity, if its scheme codes. Where the fabric has no
    /// room for that, the message goes without parity: the receiver asks for what it misses.
    pub(super) fn begin_coding<F: Fabric>(
        &mut self,
        fabric: &mut F,
        message: u64,
    ) -> Result<(), FabricError> {
        if let Some(send) = self.sends.get_mut(&message)
            && let Some(layout) = send.layout
        {
            let bytes = layout.parity_bytes() as u64;
            send.parity = match self.workshop.take(fabric, bytes, u64::MAX) {
                Err(FabricError::OutOfResources(_)) => None,
                taken => Some(Parity {
                    layout,
                    scratch: taken?,
                }),
            };
        }
        Ok(())
    }

    /// Gives all memory for parity back; no key may name it any more.
    pub(super) fn give_parity_back<F: Fabric>(
        &mut self,
        fabric: &mut F,
    ) -> Result<(), FabricError> {
        let leaving = self.leaving.values().map(|(send, _)| send);
        let sends = self.sends.values().chain(leaving).filter_map(Send::parity);
        let sends = sends.map(|parity| parity.scratch);
        let recvs = self.recvs.values().filter_map(|recv| recv.scratch);
        for scratch in sends.chain(recvs) {
            self.workshop.give(scratch);
        }
        self.workshop.trim(fabric, 0)
    }

    /// Encodes groups that schemes want encoded, a bounded amount; answers how many bytes of data.
    pub(crate) fn encode<F: Fabric>(&mut self, fabric: &mut F, now_ns: u64) -> Result<u64, Error> {
        let path = self.path(now_ns);
        let mut bytes = 0;
        for index in 0..self.halves.sender_count() {
            while bytes < ENCODE_BYTES_A_POLL
                && let Some(job) = self.halves.sender_at(index).poll_job()
            {
                bytes += self.encode_group(fabric, &job)?;
                self.halves.sender_at(index).handle_job(&path, &job);
            }
        }
        self.workshop.trim(fabric, SPARE_BYTES)?;
        Ok(bytes as u64)
    }

    /// Returns the bytes of data that it read.
    fn encode_group<F: Fabric>(&mut self, fabric: &mut F, job: &Job) -> Result<usize, Error> {
        let send = self.sends.get(&job.message);
        let Some((source, parity)) = send.and_then(|s| s.source().zip(s.parity())) else {
            return Ok(0);
        };
        let Some(group) = parity.layout.group(job.group as usize) else {
            return Ok(0);
        };
        debug_assert_eq!(job.work, Work::Encode);
        let (data, scratch) = fabric.memory_pair(source.region.lkey, parity.scratch.lkey)?;
        let codec = self.workshop.codec(parity.layout.code());
        codec
            .encode(
                &data[within(&source, &group.data)],
                parity.layout.chunk_bytes(),
                &mut scratch[group.parity.clone()],
            )
            .expect("the layout fits the code");
        Ok(group.data.len())
    }

    /// Rebuilds the groups that schemes want rebuilt.
    pub(super) fn rebuild<F: Fabric>(&mut self, fabric: &mut F, now_ns: u64) -> Result<(), Error> {
        let path = self.path(now_ns);
        for index in 0..self.halves.receiver_count() {
            loop {
                let arrivals = TableArrivals(self.sdr.table());
                let Some(job) = self.halves.receiver_at(index).poll_job(&arrivals) else {
                    break;
                };
                self.rebuild_group(fabric, &job)?;
                let arrivals = TableArrivals(self.sdr.table());
                let receiver = self.halves.receiver_at(index);
                receiver.handle_job(&path, &job, &arrivals);
            }
        }
        Ok(())
    }

    fn rebuild_group<F: Fabric>(&mut self, fabric: &mut F, job: &Job) -> Result<(), Error> {
        let Some(recv) = self.recvs.get(&job.message) else {
            return Ok(());
        };
        let Some((layout, scratch)) = recv.layout.zip(recv.scratch) else {
            return Ok(());
        };
        let Some(group) = layout.group(job.group as usize) else {
            return Ok(());
        };
        debug_assert_eq!(job.work, Work::Rebuild);
        let table = self.sdr.table();
        let present = present(table, job.message, job, &layout, &group);
        let target = recv.target();
        let (scratch, data) = fabric.memory_pair(scratch.lkey, target.region.lkey)?;
        let codec = self.workshop.codec(layout.code());
        let recovered = codec.recover(
            &mut data[within(&target, &group.data)],
            &scratch[group.parity.clone()],
            layout.chunk_bytes(),
            &present,
        );
        // Too much is missing, whatever the scheme believed: nothing was changed.
        if recovered.is_err() {
            return Ok(());
        }
        let first = job.group as usize * layout.code().k();
        for chunk in present.data.missing(group.data_chunks).iter() {
            let chunk = u32::try_from(first + chunk).unwrap_or(u32::MAX);
            table.handle_rebuilt(job.message, chunk);
            if let Some(meter) = recv.scheme().and_then(|tag| self.losses.meter(tag)) {
                meter.handle_rebuilt(job.message, chunk);
            }
        }
        self.stats.rebuilt_chunks += present.data.missing(group.data_chunks).len() as u64;
        Ok(())
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
