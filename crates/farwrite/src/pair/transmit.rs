//! The way of packets from schemes and streams to the fabric, as the path allows.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Qpn, Rkey, Sge};
use farwrite_schemes::scheme::{Chunks, Message};
use farwrite_wire::control::{Outcome, SchemeTag, data_of, is_parity};

use super::Pair;
use super::outgoing::{BATCH_PACKETS, OutgoingWrite};
use super::sending::StreamRun;
use crate::error::Error;
use crate::memory::MrSlice;
use crate::path::{PeerPath, Run};

/// Most wire bytes that a queue pair sends in a turn, but for part of a packet: some batches.
const TURN_BYTES: i64 = 256 * 1024;

/// What a queue pair did in its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) sent_bytes: u64,
    pub(crate) halt: Halt,
}

/// What ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Nothing is left to send. Whether packets were handed to the fabric before.
    Idle { posted: bool },
    /// The pace or the window of the path, or another queue pair whose turn it is there.
    Held,
    /// Others have waited long enough.
    TurnOver,
    /// The fabric is full for the moment.
    Full,
}

impl Pair {
    /// The receiver's buffer for a message is known: its chunks may go.
    pub(super) fn clear_to_send<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
        message: u64,
    ) -> Result<(), Error> {
        if is_parity(message) {
            self.parity_clear(now_ns, message);
            return Ok(());
        }
        self.begin_coding(fabric, message)?;
        let Some(send) = self.sends.get_mut(&message) else {
            return Ok(());
        };
        send.clear();
        self.events.send_cleared(message);
        if send.is_bounded() {
            let scheme = send.scheme();
            self.start_bounded(now_ns, scheme);
        } else {
            self.start_cleared(now_ns, message);
        }
        Ok(())
    }

    /// Gives the scheme charge of the messages that come next in their order, as far as they are
    /// cleared: a packet of one would end all older ones at the receiver (P5.9).
    fn start_bounded(&mut self, now_ns: u64, scheme: SchemeTag) {
        let of_scheme = self.sends.iter();
        let of_scheme = of_scheme.filter(|(_, send)| send.scheme() == scheme);
        let cleared = of_scheme.take_while(|(_, send)| send.is_cleared());
        let next = cleared.filter(|(_, send)| !send.is_started());
        let next: Vec<u64> = next.map(|(&message, _)| message).collect();
        for message in next {
            self.start_cleared(now_ns, message);
        }
    }

    /// Messages are over that were not cleared: what waited for them may start.
    pub(super) fn start_unblocked(&mut self, now_ns: u64) {
        for scheme in std::mem::take(&mut self.unblocked) {
            self.start_bounded(now_ns, scheme);
        }
    }

    /// Gives its scheme charge of a message.
    fn start_cleared(&mut self, now_ns: u64, message: u64) {
        let path = self.path(now_ns);
        let Some(send) = self.sends.get_mut(&message) else {
            return;
        };
        let Some(source) = send.source() else {
            return;
        };
        let has_immediate = send.has_immediate();
        send.start();
        if let Some(sender) = self.halves.existing_sender(send.scheme()) {
            if let Some(deadline_ns) = send.deadline_ns {
                sender.handle_deadline(message, deadline_ns);
            }
            let bytes = source.length;
            let chunks = self.sdr.geometry().chunks(bytes, has_immediate);
            let chunk_bytes = self.sdr.geometry().chunk_bytes();
            sender.start(
                &path,
                &Message {
                    number: message,
                    bytes,
                    chunks,
                    chunk_bytes,
                },
            );
        }
    }

    /// Takes a turn: sends what the path and the fabric allow, at most [`TURN_BYTES`]. A turn that
    /// the fabric cut short, as it was full, goes on with the next call.
    pub(crate) fn take_turn<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        path: Option<&mut PeerPath>,
        now_ns: u64,
    ) -> Result<Turn, Error> {
        let Some(path) = path else {
            return Ok(Turn {
                sent_bytes: 0,
                halt: Halt::Idle { posted: false },
            });
        };
        if self.turn_bytes <= 0 {
            self.turn_bytes += TURN_BYTES;
        }
        let before = self.turn_bytes;
        let halt = self.transmit(fabric, path, now_ns);
        let (wants, waits) = match &halt {
            Ok(halt) => (!matches!(halt, Halt::Idle { .. }), *halt == Halt::Held),
            Err(_) => (false, false),
        };
        path.end_turn(now_ns, self.name.index, &mut self.place, (wants, waits));
        let halt = halt?;
        let sent_bytes = u64::try_from(before - self.turn_bytes).unwrap_or(0);
        if halt != Halt::Full {
            // A debt of part of a packet stays.
            self.turn_bytes = self.turn_bytes.min(0);
        }
        Ok(Turn { sent_bytes, halt })
    }

    fn transmit<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        path: &mut PeerPath,
        now_ns: u64,
    ) -> Result<Halt, Error> {
        let overhead_bytes = path.overhead_bytes();
        let packet_bytes = u64::from(self.geometry().config().mtu) + overhead_bytes;
        let per_chunk = self.geometry().config().packets_per_chunk;
        let serial = self.name.serial;
        self.events.set_now(now_ns);
        let mut posted = false;
        loop {
            let Some(turn_bytes) = u64::try_from(self.turn_bytes).ok().filter(|&n| n > 0) else {
                return Ok(Halt::TurnOver);
            };
            let allowance = path.allowance(now_ns, self.name.index);
            // One packet shows whether there is anything to send that the path holds back.
            let packets = allowance.min(turn_bytes).div_ceil(packet_bytes);
            if !self.fill(now_ns, packets.max(1)) {
                return Ok(Halt::Idle { posted });
            }
            if allowance == 0 {
                return Ok(Halt::Held);
            }
            // A chunk may be longer than the burst.
            let max_packets = usize::try_from(packets).unwrap_or(usize::MAX);
            let mut wire_bytes = 0;
            let events = &self.events;
            let taken = self.outgoing.post(fabric, max_packets, |run| {
                let count = u64::from(run.packets.end - run.packets.start);
                let bytes = run.bytes + count * overhead_bytes;
                wire_bytes += bytes;
                let run = Run {
                    serial,
                    message: run.message,
                    packets: run.packets,
                    packet_bytes,
                    bytes,
                    is_repeat: run.is_repeat,
                };
                events.send_chunks(&run, per_chunk);
                path.note_departure(now_ns, &run);
            })?;
            if taken == 0 {
                return Ok(Halt::Full);
            }
            posted = true;
            self.turn_bytes -= i64::try_from(wire_bytes).unwrap_or(i64::MAX);
        }
    }

    /// Gathers packets for one call of the fabric, however short the runs are that schemes hand
    /// out; false if there is none.
    fn fill(&mut self, now_ns: u64, packets: u64) -> bool {
        let wanted = packets.min(BATCH_PACKETS as u64);
        let missing = |pair: &Self| wanted.saturating_sub(pair.outgoing.packets() as u64);
        while missing(self) > 0 && self.pull(now_ns, missing(self)) {}
        self.outgoing.packets() > 0
    }

    /// Takes about `packets` packets from whoever has some; false if nobody has.
    fn pull(&mut self, now_ns: u64, packets: u64) -> bool {
        let path = self.path(now_ns);
        let per_chunk = u64::from(self.geometry().config().packets_per_chunk);
        let max_chunks = u32::try_from((packets / per_chunk).max(1)).unwrap_or(u32::MAX);
        if self.pull_stream(max_chunks) {
            return true;
        }
        for _ in 0..self.halves.sender_count() {
            let chunks = self
                .halves
                .next_sender()
                .and_then(|s| s.poll_transmit(&path, max_chunks));
            if let Some(chunks) = chunks {
                self.queue_scheme_chunks(chunks);
                return true;
            }
        }
        false
    }

    fn queue_scheme_chunks(&mut self, chunks: Chunks) {
        let send = self.sends.get(&data_of(chunks.message));
        let source = if is_parity(chunks.message) {
            send.and_then(|send| Some(send.parity()?.source()))
        } else {
            send.and_then(|send| send.source())
        };
        // A scheme that speaks of a message it was never given would send another's bytes.
        debug_assert!(
            source.is_some(),
            "a scheme sent chunks of message {}",
            chunks.message
        );
        if let Some(source) = source {
            self.queue_run(chunks, source, 0);
        }
    }

    /// Takes chunks of the oldest run of a stream whose receiver is ready. Its user may have given
    /// runs of messages whose buffers are only posted once an older message is over.
    fn pull_stream(&mut self, max_chunks: u32) -> bool {
        let is_clear = |run: &StreamRun| self.sdr.is_clear(run.chunks.message);
        let Some(index) = self.streams.iter().position(is_clear) else {
            return false;
        };
        let run = &mut self.streams[index];
        let end = run
            .chunks
            .range
            .end
            .min(run.chunks.range.start.saturating_add(max_chunks));
        let chunks = Chunks {
            message: run.chunks.message,
            range: run.chunks.range.start..end,
        };
        let (source, first_chunk) = (run.source, run.first_chunk);
        run.chunks.range.start = end;
        if run.chunks.range.is_empty() {
            self.streams.remove(index);
        }
        let first_byte = u64::from(first_chunk) * self.geometry().chunk_bytes();
        self.queue_run(chunks, source, first_byte);
        true
    }

    /// Queues the packets of `chunks`; byte `first_byte` of the message is the first of `source`.
    fn queue_run(&mut self, chunks: Chunks, source: MrSlice, first_byte: u64) {
        let send = self.sends.get_mut(&data_of(chunks.message));
        let new_chunks = send.map_or(0, |send| send.note_queued(&chunks));
        let (qpns, channels) = (
            self.holdings.data_qpns(),
            usize::from(self.sdr.geometry().config().channels),
        );
        let writes = self
            .sdr
            .writes(chunks.message, chunks.range.clone())
            // While a stream has no length, its last chunk counts as full.
            .filter(|write| write.bytes == 0 || write.offset < first_byte + source.length)
            .map(|write| {
                let skip = write.offset.saturating_sub(first_byte);
                let packet = self.sdr.geometry().decode_immediate(write.imm).packet;
                let length = source.length.saturating_sub(skip).min(write.bytes.into());
                OutgoingWrite {
                    qpn: qpns
                        [usize::from(write.generation) * channels + usize::from(write.channel)],
                    local: Sge {
                        lkey: source.region.lkey,
                        offset: source.offset + skip,
                        length: u32::try_from(length).expect("a packet's bytes"),
                    },
                    remote_addr: write.remote_addr,
                    rkey: Rkey(write.rkey),
                    imm: write.imm,
                    packet,
                }
            });
        self.outgoing
            .push_run(chunks, source.region.lkey, new_chunks, writes);
    }

    /// A batch of packets left.
    pub(crate) fn handle_departed(&mut self, now_ns: u64, qpn: Qpn, wr_id: u64) {
        let path = self.path(now_ns);
        self.outgoing.handle_departed(qpn, wr_id);
        while let Some((chunks, new_chunks)) = self.outgoing.take_departed() {
            let Some(send) = self.sends.get_mut(&data_of(chunks.message)) else {
                continue;
            };
            let sender = self.halves.existing_sender(send.scheme());
            let Some(sender) = sender else {
                send.chunks_departed(chunks.range.end - chunks.range.start);
                continue;
            };
            if !is_parity(chunks.message) {
                send.chunks_departed(new_chunks);
            }
            sender.handle_departed(&path, &chunks);
        }
        self.release_sends();
    }

    /// Takes in which messages are over for their schemes.
    pub(super) fn settle_sends(&mut self) {
        let mut over = Vec::new();
        for sender in self.halves.senders() {
            while let Some(outcome) = sender.poll_outcome() {
                over.push(outcome);
            }
        }
        for (message, outcome) in over {
            self.finish_send(message, outcome);
        }
    }

    /// The peer closed a message.
    pub(super) fn handle_closed(&mut self, now_ns: u64, message: u64, outcome: Outcome) {
        let path = self.path(now_ns);
        let Some(send) = self.sends.get(&message) else {
            return;
        };
        match self.halves.existing_sender(send.scheme()) {
            Some(sender) if send.is_started() => sender.handle_closed(&path, message, outcome),
            // Nobody has charge of it, perhaps because the receive was over before it was cleared.
            _ => self.finish_send(message, outcome),
        }
    }

    /// A message is over. Its outcome is told when the fabric has sent the packets that it took,
    /// since its memory is the user's from then on.
    pub(super) fn finish_send(&mut self, message: u64, outcome: Outcome) {
        self.streams.retain(|run| run.chunks.message != message);
        self.outgoing.forget(message);
        if let Some(send) = self.sends.remove(&message) {
            self.events.send_ended(message, outcome);
            if let Some(deadline_ns) = send.deadline_ns {
                self.send_deadlines.remove(deadline_ns, message);
            }
            if send.is_bounded() && !send.is_started() {
                self.unblocked.push(send.scheme());
            }
            self.leaving.insert(message, (send, outcome));
        }
        self.release_sends();
    }

    /// Ends the messages that are over and of which the fabric holds no packets.
    fn release_sends(&mut self) {
        let has_left = |message: &u64| !self.outgoing.holds(*message);
        let left: Vec<u64> = self.leaving.keys().copied().filter(has_left).collect();
        for message in left {
            let Some((send, outcome)) = self.leaving.remove(&message) else {
                continue;
            };
            send.finish(outcome);
            if let Some(parity) = send.parity() {
                self.workshop.give(parity.scratch());
            }
            self.sdr.close_send(message, outcome);
        }
    }
}
