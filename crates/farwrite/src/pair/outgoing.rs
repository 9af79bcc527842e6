//! Packets on their way into the fabric.

use std::collections::{BTreeMap, VecDeque};

use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Qpn, Rkey, Sge, WriteWr};
use farwrite_schemes::scheme::{Chunks, data_of};

/// Most packets handed to the fabric in one call.
pub(super) const BATCH_PACKETS: usize = 128;

/// One packet that was handed out by a scheme and not yet taken by the fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingWrite {
    pub(crate) qpn: Qpn,
    pub(crate) local: Sge,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: Rkey,
    pub(crate) imm: u32,
    /// The run of chunks that it belongs to.
    pub(crate) departure: u64,
    /// Whether it is the last of that run on its queue pair.
    pub(crate) signaled: bool,
}

/// A run of chunks, some of whose packets are still here.
#[derive(Debug)]
struct Departure {
    chunks: Chunks,
    /// Signalled packets not yet reported as departed.
    pending: u32,
}

/// Packets between the schemes and the fabric, and the runs of chunks that they make up.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// In order of sending.
    queue: VecDeque<OutgoingWrite>,
    departures: BTreeMap<u64, Departure>,
    next_departure: u64,
}

impl Outgoing {
    /// Packets that are still here.
    pub(crate) fn packets(&self) -> usize {
        self.queue.len()
    }

    /// Queues the packets of a run of chunks. `writes` come in order; a packet is signalled where
    /// the next one goes through another queue pair.
    pub(crate) fn push_run(&mut self, chunks: Chunks, writes: impl Iterator<Item = OutgoingWrite>) {
        let departure = self.next_departure;
        self.next_departure += 1;
        let mut pending = 0;
        let mut writes = writes.peekable();
        while let Some(mut write) = writes.next() {
            write.departure = departure;
            write.signaled = writes.peek().is_none_or(|next| next.qpn != write.qpn);
            pending += u32::from(write.signaled);
            self.queue.push_back(write);
        }
        if pending > 0 {
            self.departures
                .insert(departure, Departure { chunks, pending });
        }
    }

    /// Whether runs of chunks are here, or left and were not yet reported as departed.
    pub(crate) fn is_departing(&self) -> bool {
        !self.departures.is_empty()
    }

    /// Whether packets that are still here are sent from the region.
    pub(crate) fn sends_from(&self, lkey: Lkey) -> bool {
        self.queue.iter().any(|write| write.local.lkey == lkey)
    }

    /// A signalled packet left; returns the run of chunks that is thereby gone.
    pub(crate) fn handle_departed(&mut self, wr_id: u64) -> Option<Chunks> {
        let departure = self.departures.get_mut(&wr_id)?;
        departure.pending = departure.pending.saturating_sub(1);
        if departure.pending > 0 {
            return None;
        }
        self.departures
            .remove(&wr_id)
            .map(|departure| departure.chunks)
    }

    /// Drops the packets of a message, and of its parity, that are still here.
    pub(crate) fn forget(&mut self, message: u64) {
        let before = self.departures.len();
        self.departures
            .retain(|_, departure| data_of(departure.chunks.message) != message);
        if self.departures.len() < before {
            self.queue
                .retain(|write| self.departures.contains_key(&write.departure));
        }
    }

    /// Hands the next packets of one queue pair to the fabric, at most `max_packets`. Returns how many
    /// it took and their payload bytes; none where it is full.
    pub(crate) fn post<F: Fabric>(
        &mut self,
        fabric: &mut F,
        max_packets: usize,
    ) -> Result<(usize, u64), FabricError> {
        let Some(first) = self.queue.front() else {
            return Ok((0, 0));
        };
        let qpn = first.qpn;
        let batch = self
            .queue
            .iter()
            .take(BATCH_PACKETS.min(max_packets))
            .take_while(|write| write.qpn == qpn);
        let writes: Vec<WriteWr<'_>> = batch
            .map(|write| WriteWr {
                wr_id: write.departure,
                signaled: write.signaled,
                local: if write.local.length == 0 {
                    &[]
                } else {
                    std::slice::from_ref(&write.local)
                },
                remote_addr: write.remote_addr,
                rkey: write.rkey,
                imm: write.imm,
            })
            .collect();
        let taken = fabric.post_writes(qpn, &writes)?;
        drop(writes);
        let bytes = self
            .queue
            .drain(..taken)
            .map(|write| u64::from(write.local.length))
            .sum();
        Ok((taken, bytes))
    }
}
