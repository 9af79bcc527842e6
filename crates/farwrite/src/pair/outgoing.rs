//! Packets on their way into the fabric, and out of it.
//!
//! Packets leave this queue in its order, a batch at a time. The fabric reports each batch once,
//! and batches on different queue pairs in any order. Runs of chunks are reported to their schemes
//! in order: a run has departed when it has, and all before it have.

use std::collections::VecDeque;
use std::ops::Range;

use farwrite_fabric::Adapter;
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
    /// Its number in the message.
    pub(crate) packet: u32,
}

/// Packets of a run, one after the other, that the fabric took.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) message: u64,
    pub(crate) packets: Range<u32>,
    /// Of their payloads.
    pub(crate) bytes: u64,
    pub(crate) is_repeat: bool,
}

/// A run of chunks that has not departed.
#[derive(Debug)]
struct Run {
    number: u64,
    chunks: Chunks,
    /// The region that its packets are sent from.
    lkey: Lkey,
    /// Of its chunks, those that were never queued before.
    new_chunks: u32,
}

impl Run {
    fn is_repeat(&self) -> bool {
        self.new_chunks < self.chunks.range.end - self.chunks.range.start
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

/// Packets between the schemes and the wire, and the runs of chunks that they make up.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Packets not yet taken by the fabric, each with the number of its run.
    queue: VecDeque<(u64, OutgoingWrite)>,
    /// In the order of their numbers.
    runs: VecDeque<Run>,
    next_run: u64,
    /// In the order of their numbers. The first has not departed.
    batches: VecDeque<Batch>,
    next_batch: u64,
}

impl Outgoing {
    /// Packets not yet taken by the fabric.
    pub(crate) fn packets(&self) -> usize {
        self.queue.len()
    }

    /// Gives the memory of empty queues back.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.runs.shrink_to_fit();
        self.batches.shrink_to_fit();
    }

    /// Queues the packets of a run of chunks, which are sent from the region `lkey`. `new_chunks` of
    /// the chunks were never queued before.
    pub(crate) fn push_run(
        &mut self,
        chunks: Chunks,
        lkey: Lkey,
        new_chunks: u32,
        writes: impl Iterator<Item = OutgoingWrite>,
    ) {
        let number = self.next_run;
        let before = self.queue.len();
        self.queue.extend(writes.map(|write| (number, write)));
        if self.queue.len() > before {
            self.next_run += 1;
            self.runs.push_back(Run {
                number,
                chunks,
                lkey,
                new_chunks,
            });
        }
    }

    /// Whether all that was queued has departed.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether the fabric has taken packets that have not departed.
    pub(crate) fn is_departing(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether packets of a message, or of its parity, have not departed.
    pub(crate) fn holds(&self, message: u64) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| data_of(run.chunks.message) == message)
    }

    /// Whether packets that have not departed are sent from the region.
    pub(crate) fn sends_from(&self, lkey: Lkey) -> bool {
        self.runs.iter().any(|run| run.lkey == lkey)
    }

    /// The fabric reports that the batch `wr_id` has left, and with it all before it on `qpn`.
    /// [`Self::take_departed`] has the runs that have thereby departed.
    pub(crate) fn handle_departed(&mut self, qpn: Qpn, wr_id: u64) {
        let left = self.batches.iter_mut().filter(|batch| batch.qpn == qpn);
        for batch in left.take_while(|batch| batch.number <= wr_id) {
            batch.departed = true;
        }
        while self.batches.front().is_some_and(|batch| batch.departed) {
            self.batches.pop_front();
        }
    }

    /// The next run that has departed, in the order in which runs were queued, and how many of its
    /// chunks were never queued before.
    pub(crate) fn take_departed(&mut self) -> Option<(Chunks, u32)> {
        let posted = self.batches.front().map(|batch| batch.first_run);
        let queued = self.queue.front().map(|(run, _)| *run);
        let oldest = posted.or(queued).unwrap_or(self.next_run);
        let has_departed = self.runs.front().is_some_and(|run| run.number < oldest);
        let run = has_departed.then(|| self.runs.pop_front())??;
        Some((run.chunks, run.new_chunks))
    }

    /// Drops the packets of a message, and of its parity, that the fabric has not taken.
    pub(crate) fn forget(&mut self, message: u64) {
        let posted = self.batches.back().map(|batch| batch.last_run);
        let is_of_message = |run: &Run| data_of(run.chunks.message) == message;
        let runs = self.runs.iter().filter(|run| is_of_message(run));
        let numbers: Vec<u64> = runs.map(|run| run.number).collect();
        if numbers.is_empty() {
            return;
        }
        self.queue
            .retain(|(run, _)| numbers.binary_search(run).is_err());
        self.runs
            .retain(|run| posted.is_some_and(|last| run.number <= last) || !is_of_message(run));
    }

    /// Hands the next packets of one queue pair to the fabric, at most `max_packets`. Calls `left`
    /// with those that it took, and returns how many they are; none where it is full.
    pub(crate) fn post<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        max_packets: usize,
        mut left: impl FnMut(Taken),
    ) -> Result<usize, FabricError> {
        let Some(&(first_run, OutgoingWrite { qpn, .. })) = self.queue.front() else {
            return Ok(0);
        };
        let writes = self.queue.iter().map(|(_, write)| write);
        let batch = writes
            .take(BATCH_PACKETS.min(max_packets))
            .take_while(|write| write.qpn == qpn);
        let mut writes: Vec<WriteWr<'_>> = batch
            .map(|write| WriteWr {
                wr_id: self.next_batch,
                signaled: false,
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
        if let Some(last) = writes.last_mut() {
            last.signaled = true;
        }
        let taken = fabric.post_writes(qpn, &writes)?;
        drop(writes);
        let mut last_run = None;
        let mut together: Option<(u64, Range<u32>, u64)> = None;
        for (run, write) in self.queue.drain(..taken) {
            last_run = Some(run);
            let bytes = u64::from(write.local.length);
            together = match together.take() {
                Some((number, packets, sum)) if number == run && packets.end == write.packet => {
                    Some((run, packets.start..write.packet + 1, sum + bytes))
                }
                before => {
                    before
                        .into_iter()
                        .for_each(|it| left(taken_of(&self.runs, it)));
                    Some((run, write.packet..write.packet + 1, bytes))
                }
            };
        }
        together
            .into_iter()
            .for_each(|it| left(taken_of(&self.runs, it)));
        if let Some(last_run) = last_run {
            self.batches.push_back(Batch {
                number: self.next_batch,
                qpn,
                first_run,
                last_run,
                departed: false,
            });
            self.next_batch += 1;
        }
        Ok(taken)
    }
}

/// Packets of the run with a number, which is queued still.
fn taken_of(runs: &VecDeque<Run>, (number, packets, bytes): (u64, Range<u32>, u64)) -> Taken {
    let place = runs.binary_search_by_key(&number, |run| run.number);
    let run = &runs[place.expect("a run stays until it has departed")];
    Taken {
        message: run.chunks.message,
        packets,
        bytes,
        is_repeat: run.is_repeat(),
    }
}
