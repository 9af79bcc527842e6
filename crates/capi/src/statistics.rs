//! What connections, queue pairs and streams have counted and measured, for `farwrite.h`.

use farwrite::{PeerStats, QpStats};

use crate::farwrite_h::{farwrite_path_statistics, farwrite_transfer_statistics};

pub(crate) fn of_path(size: usize, stats: &PeerStats) -> farwrite_path_statistics {
    farwrite_path_statistics {
        size,
        rtt_ns: stats.rtt_ns,
        pace_bps: stats.pace_bps,
        in_flight_bytes: stats.in_flight_bytes,
        sent_packets: stats.sent_packets,
        sent_bytes: stats.sent_bytes,
        reported_bytes: stats.reported_bytes,
        delivered_bytes: stats.delivered_bytes,
    }
}

pub(crate) fn of_queue_pair(size: usize, stats: &QpStats) -> farwrite_transfer_statistics {
    farwrite_transfer_statistics {
        size,
        sent_chunks: stats.sender.sent_chunks,
        resent_chunks: stats.sender.retransmitted_chunks,
        received_packets: stats.received_packets,
        received_bytes: stats.received_bytes,
        duplicate_packets: stats.duplicate_packets,
        rebuilt_chunks: stats.rebuilt_chunks,
        send_judged_chunks: stats.send_loss.judged_chunks(),
        send_lost_chunks: stats.send_loss.lost_chunks(),
        receive_judged_chunks: stats.receive_loss.judged_chunks(),
        receive_lost_chunks: stats.receive_loss.lost_chunks(),
    }
}
