//! A log of when the packets in flight left.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;

use farwrite_wire::control::MessageId;

/// Maximum number of runs kept. The oldest are removed first. Reports about removed runs give no
/// round trip.
const MAX_RUNS: usize = 1 << 20;

/// Consecutive packets of one message that left together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Serial number of the queue pair that sent them.
    pub(crate) serial: u32,
    pub(crate) message: MessageId,
    pub(crate) packets: Range<u32>,
    /// Bytes on the wire of each packet except the last.
    pub(crate) packet_bytes: u64,
    /// Bytes on the wire of all packets together.
    pub(crate) bytes: u64,
    /// Whether some of the packets had left before.
    pub(crate) is_repeat: bool,
    /// Whether they are sent again because packets were lost.
    pub(crate) replaces_lost: bool,
}

#[cfg(test)]
impl Run {
    /// Packets of a queue pair, each with this many bytes.
    pub(super) fn of(
        message: impl Into<MessageId>,
        packets: Range<u32>,
        packet_bytes: u64,
        is_repeat: bool,
    ) -> Self {
        Self {
            serial: 1,
            message: message.into(),
            bytes: u64::from(packets.end - packets.start) * packet_bytes,
            packets,
            packet_bytes,
            is_repeat,
            replaces_lost: is_repeat,
        }
    }
}

/// What is known of a packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedPacket {
    /// Bytes sent to the peer up to and including this packet.
    pub(super) sent_bytes: u64,
    /// When the packet left. `None` if several copies of it may arrive, because it is not known
    /// which one did.
    pub(super) left_ns: Option<u64>,
    /// When its latest copy left.
    pub(super) latest_ns: u64,
    /// Whether older copies left before, of which none is in flight. One that the network held back
    /// can still arrive.
    pub(super) is_rewrite: bool,
}

impl LoggedPacket {
    /// Returns whether an older copy than the latest has arrived, whose arrival the sender learns of
    /// at `arrived_ns`: the latest left less than `least_rtt_ns` before, the time in which no packet
    /// comes and is answered.
    pub(super) fn is_of_older_copy(&self, arrived_ns: u64, least_rtt_ns: u64) -> bool {
        self.left_ns.is_none() && arrived_ns.saturating_sub(self.latest_ns) < least_rtt_ns
    }

    /// Returns when the packet left, for a round trip that ends at `now_ns`. If an older packet may
    /// have arrived in its place, for which `is_doubtful` is a reason too, that one must not make
    /// the round trip shorter than the shortest one known, `base_rtt_ns`.
    pub(super) fn sampled_ns(
        &self,
        now_ns: u64,
        base_rtt_ns: Option<u64>,
        is_doubtful: bool,
    ) -> Option<u64> {
        let is_doubtful = is_doubtful || self.is_rewrite;
        let is_long = |left_ns: u64| {
            let rtt_ns = now_ns.saturating_sub(left_ns);
            base_rtt_ns.is_some_and(|base_ns| rtt_ns >= base_ns)
        };
        self.left_ns
            .filter(|&left_ns| !is_doubtful || is_long(left_ns))
    }
}

/// The latest copies of consecutive packets of a message.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u32,
    /// Bytes sent to the peer before the first packet, and up to and including the last.
    start_bytes: u64,
    end_bytes: u64,
    packet_bytes: u64,
    left_ns: Option<u64>,
    latest_ns: u64,
    is_rewrite: bool,
}

impl Piece {
    /// Returns the bytes sent up to and including packet `index` of the piece, counted from 0.
    fn sent_bytes(&self, index: u32) -> u64 {
        let bytes = self.packet_bytes.saturating_mul(u64::from(index) + 1);
        self.start_bytes.saturating_add(bytes).min(self.end_bytes)
    }
}

/// Queue pair, message and first packet of a piece.
type Key = (u32, MessageId, u32);

/// A log of the packets in flight. Finding a packet costs O(log n), whatever a peer requests.
#[derive(Debug, Default)]
pub(super) struct PacketLog {
    /// The pieces of a message do not overlap.
    pieces: BTreeMap<Key, Piece>,
    /// The runs in the order in which they left. Each entry has the key of the first packet, one
    /// past the last packet, and the bytes sent to the peer up to and including the run.
    order: VecDeque<(Key, u32, u64)>,
}

