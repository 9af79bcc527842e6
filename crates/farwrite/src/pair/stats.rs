//! Statistics of a queue pair.

use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::scheme::SenderCounters;

/// What a queue pair has done, and what it measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpStats {
    /// Smoothed round-trip time of the path in nanoseconds. The configured value until the first
    /// measurement.
    pub rtt_ns: u64,
    /// How long a chunk may be missing at this end, while later ones arrive, before it counts as lost
    /// (P5.0.11), in nanoseconds.
    pub reordering_window_ns: u64,
    /// Chunks sent and retransmitted, summed over all schemes.
    pub sender: SenderCounters,
    /// Packets that arrived, duplicates included.
    pub received_packets: u64,
    /// Their payload bytes.
    pub received_bytes: u64,
    /// Payload bytes of the packets that brought new data, parity included.
    pub new_bytes: u64,
    /// Packets that had already arrived before.
    pub duplicate_packets: u64,
    /// Chunks that were lost and then computed from others.
    pub rebuilt_chunks: u64,
    /// Packets of messages that had ended. None of them was applied.
    pub late_packets: u64,
    /// Packets with an invalid immediate.
    pub invalid_packets: u64,
    /// Control packets that were refused: from an address that is not the peer's, with a bad tag,
    /// replayed, or malformed.
    pub refused_controls: u64,
    /// What the path lost on the way to this end, of messages with a scheme (P5.7).
    pub receive_loss: ChunkLoss,
    /// What the path lost on the way to the peer, according to the peer's last report.
    pub send_loss: ChunkLoss,
}

impl QpStats {
    /// Returns the sums over this queue pair and `later`, which replaced it. The round trip and the
    /// reordering window are those of `later`.
    #[must_use]
    pub fn and(&self, later: &Self) -> Self {
        Self {
            rtt_ns: later.rtt_ns,
            reordering_window_ns: later.reordering_window_ns,
            sender: SenderCounters {
                sent_chunks: self.sender.sent_chunks + later.sender.sent_chunks,
                retransmitted_chunks: self.sender.retransmitted_chunks
                    + later.sender.retransmitted_chunks,
                timeouts: self.sender.timeouts + later.sender.timeouts,
            },
            received_packets: self.received_packets + later.received_packets,
            received_bytes: self.received_bytes + later.received_bytes,
            new_bytes: self.new_bytes + later.new_bytes,
            duplicate_packets: self.duplicate_packets + later.duplicate_packets,
            rebuilt_chunks: self.rebuilt_chunks + later.rebuilt_chunks,
            late_packets: self.late_packets + later.late_packets,
            invalid_packets: self.invalid_packets + later.invalid_packets,
            refused_controls: self.refused_controls + later.refused_controls,
            receive_loss: self.receive_loss.and(&later.receive_loss),
            send_loss: self.send_loss.and(&later.send_loss),
        }
    }
}
