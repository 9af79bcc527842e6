//! The queue of packets between the schemes and the fabric, up to their departure.
//!
//! Packets leave this queue in order, one batch at a time. The fabric reports each batch once. It
//! may report batches on different queue pairs in any order. Runs of chunks are reported to their
//! schemes in order: a run has departed when its packets and all earlier packets have departed.

use std::collections::VecDeque;
use std::ops::Range;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey, Qpn, Rkey, Sge, WriteWr};
use farwrite_schemes::scheme::{Chunks, MessageId};
use farwrite_sdr::{PacketWrite, PacketWrites};

use crate::memory::MrSlice;

/// Maximum number of packets handed to the fabric in one call.
pub(super) const BATCH_PACKETS: usize = 128;

/// Where the bytes of a message are. The first byte of `slice` is byte `first_byte` of the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) slice: MrSlice,
    pub(super) first_byte: u64,
}

impl Source {
    /// Returns the end of the message's bytes that are here, as an offset into the message.
    pub(super) fn end(&self) -> u64 {
        self.first_byte + self.slice.length
    }

    /// Returns the bytes of a packet.
    fn of(&self, write: &PacketWrite) -> Sge {
        let skip = write.offset.saturating_sub(self.first_byte);
        let length = self.slice.length.saturating_sub(skip);
        Sge {
            lkey: self.slice.region.lkey,
            offset: self.slice.offset + skip,
            // A packet has fewer than 2^32 bytes.
            length: u32::try_from(length).map_or(write.bytes, |length| length.min(write.bytes)),
        }
    }
}

/// Consecutive packets of a run that the fabric took.
#[derive(Debug)]
pub(super) struct AcceptedPackets {
    pub(super) message: MessageId,
    pub(super) packets: Range<u32>,
    /// Bytes of their payloads.
    pub(super) bytes: u64,
    pub(super) is_repeat: bool,
    /// Number of the write that the run belongs to, if any.
    pub(super) write: Option<u64>,
}

/// A run that has departed, as far as it was not dropped.
#[derive(Debug)]
pub(super) struct Departed {
    pub(super) chunks: Chunks,
    /// How many of its chunks were never queued before.
    pub(super) new_chunks: u32,
    /// Bytes of the payloads that have left.
    pub(super) bytes: u64,
    pub(super) write: Option<u64>,
}

/// What was dropped of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) packets: usize,
    /// Chunks of the runs that are gone. A run of which the fabric holds packets stays, and departs
    /// later with all its chunks.
    pub(super) chunks: u32,
    /// Bytes that had left of the runs that are gone.
    pub(super) left_bytes: u64,
}

/// A run of chunks that has not departed.
#[derive(Debug)]
struct Run {
    number: u64,
    chunks: Chunks,
    /// How many of its chunks were never queued before.
    new_chunks: u32,
    source: Source,
    /// Number of the write that the run belongs to, if any.
    write: Option<u64>,
    /// The packets of the run that the fabric has not taken.
    rest: PacketWrites,
    /// Bytes of the packets that the fabric has taken.
    taken_bytes: u64,
}

impl Run {
    fn is_repeat(&self) -> bool {
        self.new_chunks < self.chunks.range.end - self.chunks.range.start
    }

    fn is_queued(&self) -> bool {
        self.rest.len() > 0
    }
}

/// Packets that the fabric took in one call.
#[derive(Debug)]
struct Batch {
    /// The `wr_id` of its packets.
    number: u64,
    qpn: Qpn,
    first_run: u64,
    last_run: u64,
    departed: bool,
}

/// The packets between the schemes and the wire, and the runs of chunks that they form.
#[derive(Debug, Default)]
pub(super) struct PacketQueue {
    /// Sorted by number. Queued runs come after those that the fabric has taken.
    runs: VecDeque<Run>,
    next_run: u64,
    /// Number of packets that the fabric has not taken.
    pub(super) queued_packets: usize,
    /// Sorted by number. The first batch has not departed.
    batches: VecDeque<Batch>,
    next_batch: u64,
}

impl PacketQueue {
    /// Returns whether the next packet for the fabric has left before.
    pub(super) fn starts_with_repeat(&self) -> bool {
        let mut queued = self.runs.iter().filter(|run| run.is_queued());
        queued.next().is_some_and(Run::is_repeat)
    }

    /// Frees the memory of empty queues.
    pub(super) fn shrink(&mut self) {
        self.runs.shrink_to_fit();
        self.batches.shrink_to_fit();
    }

    /// Queues the packets of a run of chunks whose bytes are at `source`, and which belongs to
    /// `write`. `new_chunks` of the chunks were never queued before.
    pub(super) fn push_run(
        &mut self,
        chunks: Chunks,
        new_chunks: u32,
        (source, write): (Source, Option<u64>),
        packets: PacketWrites,
    ) {
        if packets.len() > 0 {
            self.queued_packets += packets.len();
            self.runs.push_back(Run {
                number: self.next_run,
                chunks,
                new_chunks,
                source,
                write,
                rest: packets,
                taken_bytes: 0,
            });
            self.next_run += 1;
        }
    }