impl PacketLog {
    /// Records a run that left after `start_bytes` bytes.
    pub(super) fn push(&mut self, now_ns: u64, start_bytes: u64, run: &Run) {
        if run.packets.is_empty() {
            return;
        }
        if self.order.len() >= MAX_RUNS {
            self.pop();
        }
        // The packets without bytes at the end of a stream may have left with its last chunk. Nothing
        // was lost then, so they do not count as repeats.
        let is_copied = self.cut_out(run);
        // A lost packet that is repeated may be late instead of lost.
        let is_rewrite = run.is_repeat && !run.replaces_lost && !is_copied;
        let key = (run.serial, run.message, run.packets.start);
        let piece = Piece {
            end: run.packets.end,
            start_bytes,
            end_bytes: start_bytes + run.bytes,
            packet_bytes: run.packet_bytes,
            left_ns: (!is_copied && (!run.is_repeat || is_rewrite)).then_some(now_ns),
            latest_ns: now_ns,
            is_rewrite,
        };
        self.pieces.insert(key, piece);
        self.order.push_back((key, piece.end, piece.end_bytes));
    }

    /// Returns the latest copy of a packet, if it is in flight.
    pub(super) fn find(
        &self,
        serial: u32,
        message: impl Into<MessageId>,
        packet: u32,
    ) -> Option<LoggedPacket> {
        let message = message.into();
        let up_to = (serial, message, 0)..=(serial, message, packet);
        let (&(_, _, first), piece) = self.pieces.range(up_to).next_back()?;
        (packet < piece.end).then(|| LoggedPacket {
            sent_bytes: piece.sent_bytes(packet - first),
            left_ns: piece.left_ns,
            latest_ns: piece.latest_ns,
            is_rewrite: piece.is_rewrite,
        })
    }

    /// Removes the first `bytes` bytes, which are no longer in flight.
    pub(super) fn settle(&mut self, bytes: u64) {
        while self
            .order
            .front()
            .is_some_and(|&(_, _, end_bytes)| end_bytes <= bytes)
        {
            self.pop();
        }
    }

    /// Removes the oldest run, except packets that have left again since.
    fn pop(&mut self) {
        let Some(((serial, message, start), end, end_bytes)) = self.order.pop_front() else {
            return;
        };
        // In most cases, none of its packets has left again.
        if let Entry::Occupied(piece) = self.pieces.entry((serial, message, start))
            && (piece.get().end, piece.get().end_bytes) == (end, end_bytes)
        {
            piece.remove();
            return;
        }
        let range = (serial, message, start)..(serial, message, end);
        let of_run = self.pieces.range(range);
        let old = of_run.filter(|(_, piece)| piece.end_bytes <= end_bytes);
        let old: Vec<Key> = old.map(|(&key, _)| key).collect();
        for key in old {
            self.pieces.remove(&key);
        }
    }

