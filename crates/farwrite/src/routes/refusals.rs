//! Notices that ICMP says that nobody is at the port of a peer.

/// What ICMP says of a peer's port.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// How often it has said that nobody is there, as of the last look.
    count: u64,
    /// When this end has noticed it first in the present silence.
    since_ns: Option<u64>,
}

impl Refusals {
    /// Looks at the count of refusals. Returns when this end has noticed the first one since the peer was last heard,
    /// at `heard_ns`.
    pub(super) fn look(&mut self, now_ns: u64, heard_ns: u64, count: u64) -> Option<u64> {
        self.since_ns = self.since_ns.filter(|since_ns| *since_ns >= heard_ns);
        if std::mem::replace(&mut self.count, count) != count {
            self.since_ns.get_or_insert(now_ns);
        }
        self.since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_the_peer_is_heard() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.look(10, 0, 0), None);
        assert_eq!(refusals.look(20, 0, 1), Some(20));
        assert_eq!(refusals.look(30, 0, 4), Some(20), "the first one");
        assert_eq!(refusals.look(40, 35, 4), None, "it lives");
        assert_eq!(refusals.look(50, 35, 4), None, "nothing new");
        // The socket of another address counts from zero.
        assert_eq!(refusals.look(60, 35, 0), Some(60));
    }
}
