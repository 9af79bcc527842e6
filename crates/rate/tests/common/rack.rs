//! How Linux's TCP bears packets that overtake one another (RACK, RFC 8985).

use std::collections::BTreeMap;

/// A packet that has arrived.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) sequence: u32,
    pub(crate) at_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) marked: bool,
}

/// Holds what has arrived behind a gap, until the gap is filled or has lasted for the window. Then the
/// sender hears of it, and takes what is missing for lost.
///
/// The window is a quarter of the round trip. It grows by as much, up to a round trip, with each packet
/// that comes after its gap was given up: the sender learns of it by a duplicate (DSACK). RACK lowers
/// the window again after some recoveries, which is not modelled.
pub(crate) struct Rack {
    rtt_ns: u64,
    window_ns: u64,
    next: u32,
    held: BTreeMap<u32, Taken>,
}

impl Rack {
    pub(crate) fn new(rtt_ns: u64) -> Self {
        Self {
            rtt_ns,
            window_ns: rtt_ns / 4,
            // Senders number packets from 1 on.
            next: 1,
            held: BTreeMap::new(),
        }
    }

    /// Processes a packet. Returns those of which the sender hears now.
    pub(crate) fn take(&mut self, packet: Taken) -> Vec<Taken> {
        if packet.sequence < self.next {
            self.window_ns = (self.window_ns + self.rtt_ns / 4).min(self.rtt_ns);
            return vec![packet];
        }
        self.held.insert(packet.sequence, packet);
        let mut heard = Vec::new();
        while let Some(first) = self.held.first_entry() {
            let waited_ns = packet.at_ns.saturating_sub(first.get().at_ns);
            if *first.key() != self.next && waited_ns < self.window_ns {
                break;
            }
            self.next = *first.key() + 1;
            heard.push(first.remove());
        }
        heard
    }
}
