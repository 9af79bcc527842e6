//! The software UC NIC that the user-space fabrics share.
//!
//! It holds memory, keys and queue pairs, makes packets of work requests, and applies the packets
//! that arrive or counts why not. It has no socket and no clock: a [`Carrier`] moves the packets,
//! and [`NicFabric`] joins the two into a [`Fabric`](crate::contract::Fabric).

mod burst;
mod carrier;
mod fabric;
mod keys;
mod numbers;
mod queue_pairs;
mod receive;

use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

pub use self::burst::{Burst, Packet, Seal};
pub use self::carrier::Carrier;
pub use self::fabric::NicFabric;
use self::keys::Keys;
use self::numbers::Numbers;
use self::queue_pairs::QueuePairs;
pub use self::receive::Arrival;
use crate::contract::{Completion, Counters, Qpn, WriteWr};

/// Most entries of a scatter list. A burst of 64 packets then needs at most 64 x (head + 8 + tail)
/// = 640 pieces, within the 1024 that Linux takes in one call.
pub const MAX_SGE: usize = 8;

/// Memory, keys, queue pairs and counters.
pub struct Nic {
    numbers: Numbers,
    keys: Keys,
    queue_pairs: QueuePairs,
    /// Not yet polled.
    departed: VecDeque<Completion>,
    counters: Counters,
}

impl Nic {
    fn new(seed: [u8; 32]) -> Self {
        Self {
            numbers: Numbers::new(ChaCha20Rng::from_seed(seed)),
            keys: Keys::default(),
            queue_pairs: QueuePairs::default(),
            departed: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    fn drop_departures(&mut self, qpn: Qpn) {
        self.departed.retain(
            |completion| !matches!(completion, Completion::Departed { qpn: of, .. } if *of == qpn),
        );
    }

    /// Notes that a carrier took packets of a queue pair.
    fn sent(&mut self, qpn: Qpn, packets: usize, bytes: u64) {
        if let Ok(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.advance(packets);
        }
        self.counters.sent_packets += packets as u64;
        self.counters.sent_bytes += bytes;
    }

    /// Completes those of the first `taken` writes that are signalled, and the last of them where
    /// the carrier did not take all.
    fn depart(&mut self, qpn: Qpn, writes: &[WriteWr<'_>], taken: usize) {
        let cut = (taken < writes.len()).then_some(taken);
        let completes =
            |(place, write): &(usize, &WriteWr<'_>)| write.signaled || cut == Some(*place);
        let completed = (1..=taken).zip(writes).filter(completes);
        self.departed.extend(completed.map(|(_, write)| {
            let wr_id = write.wr_id;
            Completion::Departed { qpn, wr_id }
        }));
    }
}

/// Bytes of the IP and UDP headers around a RoCEv2 packet (no IP options, no extension headers).
fn header_bytes(addr: SocketAddr) -> u64 {
    if addr.ip().to_canonical().is_ipv4() {
        28
    } else {
        48
    }
}