    /// Returns whether everything that was queued has departed.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether the fabric has taken packets that have not departed.
    pub(super) fn is_departing(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Returns whether packets of a message, or of its parity, have not departed.
    pub(super) fn holds(&self, message: u64) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.chunks.message.data() == message)
    }

    /// Returns whether packets that have not departed are sent from the region.
    pub(super) fn sends_from(&self, lkey: Lkey) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.source.slice.region.lkey == lkey)
    }

    /// Returns the index of the first queued run.
    fn first_queued(&self) -> usize {
        self.runs.partition_point(|run| !run.is_queued())
    }

    /// Handles the fabric's report that the batch `wr_id` has left, and with it all earlier batches
    /// on `qpn`. After this call, [`Self::take_departed`] returns the runs that have departed.
    pub(super) fn handle_departed(&mut self, qpn: Qpn, wr_id: u64) {
        let left = self.batches.iter_mut().filter(|batch| batch.qpn == qpn);
        for batch in left.take_while(|batch| batch.number <= wr_id) {
            batch.departed = true;
        }
        while self.batches.front().is_some_and(|batch| batch.departed) {
            self.batches.pop_front();
        }
    }

    /// Removes the next run that has departed, in the order of queueing.
    pub(super) fn take_departed(&mut self) -> Option<Departed> {
        let posted = self.batches.front().map(|batch| batch.first_run);
        let queued = || self.runs.get(self.first_queued()).map(|run| run.number);
        let oldest = posted.or_else(queued).unwrap_or(self.next_run);
        let has_departed = self.runs.front().is_some_and(|run| run.number < oldest);
        let run = has_departed.then(|| self.runs.pop_front())??;
        Some(Departed {
            chunks: run.chunks,
            new_chunks: run.new_chunks,
            bytes: run.taken_bytes,
            write: run.write,
        })
    }

    /// Drops the packets of a message and of its parity that the fabric has not taken.
    pub(super) fn forget(&mut self, message: u64) {
        self.drop_rest(|run| run.chunks.message.data() == message);
    }

    /// Drops the packets of a write that the fabric has not taken.
    pub(super) fn drop_write(&mut self, write: u64) -> Dropped {
        self.drop_rest(|run| run.write == Some(write))
    }

    /// Drops the packets of some runs that the fabric has not taken. Runs of which the fabric holds
    /// packets stay until these have left.
    fn drop_rest(&mut self, is_dropped: impl Fn(&Run) -> bool) -> Dropped {
        let posted = self.batches.back().map(|batch| batch.last_run);
        let queued_packets = &mut self.queued_packets;
        let mut dropped = Dropped::default();
        self.runs.retain_mut(|run| {
            if !is_dropped(run) {
                return true;
            }
            let packets = run.rest.len();
            *queued_packets -= packets;
            dropped.packets += packets;
            run.rest.skip_packets(packets);
            let stays = posted.is_some_and(|last| run.number <= last);
            if !stays {
                dropped.chunks += run.chunks.range.end - run.chunks.range.start;
                dropped.left_bytes += run.taken_bytes;
            }
            stays
        });
        dropped
    }

    /// Hands the next packets of one queue pair to the fabric, at most `max_packets`. Calls `left`
    /// with the packets that the fabric took. Returns the number of these packets, which is 0 if
    /// the fabric is full.
    pub(super) fn post<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        max_packets: usize,
        qpn_of: impl Fn(&PacketWrite) -> Qpn,
        left: impl FnMut(AcceptedPackets),
    ) -> Result<usize, FabricError> {
        let queued = self.runs.range(self.first_queued()..);
        let packets = queued.flat_map(|run| run.rest.clone().map(|write| (write, run.source)));
        let packets = packets.map(|(write, source)| (write, source.of(&write)));
        let mut packets = packets.take(BATCH_PACKETS.min(max_packets)).peekable();
        let Some(qpn) = packets.peek().map(|(write, _)| qpn_of(write)) else {
            return Ok(0);
        };
        let packets = packets.take_while(|(write, _)| qpn_of(write) == qpn);
        let packets: Vec<(PacketWrite, Sge)> = packets.collect();
        let last = packets.len() - 1;
        let writes = packets
            .iter()
            .enumerate()
            .map(|(index, (write, local))| WriteWr {
                wr_id: self.next_batch,
                signaled: index == last,
                local: match local.length {
                    0 => &[],
                    _ => std::slice::from_ref(local),
                },
                remote_addr: write.remote_addr,
                rkey: Rkey(write.rkey),
                imm: write.imm,
            });
        let writes: Vec<WriteWr<'_>> = writes.collect();
        let taken = fabric.post_writes(qpn, &writes)?;
        self.note_taken(qpn, &packets[..taken], left);
        Ok(taken)
    }

    /// Records that the fabric took the first queued packets.
    fn note_taken(
        &mut self,
        qpn: Qpn,
        packets: &[(PacketWrite, Sge)],
        mut left: impl FnMut(AcceptedPackets),
    ) {
        let first = self.first_queued();
        let mut packets = packets.iter();
        let mut runs = None;
        for run in self.runs.range_mut(first..) {
            let count = run.rest.len().min(packets.len());
            if count == 0 {
                break;
            }
            debug_assert!(run.is_queued());
            let start = run.rest.next_packet();
            run.rest.skip_packets(count);
            self.queued_packets -= count;
            let taken = packets.by_ref().take(count);
            let bytes = taken.map(|(_, local)| u64::from(local.length)).sum();
            run.taken_bytes += bytes;
            left(AcceptedPackets {
                message: run.chunks.message,
                packets: start..run.rest.next_packet(),
                bytes,
                is_repeat: run.is_repeat(),
                write: run.write,
            });
            let first_run = runs.map_or(run.number, |(first, _)| first);
            runs = Some((first_run, run.number));
        }
        debug_assert_eq!(packets.len(), 0, "more packets were taken than queued");
        if let Some((first_run, last_run)) = runs {
            self.batches.push_back(Batch {
                number: self.next_batch,
                qpn,
                first_run,
                last_run,
                departed: false,
            });
            self.next_batch += 1;
        }
    }
}
