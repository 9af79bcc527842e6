//! A new address of a peer that may have moved, until it is accepted or dropped. `route.rs` learns the
//! addresses behind address translation.

use core::net::SocketAddr;

use farwrite_wire::packet::ip_udp_bytes;

/// Number of unanswered challenges after which the candidate is dropped.
const CHALLENGES: u8 = 8;
/// Number of unanswered probes to the old address before the new one is accepted.
const FAREWELLS: u8 = 3;

/// How the peer sees this end's packets, according to a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Source and destination of the probe as it arrived.
    pub(crate) flow: (SocketAddr, SocketAddr),
    /// Whether a relay on the path seems to recompute ICRCs.
    pub(crate) is_resealed: bool,
    /// The counter of the probe.
    pub(crate) echo: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct NewAddress {
    pub(crate) address: SocketAddr,
    /// Counter of the first packet that came from this address; 0 if none has.
    pub(crate) since_counter: u64,
    pub(crate) since_ns: u64,
    /// Bytes that may still be sent to this address. In total, never more than came from it.
    allowance_bytes: u64,
    challenges: u8,
    challenged_ns: Option<u64>,
    /// How the peer sees this end's packets, after it has answered from this address.
    pub(crate) seen: Option<Seen>,
    farewells: u8,
    farewell_ns: Option<u64>,
}

/// Bytes on the wire of a packet with `bytes` of UDP payload over IPv6. With IPv4 they are fewer,
/// so this is an upper bound.
pub(crate) fn wire_bytes(bytes: usize) -> u64 {
    bytes as u64 + u64::from(ip_udp_bytes(false))
}

impl NewAddress {
    pub(crate) fn new(address: SocketAddr, since_counter: u64, since_ns: u64) -> Self {
        Self {
            address,
            since_counter,
            since_ns,
            allowance_bytes: 0,
            challenges: 0,
            challenged_ns: None,
            seen: None,
            farewells: 0,
            farewell_ns: None,
        }
    }

    /// Raises the allowance by the bytes that came from this address.
    pub(crate) fn allow(&mut self, wire_bytes: u64) {
        self.allowance_bytes += wire_bytes;
    }

    /// Whether the allowance covers a packet. If so, subtracts its bytes.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.allowance_bytes.checked_sub(wire_bytes(bytes));
        self.allowance_bytes = left.unwrap_or(self.allowance_bytes);
        left.is_some()
    }

    /// Whether to send a challenge, a probe of `bytes`, to this address now.
    pub(crate) fn challenge(&mut self, bytes: usize, now_ns: u64, timeout_ns: u64) -> bool {
        let is_due = self
            .challenged_ns
            .is_none_or(|at| now_ns >= at + timeout_ns);
        if self.seen.is_some() || !is_due || self.challenges >= CHALLENGES || !self.spend(bytes) {
            return false;
        }
        self.challenges += 1;
        self.challenged_ns = Some(now_ns);
        true
    }

    /// Whether to send a probe to the old address now.
    pub(crate) fn farewell(&mut self, now_ns: u64, timeout_ns: u64) -> bool {
        let is_due = self.farewell_ns.is_none_or(|at| now_ns >= at + timeout_ns);
        if !is_due || self.farewells > FAREWELLS {
            return false;
        }
        self.farewells += 1;
        self.farewell_ns = Some(now_ns);
        self.farewells <= FAREWELLS
    }

    /// Whether the old address has not answered any of its probes.
    pub(crate) fn is_old_gone(&self) -> bool {
        self.farewells > FAREWELLS
    }

    /// Whether the candidate has not answered any challenge, and gets no more of them.
    pub(crate) fn is_hopeless(&self, now_ns: u64, timeout_ns: u64) -> bool {
        let asked_ns = self.challenged_ns.unwrap_or(self.since_ns);
        self.seen.is_none() && now_ns >= asked_ns + timeout_ns * u64::from(CHALLENGES)
    }

    /// When the next probe is due.
    pub(crate) fn next_ns(&self, timeout_ns: u64) -> u64 {
        let challenge_ns = self
            .challenged_ns
            .map_or(self.since_ns, |at| at + timeout_ns);
        let farewell_ns = self.farewell_ns.map_or(self.since_ns, |at| at + timeout_ns);
        challenge_ns.min(farewell_ns)
    }
}
