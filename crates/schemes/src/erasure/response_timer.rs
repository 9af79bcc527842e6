//! Whether a sender still hears from its peer about what it sent (P5.0.9, P5.4.7).

use crate::scheme::PeerView;
use crate::silent_peer::SilentPeer;

/// Detects that nothing has been heard for a timeout. The timeout starts when chunks leave or, if
/// there is nothing more to send, when something was last heard.
#[derive(Debug, Default)]
pub(super) struct ResponseTimer {
    /// When chunks first left, or the last timeout ended, since something was last heard.
    since_ns: Option<u64>,
    heard_ns: u64,
    pub(super) silent_peer: SilentPeer,
}

impl ResponseTimer {
    /// Starts the watch: from now on the peer must answer.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.since_ns = None;
    }

    /// Handles anything from the peer.
    pub(super) fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.since_ns = None;
        self.silent_peer.heard();
    }

    /// Handles the departure of chunks.
    pub(super) fn departed(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    /// Returns whether a timeout ended. `waiting`: there is nothing to send, and the peer must
    /// answer.
    pub(super) fn handle_timeout(&mut self, view: &PeerView, rto_ns: u64, waiting: bool) -> bool {
        let now_ns = view.now_ns;
        let expired = self
            .expiry_ns(rto_ns, waiting)
            .is_some_and(|at_ns| at_ns <= now_ns);
        if expired {
            self.since_ns = Some(now_ns);
            self.silent_peer.expired(view, rto_ns);
        }
        self.silent_peer.handle_timeout(view);
        expired
    }

    pub(super) fn next_timeout(&self, rto_ns: u64, waiting: bool) -> Option<u64> {
        let silence = self.silent_peer.next_timeout();
        silence.or_else(|| self.expiry_ns(rto_ns, waiting))
    }

    fn expiry_ns(&self, rto_ns: u64, waiting: bool) -> Option<u64> {
        if self.silent_peer.next_timeout().is_some() {
            return None;
        }
        let since_ns = self.since_ns.or(waiting.then_some(self.heard_ns));
        since_ns.map(|since_ns| since_ns.saturating_add(rto_ns))
    }
}
