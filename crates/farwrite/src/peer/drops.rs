//! Estimates how many of the packets dropped by full sockets came from a peer (P5.5.5).

use farwrite_fabric::contract::Counters;

/// Fractions of a packet in which shares are counted, so that small shares add up.
const PARTS: u64 = 1 << 16;

/// Attributes part of the packets that a fabric's sockets dropped to one queue pair.
///
/// A dropped packet cannot be read. So the share of a queue pair in the drops is its share in the
/// packets that the sockets accepted during the same time. Packets that no queue pair accepted came
/// from strangers. They used room that the peers' packets would otherwise have had, so the same
/// number of drops is attributed to strangers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropShare {
    /// Counters at the last call.
    seen: Seen,
    /// Drops attributed so far, in fractions of a packet.
    parts: u64,
}

/// Packets counted so far.
#[derive(Clone, Copy, Debug)]
struct Seen {
    dropped: u64,
    taken: u64,
    accepted_by_all: u64,
    /// Packets accepted by the queue pair.
    accepted: u64,
}

impl Seen {
    fn new(counters: &Counters, accepted: u64) -> Self {
        Self {
            dropped: counters.socket_drops,
            taken: counters.taken_packets(),
            accepted_by_all: counters.accepted_packets(),
            accepted,
        }
    }
}

impl DropShare {
    /// Creates a share that ignores earlier drops.
    pub(crate) fn new(counters: &Counters, accepted: u64) -> Self {
        Self {
            seen: Seen::new(counters, accepted),
            parts: 0,
        }
    }

    /// Attributes the drops since the last call. `accepted` is the total number of packets that the
    /// queue pair has accepted. Returns how many drops were attributed to it so far.
    pub(crate) fn update(&mut self, counters: &Counters, accepted: u64) -> u64 {
        let now = Seen::new(counters, accepted);
        let before = std::mem::replace(&mut self.seen, now);
        let since = |now: u64, before: u64| u128::from(now.saturating_sub(before));
        let dropped = since(now.dropped, before.dropped);
        let taken = since(now.taken, before.taken);
        let accepted_by_all = since(now.accepted_by_all, before.accepted_by_all);
        let strange = taken.saturating_sub(accepted_by_all);
        let own = since(now.accepted, before.accepted).min(accepted_by_all);
        if taken > 0 && accepted_by_all > 0 {
            // How many of the peers' packets would have been dropped without those of strangers.
            let of_peers = (dropped * accepted_by_all).saturating_sub(strange * taken);
            let parts = of_peers.saturating_mul(PARTS.into()) / taken;
            let own_parts = parts.saturating_mul(own) / accepted_by_all;
            let own_parts = u64::try_from(own_parts).unwrap_or(u64::MAX);
            self.parts = self.parts.saturating_add(own_parts);
        }
        self.parts / PARTS
    }
}

#[cfg(test)]
mod tests {
    use farwrite_fabric::contract::DropReason;

    use super::*;

    /// Returns the counters after `accepted` packets of peers, `strange` other packets and
    /// `dropped` drops.
    fn counters(accepted: u64, strange: u64, dropped: u64) -> Counters {
        let mut counters = Counters {
            received_packets: accepted,
            socket_drops: dropped,
            ..Counters::default()
        };
        counters.dropped[DropReason::Malformed as usize] = strange;
        counters
    }

    fn share(own: u64, accepted: u64, strange: u64, dropped: u64) -> u64 {
        let mut share = DropShare::new(&Counters::default(), 0);
        share.update(&counters(accepted, strange, dropped), own)
    }

    #[test]
    fn a_peer_alone_has_all_drops() {
        assert_eq!(share(1000, 1000, 0, 50), 50);
        assert_eq!(share(1000, 1000, 0, 5_000), 5_000);
    }

    #[test]
    fn queue_pairs_have_the_share_of_their_packets() {
        assert_eq!(share(750, 1000, 0, 100), 75);
        assert_eq!(share(250, 1000, 0, 100), 25);
        assert_eq!(share(0, 1000, 0, 100), 0);
    }

    #[test]
    fn strangers_have_as_many_drops_as_room_that_they_took() {
        // 1000 packets were accepted, and 1000 were dropped. Half of the dropped packets came from
        // peers. Without the 500 accepted packets of strangers, these 500 would have had room.
        assert_eq!(share(500, 500, 500, 1000), 0);
        // Peers sent 2700 packets and strangers 300. Without the strangers' packets, 1000 of the
        // 2700 would have had room.
        assert_eq!(share(900, 900, 100, 2000), 1700);
        // A flood.
        assert_eq!(share(6_000, 6_000, 600_000, 300_000), 0);
        assert_eq!(share(0, 0, 600_000, 300_000), 0);
    }

    #[test]
    fn small_shares_add_up() {
        let mut share = DropShare::new(&counters(0, 0, 0), 0);
        let attributed = (1..=1000).map(|n| share.update(&counters(10 * n, 0, n), n));
        assert_eq!(attributed.last(), Some(99), "a tenth, but for rounding");
    }

    #[test]
    fn what_was_dropped_before_is_nobodys_and_counters_may_be_anything() {
        let mut share = DropShare::new(&counters(1000, 0, 1000), 500);
        assert_eq!(share.update(&counters(1000, 0, 2000), 500), 0);
        assert_eq!(share.update(&counters(0, 0, 0), 0), 0);
        let huge = counters(u64::MAX, 0, u64::MAX);
        assert!(share.update(&huge, u64::MAX) > 0);
    }
}
