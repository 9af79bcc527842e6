//! Notices that the program of a peer was killed: ICMP says that nobody is at its port, and it answers no route packet.

use std::time::Duration;

use farwrite::routes::Role;

use super::nanoseconds;

/// How long this end hears nothing of a responder, after ICMP has said that nobody is at its port, before the connection
/// ends ([`Ended::Gone`](crate::Ended::Gone)).
pub const RESPONDER_GONE_AFTER: Duration = Duration::from_secs(3);
/// The same time for an initiator. It may have moved while it was idle, so that ICMP is about its old address. It then
/// sends a route packet from the new one within 15 s (P6.2).
pub const INITIATOR_GONE_AFTER: Duration = Duration::from_secs(20);

/// What ICMP says of the peer's port.
#[derive(Default)]
pub(super) struct GoneWatch {
    /// How often it has said that nobody is there, as of the last look.
    refusals: u64,
    /// When this end has noticed it first in the present silence.
    since_ns: Option<u64>,
}

impl GoneWatch {
    /// Looks at the count of refusals. Returns when this end has noticed the first one since the peer was last heard,
    /// at `heard_ns`.
    ///
    /// The peer may be alive: ICMP can be forged, and it may be older than what was heard. So this end asks for a sign of
    /// life from then on.
    pub(super) fn look(&mut self, now_ns: u64, heard_ns: u64, refusals: u64) -> Option<u64> {
        self.since_ns = self.since_ns.filter(|since_ns| *since_ns >= heard_ns);
        if std::mem::replace(&mut self.refusals, refusals) != refusals {
            self.since_ns.get_or_insert(now_ns);
        }
        self.since_ns
    }

    /// When the peer is gone, if it is not heard any more.
    pub(super) fn until_ns(since_ns: u64, own_role: Role) -> u64 {
        since_ns.saturating_add(nanoseconds(match own_role {
            Role::Initiator => RESPONDER_GONE_AFTER,
            Role::Responder => INITIATOR_GONE_AFTER,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_the_peer_is_heard() {
        let mut watch = GoneWatch::default();
        assert_eq!(watch.look(10, 0, 0), None);
        assert_eq!(watch.look(20, 0, 1), Some(20));
        assert_eq!(watch.look(30, 0, 4), Some(20), "the first one");
        assert_eq!(watch.look(40, 35, 4), None, "it lives");
        assert_eq!(watch.look(50, 35, 4), None, "nothing new");
        // The socket of another address counts from zero.
        assert_eq!(watch.look(60, 35, 0), Some(60));
    }
}
