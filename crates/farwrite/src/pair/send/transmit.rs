//! Moves packets from schemes and streams to the fabric, at the rate that the peer's state allows.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Qpn};
use farwrite_schemes::scheme::Chunks;
use farwrite_sdr::PacketWrite;

use super::queue::{BATCH_PACKETS, Departed, Source};
use crate::error::Error;
use crate::pair::Pair;
use crate::peer::{PeerState, Run, TurnEnd};

/// Maximum number of wire bytes that a queue pair sends in one turn, a few batches. A turn may
/// exceed it by part of a packet.
const TURN_BYTES: i64 = 256 * 1024;

/// The result of a queue pair's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) sent_bytes: u64,
    pub(crate) halt: Halt,
}

/// What ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Nothing is left to send. `posted` is true if packets were handed to the fabric before.
    Idle { posted: bool },
    /// The pace or the window of the peer does not allow more, or it is another queue pair's turn
    /// to the peer.
    Held,
    /// The turn was long enough, and other queue pairs get theirs.
    TurnOver,
    /// The fabric is full at the moment.
    Full,
}

impl Pair {
    /// Takes a turn: sends what the pace and the fabric allow, at most [`TURN_BYTES`]. If the turn
    /// ends because the fabric is full, the next call continues it.
    pub(crate) fn take_turn<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        peer: Option<&mut PeerState>,
        now_ns: u64,
    ) -> Result<Turn, Error> {
        let Some(peer) = peer else {
            return Ok(Turn {
                sent_bytes: 0,
                halt: Halt::Idle { posted: false },
            });
        };
        if self.send.turn_bytes <= 0 {
            self.send.turn_bytes += TURN_BYTES;
        }
        let before = self.send.turn_bytes;
        let halt = self.transmit(fabric, peer, now_ns);
        let mut end = match &halt {
            Ok(halt) => TurnEnd {
                wants: !matches!(halt, Halt::Idle { .. }),
                waits: *halt == Halt::Held,
                ..TurnEnd::default()
            },
            Err(_) => TurnEnd::default(),
        };
        if peer.sending.needs_backlog() && halt.is_ok() {
            end.backlog_bytes = self.backlog_bytes(peer.overhead_bytes());
            end.repeats = self.send.queue.starts_with_repeat();
        }
        peer.end_turn(now_ns, self.name.index, &mut self.send.place_in_queue, &end);
        let halt = halt?;
        let sent_bytes = u64::try_from(before - self.send.turn_bytes).unwrap_or(0);
        if halt != Halt::Full {
            // A debt of part of a packet remains.
            self.send.turn_bytes = self.send.turn_bytes.min(0);
        }
        Ok(Turn { sent_bytes, halt })
    }

    /// Returns what is left to send, in bytes on the wire: packets that are queued, and chunks that
    /// were never queued. What the schemes will repeat is not known here.
    fn backlog_bytes(&self, overhead_bytes: u64) -> u64 {
        let geometry = self.geometry();
        let (chunk_bytes, mtu) = (geometry.chunk_bytes(), u64::from(geometry.config().mtu));
        let open = self.send.open.values();
        let of_sends = open.map(|send| send.unqueued_bytes(chunk_bytes));
        let runs = self.send.streams.iter().map(|run| run.chunk_count());
        let of_streams = runs.map(|chunks| u64::from(chunks) * chunk_bytes);
        let payload_bytes: u64 = of_sends.chain(of_streams).sum();
        let packets = payload_bytes.div_ceil(mtu);
        let queued = self.send.queue.queued_packets as u64;
        payload_bytes + packets * overhead_bytes + queued * (mtu + overhead_bytes)
    }

    fn transmit<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        peer: &mut PeerState,
        now_ns: u64,
    ) -> Result<Halt, Error> {
        let overhead_bytes = peer.overhead_bytes();
        let packet_bytes = u64::from(self.geometry().config().mtu) + overhead_bytes;
        let per_chunk = self.geometry().config().packets_per_chunk;
        let serial = self.name.serial;
        self.events.set_now(now_ns);
        let mut posted = false;
        loop {
            let Some(turn_bytes) = u64::try_from(self.send.turn_bytes).ok().filter(|&n| n > 0)
            else {
                return Ok(Halt::TurnOver);
            };
            let allowance = peer.sending.allowance(now_ns, self.name.index);
            // One packet shows whether there is something to send that the pace does not allow.
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
            let (events, resources) = (&self.events, &self.resources);
            let qpn_of = |write: &PacketWrite| resources.data_qpn(write.generation, write.channel);
            let queue = &mut self.send.queue;
            let taken = queue.post(fabric, max_packets, qpn_of, |run| {
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
                    // A write brings new bytes, also where an older one was.
                    replaces_lost: run.is_repeat && run.write.is_none(),
                };
                events.send_chunks(&run, per_chunk);
                peer.sending.note_departure(now_ns, &run);
            })?;
            if taken == 0 {
                return Ok(Halt::Full);
            }
            posted = true;
            self.send.turn_bytes -= i64::try_from(wire_bytes).unwrap_or(i64::MAX);
        }
    }

    /// Collects packets for one call of the fabric, even if schemes return short runs. Returns
    /// false if there are no packets.
    fn fill(&mut self, now_ns: u64, packets: u64) -> bool {
        let wanted = packets.min(BATCH_PACKETS as u64);
        let missing = |pair: &Self| wanted.saturating_sub(pair.send.queue.queued_packets as u64);
        while missing(self) > 0 && self.pull(now_ns, missing(self)) {}
        self.send.queue.queued_packets > 0
    }

    /// Takes about `packets` packets from a stream or a scheme. Returns false if none of them has
    /// packets.
    fn pull(&mut self, now_ns: u64, packets: u64) -> bool {
        let view = self.sender_view(now_ns);
        let per_chunk = u64::from(self.geometry().config().packets_per_chunk);
        let max_chunks = u32::try_from((packets / per_chunk).max(1)).unwrap_or(u32::MAX);
        if self.pull_stream(max_chunks) {
            return true;
        }
        for _ in 0..self.halves.senders.len() {
            let chunks = self
                .halves
                .next_sender()
                .and_then(|s| s.poll_transmit(&view, max_chunks));
            if let Some(chunks) = chunks {
                self.queue_scheme_chunks(chunks);
                return true;
            }
        }
        false
    }

    fn queue_scheme_chunks(&mut self, chunks: Chunks) {
        let send = self.send.open.get(&chunks.message.data());
        let slice = match chunks.message.is_parity() {
            true => send.and_then(|send| Some(send.parity?.source())),
            false => send.and_then(|send| send.source),
        };
        // A scheme must not send chunks of a message that it was never given.
        debug_assert!(
            slice.is_some(),
            "a scheme sent chunks of {}",
            chunks.message
        );
        if let Some(slice) = slice {
            let first_byte = 0;
            self.queue_run(chunks, Source { slice, first_byte }, None);
        }
    }

    /// `write` is the number of the write that the run belongs to, if any.
    pub(super) fn queue_run(&mut self, chunks: Chunks, source: Source, write: Option<u64>) {
        let send = self.send.open.get_mut(&chunks.message.data());
        let new_chunks = send.map_or(0, |send| {
            let new_chunks = send.note_queued(&chunks);
            match send.stream {
                // Packets at the end of a stream, without bytes, do not repeat the chunk that they
                // share with the last byte.
                Some(_) if source.slice.length == 0 => chunks.range.end - chunks.range.start,
                _ => new_chunks,
            }
        });
        let packets = self.sdr.writes(chunks.message, chunks.range.clone());
        let packets = match write {
            // A write has no part of the immediate, which the end of the stream sends.
            Some(_) => packets.bytes_up_to(source.end()),
            None => packets.up_to(source.end()),
        };
        self.send
            .queue
            .push_run(chunks, new_chunks, (source, write), packets);
    }

    pub(crate) fn handle_departed(&mut self, now_ns: u64, qpn: Qpn, wr_id: u64) {
        let view = self.sender_view(now_ns);
        self.send.queue.handle_departed(qpn, wr_id);
        while let Some(departed) = self.send.queue.take_departed() {
            self.send.writes.note_departed(&departed);
            let Departed {
                chunks, new_chunks, ..
            } = departed;
            let Some(send) = self.send.open.get_mut(&chunks.message.data()) else {
                continue;
            };
            let sender = self.halves.senders.get(send.scheme);
            let Some(sender) = sender else {
                send.chunks_departed(chunks.range.end - chunks.range.start);
                continue;
            };
            if !chunks.message.is_parity() {
                send.chunks_departed(new_chunks);
            }
            send.note_left(now_ns, &chunks);
            sender.handle_departed(&view, &chunks);
        }
        self.release_sends();
    }
}
