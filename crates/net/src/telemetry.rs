//! In-band telemetry (INT): what ports of switches write into a packet, as in HPCC (SIGCOMM 2019).

/// Hops that a packet has room for.
pub const MAX_HOPS: usize = 5;

/// What a port wrote into a packet when the packet left by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// The port, by a number of its own in the network.
    pub port: u32,
    /// When the transmission of the packet began, in nanoseconds.
    pub at_ns: u64,
    /// Bytes in the queues of the port, without this packet.
    pub queued_bytes: u64,
    /// Bytes of frames that the port has sent before this packet.
    pub sent_bytes: u64,
    /// Rate of the port in bits per second.
    pub rate_bps: u64,
}

/// The room of a packet for hops. Only switches write into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    hops: [Hop; MAX_HOPS],
    count: usize,
    is_returned: bool,
}

impl Telemetry {
    /// Bytes in a packet, as in HPCC: 2 bytes and 8 for each hop that there is room for.
    pub const BYTES: u32 = 42;

    /// The hops so far, in the order of the path.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..self.count]
    }

    /// The same hops, for the way back to the sender: switches add none.
    #[must_use]
    pub fn returned(self) -> Self {
        Self {
            is_returned: true,
            ..self
        }
    }

    /// Adds a hop if there is room for it.
    pub(crate) fn record(&mut self, hop: Hop) {
        if self.is_returned {
            return;
        }
        if let Some(next) = self.hops.get_mut(self.count) {
            *next = hop;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_keeps_its_first_hops_and_none_of_the_way_back() {
        let hop = |port| Hop {
            port,
            ..Hop::default()
        };
        let mut telemetry = Telemetry::default();
        telemetry.record(hop(3));
        let mut returned = telemetry.clone().returned();
        returned.record(hop(4));
        assert_eq!(returned.hops(), [hop(3)]);
        for port in 4..10 {
            telemetry.record(hop(port));
        }
        assert_eq!(telemetry.hops(), [3, 4, 5, 6, 7].map(hop));
    }
}