    /// Removes the older copies of the packets of a run. Returns whether there were any.
    fn cut_out(&mut self, run: &Run) -> bool {
        let (serial, message) = (run.serial, run.message);
        let Range { start, end } = run.packets;
        let before_end = self
            .pieces
            .range((serial, message, 0)..(serial, message, end));
        let overlapping = before_end.rev().take_while(|(_, piece)| piece.end > start);
        let overlapping: Vec<(Key, Piece)> = overlapping.map(|(&k, &p)| (k, p)).collect();
        let any = !overlapping.is_empty();
        for (key, piece) in overlapping {
            self.pieces.remove(&key);
            let first = key.2;
            if first < start {
                let left = Piece {
                    end: start,
                    end_bytes: piece.sent_bytes(start - first - 1),
                    ..piece
                };
                self.pieces.insert(key, left);
            }
            if piece.end > end {
                let right = Piece {
                    start_bytes: piece.sent_bytes(end - first - 1),
                    ..piece
                };
                self.pieces.insert((serial, message, end), right);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 1_000;

    fn run(message: impl Into<MessageId>, packets: Range<u32>, is_repeat: bool) -> Run {
        Run::of(message, packets, BYTES, is_repeat)
    }

    #[test]
    fn a_packet_is_found_with_the_bytes_sent_up_to_it() {
        let mut log = PacketLog::default();
        let short = Run {
            bytes: 9_100,
            ..run(7, 0..10, false)
        };
        log.push(5, 400, &short);
        let at = |packet, sent_bytes| (log.find(1, 7, packet), sent_bytes);
        for (found, sent_bytes) in [at(0, 1_400), at(8, 9_400), at(9, 9_500)] {
            assert_eq!(
                found,
                Some(LoggedPacket {
                    sent_bytes,
                    left_ns: Some(5),
                    latest_ns: 5,
                    is_rewrite: false
                })
            );
        }
        assert_eq!((log.find(1, 7, 10), log.find(1, 8, 0)), (None, None));
        assert_eq!((log.find(2, 7, 0), log.find(1, 6, 99)), (None, None));
    }

    #[test]
    fn a_packet_that_left_twice_gives_no_time_and_its_neighbours_do() {
        let mut log = PacketLog::default();
        log.push(5, 0, &run(7, 0..10, false));
        log.push(9, 10_000, &run(7, 3..5, true));
        let find = |packet| log.find(1, 7, packet).unwrap();
        for (packet, sent_bytes, left_ns, latest_ns) in [
            (2, 3_000, Some(5), 5),
            (3, 11_000, None, 9),
            (4, 12_000, None, 9),
            (5, 6_000, Some(5), 5),
            (9, 10_000, Some(5), 5),
        ] {
            assert_eq!(
                find(packet),
                LoggedPacket {
                    sent_bytes,
                    left_ns,
                    latest_ns,
                    is_rewrite: false
                },
                "{packet}"
            );
        }
        let is_older = [3, 5].map(|packet| find(packet).is_of_older_copy(28, 20));
        assert_eq!(is_older, [true, false], "no answer comes within 20 ns");
        assert!(!find(3).is_of_older_copy(29, 20));
        log.settle(10_000);
        let is_found = [2, 3, 4, 5].map(|packet| log.find(1, 7, packet).is_some());
        assert_eq!(is_found, [false, true, true, false]);
        log.settle(12_000);
        assert!(log.pieces.is_empty() && log.order.is_empty());
    }

    /// New bytes in an old place give a round trip once no older copy is in flight, but not one that
    /// is shorter than the path.
    #[test]
    fn a_packet_that_is_written_again_gives_a_time_when_no_copy_is_in_flight() {
        let again = |packets| Run {
            replaces_lost: false,
            ..run(7, packets, true)
        };
        let mut log = PacketLog::default();
        log.push(5, 0, &run(7, 0..10, false));
        log.push(6, 10_000, &again(0..10));
        assert_eq!(log.find(1, 7, 3).unwrap().left_ns, None, "two copies");
        log.settle(20_000);
        log.push(9, 20_000, &again(0..10));
        let found = log.find(1, 7, 3).unwrap();
        assert_eq!((found.left_ns, found.is_rewrite), (Some(9), true));
        let sampled = [(20, Some(12)), (21, Some(12)), (22, None)];
        let sampled = sampled.map(|(now_ns, base_ns)| found.sampled_ns(now_ns, base_ns, false));
        assert_eq!(sampled, [None, Some(9), None]);
        log.settle(30_000);
        log.push(12, 30_000, &run(7, 0..10, true));
        assert_eq!(log.find(1, 7, 3).unwrap().left_ns, None, "it was lost");
    }

    proptest! {
        /// Compares the log with a plain list of all copies.
        #[test]
        fn the_latest_copy_in_flight_is_found(
            runs in prop::collection::vec((0u32..2, 0u64..2, 0u32..30, 1u32..10, 0u64..3), 1..60),
        ) {
            let mut log = PacketLog::default();
            let mut copies: Vec<(u32, u64, u32, u64, u64)> = Vec::new();
            let (mut sent, mut settled) = (0, 0);
            for (now_ns, (serial, message, start, count, settle)) in (1u64..).zip(runs) {
                let packets = start..start + count;
                let is_repeat = packets.clone().any(|packet| {
                    copies.iter().any(|c| (c.0, c.1, c.2) == (serial, message, packet))
                });
                let run = Run { serial, ..run(message, packets.clone(), is_repeat) };
                log.push(now_ns, sent, &run);
                for packet in packets {
                    sent += BYTES;
                    let left_ns = if is_repeat { 0 } else { now_ns };
                    copies.push((serial, message, packet, sent, left_ns));
                }
                if settle == 0 {
                    settled = settled.max(sent / 2);
                    log.settle(settled);
                }
                for packet in 0..40 {
                    let of = |c: &&(u32, u64, u32, u64, u64)| (c.0, c.1, c.2) == (serial, message, packet);
                    let latest = copies.iter().rev().find(of);
                    let found = log.find(serial, message, packet);
                    match (latest, found) {
                        (None, found) => prop_assert_eq!(found, None),
                        (Some(copy), None) => prop_assert!(copy.3 <= settled),
                        (Some(copy), Some(found)) => {
                            prop_assert_eq!(found.sent_bytes, copy.3);
                            prop_assert_eq!(found.left_ns.unwrap_or(0), copy.4);
                        }
                    }
                }
            }
            log.settle(sent);
            prop_assert!(log.pieces.is_empty() && log.order.is_empty());
        }
    }
}
