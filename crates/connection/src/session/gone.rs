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

/// When the peer is gone, if it is not heard any more after ICMP has said so at `since_ns`.
pub(super) fn gone_ns(since_ns: u64, own_role: Role) -> u64 {
    since_ns.saturating_add(nanoseconds(match own_role {
        Role::Initiator => RESPONDER_GONE_AFTER,
        Role::Responder => INITIATOR_GONE_AFTER,
    }))
}
